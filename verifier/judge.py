"""Claims against evidence: findings sink claims, then come delivered, outcome, control, known-bad."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from ledger.bundle import DOCUMENTS
from ledger.claim import Claim, DeclaredMutation, Level, Predicate, Rejects
from ledger.verdict import PRECEDENCE, Decision, Verdict
from verifier.bundle import Absent, Bundle
from verifier.citations import predicates, rests_on
from verifier.codes import CODES
from verifier.found import ArmKey, Found
from verifier.layout import OUTSIDE_MANIFEST, arm_in_name, kind_of
from verifier.outcome import Outcome, holds
from verifier.paths import Paths
from verifier.predicates import View, judge
from verifier.store import disk
from verifier.words import mutation_words, predicate_words

LEVELS: tuple[Level, ...] = ("records", "raw", "reexecute")
_GLOBAL = frozenset({*DOCUMENTS, *OUTSIDE_MANIFEST, "."})
_SHOWN = 20  # findings listed under one claim

Part = Literal["delivered", "outcome", "control", "known-bad", "findings"]


class Trials(Protocol):
    """Bad evidence made from good: who made it says what became of it."""

    def rejected(self, name: str) -> Outcome:
        """What became of a declared mutation."""

    def known_bad(self, claim: Claim) -> Outcome:
        """What became of a claim's own known-bad."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """A claim with its verdict, what decided it, the records it rests on, and findings made on the way."""

    claim: Claim
    verdict: Verdict
    decisions: tuple[Decision, ...]
    evidence: Sequence[str]
    found: tuple[Found, ...]


def worst(verdicts: Sequence[Verdict]) -> Verdict:
    """The first of PRECEDENCE among some verdicts; `missing` for none: nothing checked is not success."""
    return min(verdicts, key=PRECEDENCE.index, default="missing")


def concerned(found: Found, bundle: Bundle) -> frozenset[ArmKey] | None:
    """The arms that a finding concerns; None for all of them."""
    if found.claims is not None:
        return found.arms or frozenset()
    if found.arms is not None:
        return found.arms
    if found.file in _GLOBAL:
        return None
    if (arm := arm_in_name(found.file)) is not None:
        return frozenset({arm})
    if kind_of(found.file) == "record" and (facts := bundle.record(found.file)) is not None:
        return frozenset({facts.arm})
    return bundle.arms_of(found.file)


def sunk_by(claim: Claim, founds: Sequence[Found], bundle: Bundle) -> tuple[Found, ...]:
    """The findings that take a claim's evidence away."""
    try:
        arms = rests_on(claim, bundle.ledger, bundle.planned)
    except Absent:
        arms = None
    return tuple(found for found in founds if _touches(found, claim, arms, bundle))


def _touches(found: Found, claim: Claim, arms: frozenset[ArmKey] | None, bundle: Bundle) -> bool:
    if found.claims is not None and claim.id in found.claims:
        return True
    about = concerned(found, bundle)
    if about is None:
        return True
    return bool(about) if arms is None else bool(about & arms)


def level_of(claim: Claim, mutations: Sequence[DeclaredMutation]) -> Level:
    """The lowest level at which a claim can be judged: that of the mutations it needs."""
    cited = {
        name
        for _, predicate in predicates(claim)
        if isinstance(predicate, Rejects)
        for name in predicate.mutations
    }
    needed = [mutation.level for mutation in mutations if mutation.id in cited]
    if claim.known_bad is not None:
        needed.append(claim.known_bad.level)
    return max(needed, key=LEVELS.index, default="records")


def judge_claim(
    claim: Claim, bundle: Bundle, founds: Sequence[Found], *, level: Level, trials: Trials | None
) -> Judged:
    """The verdict on one claim.

    Steps: 1 level, 2 findings, 3 delivered, 4 outcome and control, 5 known-bad.
    """
    evidence = _evidence(claim, bundle)
    needed = level_of(claim, bundle.ledger.mutations)
    if LEVELS.index(needed) > LEVELS.index(level):
        reason = f"needs --level {needed}"
        decision = Decision(
            part="findings", predicate=f"level {level}", verdict="out-of-scope", reason=reason
        )
        return Judged(claim=claim, verdict="out-of-scope", decisions=(decision,), evidence=evidence, found=())
    if sunk := sunk_by(claim, founds, bundle):
        verdict = worst([CODES[found.code].verdict for found in sunk])
        decisions = tuple(_sunk(found) for found in sunk[:_SHOWN])
        return Judged(claim=claim, verdict=verdict, decisions=decisions, evidence=evidence, found=())
    decisions_found = list(_decide(claim, View(bundle), trials))
    return Judged(
        claim=claim,
        verdict=worst([decision.verdict for decision, _ in decisions_found]),
        decisions=tuple(decision for decision, _ in decisions_found),
        evidence=evidence,
        found=tuple(found for _, found in decisions_found if found is not None),
    )


