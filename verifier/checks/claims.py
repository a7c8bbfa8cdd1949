"""V301 and V313: the plan that the caller expects, and a ledger that cites only what the plan has."""

from collections.abc import Iterator

from verifier.bundle import Absent, Bundle
from verifier.checks.check import check
from verifier.citations import citation_faults, uncited_mutation_faults
from verifier.found import Found


@check("V301")
def anchored(bundle: Bundle) -> Iterator[Found]:
    """V301: the plan, or its lock, is the one that the caller names from outside, if one is named.

    A forger who rewrites plan, lock, ledger and manifest together makes a consistent bundle of other claims:
    only this catches it. The plan's digest says nothing of the ledger, which it names by name; the lock's
    holds both (V302, V304).
    """
    if bundle.anchor is None:
        return
    digest = bundle.digest("plan.yaml")
    if bundle.anchor in {digest, lock := bundle.digests.get("plan.lock")}:
        return
    summary = bundle.documents.summary
    if (
        summary is not None and summary.lock == bundle.anchor
    ):  # it once was the caller's: the lock was damaged
        yield Found(
            code="V301",
            file="plan.lock",
            expected=f"sha256 {bundle.anchor}, as the caller expects and bundle.json names it",
            got="no file" if lock is None else f"sha256 {lock}",
        )
        return
    yield Found(
        code="V301",
        file="plan.yaml",
        expected=f"sha256 {bundle.anchor}, of plan.yaml or plan.lock, as the caller expects",
        got=f"sha256 {digest}",
    )


@check("V313", frozen_only=True)
def citations(bundle: Bundle) -> Iterator[Found]:
    """V313: claims and mutations cite cells, histories, surfaces, routes, blocks, phases of the plan only."""
    try:
        blocks = bundle.worked.padded_blocks
    except Absent:
        blocks = None
    for claim, faults in citation_faults(bundle.ledger, bundle.planned, blocks).items():
        for key, expected, got in faults:
            yield Found(
                code="V313",
                file="ledger.yaml",
                key=key,
                expected=expected,
                got=got,
                claims=frozenset({claim}),
            )
    for key, expected, got in uncited_mutation_faults(bundle.ledger, bundle.planned):
        yield Found(code="V313", file="ledger.yaml", key=key, expected=expected, got=got, claims=frozenset())


CHECKS = (anchored, citations)
