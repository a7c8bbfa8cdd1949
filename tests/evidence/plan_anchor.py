"""What no check can see from inside a bundle, and what the caller's anchor is for."""

from ledger.canonical import sha256
from tests.evidence.base_bundle import HERE, base_parts, plan_bytes
from tests.evidence.case import case
from tests.verifier import forge
from tests.verifier.forge import Files, Parts

DIFFERS = (
    b"      - {kind: differs, left: {cell: native, history: H0}, right: {cell: native, history: H1},"
    b" surfaces: [w13, activation, w2, output]}"
)


def _lock() -> str:
    return sha256((HERE / "base" / "plan.lock").read_bytes())


def _plan() -> str:
    return sha256(plan_bytes())


def weakened(parts: Parts) -> Files:
    """C01 claims one surface instead of four; lock, summary and manifest are redone."""
    weaker = DIFFERS.replace(b"[w13, activation, w2, output]", b"[w13]")
    if DIFFERS not in parts.ledger:
        raise ValueError("expected the outcome of C01 in the ledger")
    parts.ledger = parts.ledger.replace(DIFFERS, weaker, 1)
    forge.relink(parts)
    return forge.seal(parts)


case(
    "weakened-ledger",
    "The claims were made easier after the run, and lock, summary and manifest redone: consistent from inside, so"
    " only the digest of the lock, known from outside, catches it.",
    ("V301", "plan.yaml"),
    anchor=_lock,
)(weakened)
case(
    "weakened-ledger-unanchored",
    "The same bundle without an anchor. It must be accepted as what it is: good evidence for weaker claims, of a plan"
    " that is self-declared. This is why anchors are there.",
)(weakened)
case(
    "weakened-ledger-anchored-by-plan-alone",
    "The same bundle anchored by the digest of its plan, which names its ledger by name alone: not caught. A report"
    " says under *not checked* that the claims are not anchored.",
    anchor=_plan,
)(weakened)


def replanned(_parts: Parts) -> Files:
    """A plan made after the fact, to fit what came out."""
    plan = plan_bytes().replace(
        b"order: {interleaved: cells, seed: 2607}", b"order: {interleaved: cells, seed: 7}"
    )
    if plan == plan_bytes():
        raise ValueError("expected the plan's order in it")
    return forge.seal(base_parts(plan=plan))


case(
    "replanned",
    "A plan made after the fact, everything derived from it: only the digest of the plan that was frozen before the"
    " run, known from outside, catches it.",
    ("V301", "plan.yaml"),
    anchor=_plan,
)(replanned)
case(
    "replanned-against-the-lock",
    "The same, anchored by the lock's digest.",
    ("V301", "plan.yaml"),
    anchor=_lock,
)(replanned)