def _decide(claim: Claim, view: View, trials: Trials | None) -> Iterator[tuple[Decision, Found | None]]:
    """Steps 3 to 5. What was not delivered has no outcome to be looked at; what fails needs no known-bad."""
    supported = True
    for parts in (("delivered",), ("outcome", "control")):
        for key, predicate in predicates(claim):
            part = key.partition("[")[0]
            if part in parts:
                outcome = _outcome(predicate, view, trials)
                supported = supported and outcome.verdict == "supported"
                yield _decision(claim, key, predicate, outcome)
        if not supported:
            return
    if claim.known_bad is not None and trials is not None:
        outcome = trials.known_bad(claim)
        words = mutation_words(claim.known_bad)
        decision = Decision(part="known-bad", predicate=words, verdict=outcome.verdict, reason=outcome.reason)
        yield decision, _trial_found(f"{claim.id}.known_bad", words, outcome, frozenset({claim.id}))


def _outcome(predicate: Predicate, view: View, trials: Trials | None) -> Outcome:
    if not isinstance(predicate, Rejects):
        return judge(predicate, view)
    if trials is None:
        return holds("not made again inside a mutated bundle")
    outcomes = [(name, trials.rejected(name)) for name in predicate.mutations]
    bad = [(name, outcome) for name, outcome in outcomes if outcome.verdict != "supported"]
    if bad:
        verdict = worst([outcome.verdict for _, outcome in bad])
        return Outcome(
            verdict=verdict, reason="; ".join(f"{name}: {outcome.reason}" for name, outcome in bad)
        )
    return holds("; ".join(f"{name}: {outcome.reason}" for name, outcome in outcomes))


def _decision(
    claim: Claim, key: str, predicate: Predicate, outcome: Outcome
) -> tuple[Decision, Found | None]:
    part: Part = (
        "delivered" if key.startswith("delivered") else "outcome" if key.startswith("outcome") else "control"
    )
    words = predicate_words(predicate)
    verdict = outcome.verdict
    code = {"refuted": "V901", "missing": "V905"}.get(verdict)
    if part == "delivered" and verdict == "refuted":
        verdict, code = "not-run", "V903"
    if isinstance(predicate, Rejects):
        code = None  # the mutation itself is the finding, V902 or V904
    decision = Decision(part=part, predicate=words, verdict=verdict, reason=outcome.reason)
    if code is None:
        return decision, None
    found = Found(
        code=code,
        file="ledger.yaml",
        key=f"{claim.id}.{key}",
        expected=words,
        got=outcome.reason,
        claims=frozenset({claim.id}),
    )
    return decision, found


def _trial_found(key: str, words: str, outcome: Outcome, claims: frozenset[str]) -> Found | None:
    """V902 or V904 for bad evidence that was not refused, or could not be made."""
    if outcome.verdict == "supported":
        return None
    code = "V904" if outcome.verdict == "missing" else "V902"
    return Found(
        code=code,
        file="ledger.yaml",
        key=key,
        expected=f"refused: {words}",
        got=outcome.reason,
        claims=claims,
    )


def mutation_found(mutation: DeclaredMutation, outcome: Outcome, claims: Sequence[Claim]) -> Found | None:
    """The finding on a declared mutation, concerning the claims that cite it."""
    citing = frozenset(
        claim.id
        for claim in claims
        for _, predicate in predicates(claim)
        if isinstance(predicate, Rejects) and mutation.id in predicate.mutations
    )
    return _trial_found(f"mutations.{mutation.id}", mutation_words(mutation), outcome, citing)


def _sunk(found: Found) -> Decision:
    finding = found.finding()
    return Decision(
        part="findings",
        predicate=f"{found.code} {finding.where}",
        verdict=CODES[found.code].verdict,
        reason=f"expected {finding.expected}, got {finding.got}",
    )


def _evidence(claim: Claim, bundle: Bundle) -> Sequence[str]:
    """The records that a claim rests on; of many, the paths are told one by one."""
    try:
        arms = rests_on(claim, bundle.ledger, bundle.planned)
    except Absent:
        return ()
    paths = Paths(bundle.facts, arms)
    return paths if len(bundle.facts) > disk.MANY else tuple(paths)
