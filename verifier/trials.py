"""The mutations, tried: each is made in memory, the whole verifier runs on it, and it must refuse it."""

from ledger.claim import Claim, Level, Mutation
from verifier.assess import Assessment, assess, first_of, judge_all
from verifier.codes import CODES
from verifier.evidence import Evidence
from verifier.forger import MutationError
from verifier.found import Found, several
from verifier.judge import LEVELS, Judged, concerned
from verifier.library import Library
from verifier.mutations import apply
from verifier.outcome import Outcome, holds, refuted, too_few


class MutationTrials:
    """Mutations of one assessed bundle; each is tried once."""

    def __init__(self, base: Assessment, library: Library, *, level: Level) -> None:
        self._base = base
        self._library = library
        self._level = level
        self._known = frozenset(base.found)
        ledger = base.bundle.documents.ledger
        self._declared = {mutation.id: mutation for mutation in ledger.mutations} if ledger else {}
        self._done: dict[str, Outcome] = {}

    @property
    def tried(self) -> dict[str, Outcome]:
        """The declared mutations of this level with what became of them; tries those not tried yet."""
        names = [
            name
            for name, mutation in self._declared.items()
            if LEVELS.index(mutation.level) <= LEVELS.index(self._level)
        ]
        return {name: self.rejected(name) for name in names}

    def rejected(self, name: str) -> Outcome:
        """What became of a declared mutation: it must bring a finding with its code."""
        if name not in self._done:
            mutation = self._declared[name]
            self._done[name] = self._try(mutation, None)
        return self._done[name]

    def known_bad(self, claim: Claim) -> Outcome:
        """What became of a claim's known-bad: its code on this claim, and the claim no longer supported."""
        if claim.known_bad is None:
            return too_few("the claim has no known-bad")
        return self._try(claim.known_bad, claim)

    def _try(self, mutation: Mutation, claim: Claim | None) -> Outcome:
        try:
            evidence = apply(mutation, self._base.bundle)
        except MutationError as fault:
            return too_few(f"could not be made: {fault}")
        if claim is None and _verdict(mutation.code) not in {"refuted", "not-run"}:
            soonest = first_of(
                mutation.code,
                evidence,
                self._library,
                level=self._level,
                anchor=self._base.bundle.anchor,
                known=self._known,
            )
            if soonest is not None:
                return _refused(soonest)
        return self._by_a_whole_pass(mutation, claim, evidence)

    def _by_a_whole_pass(self, mutation: Mutation, claim: Claim | None, evidence: Evidence) -> Outcome:
        bad = assess(evidence, self._library, level=self._level, anchor=self._base.bundle.anchor)
        found = list(bad.found)
        judged: tuple[Judged, ...] = ()
        if claim is not None or _verdict(mutation.code) in {"refuted", "not-run"}:
            only = frozenset({claim.id}) if claim else None
            judged = judge_all(bad, level=self._level, trials=None, only=only)
            found += [item for one in judged for item in one.found]
        new = [item for item in found if item not in self._known]
        hits = [item for item in new if item.code == mutation.code]
        if hits and claim is not None and any(one.verdict == "supported" for one in judged):
            return refuted("the claim is still supported")
        if hits:
            return _refused(hits[0])
        if (lacks := bad.skipped.get(mutation.code)) is not None:
            return too_few(f"{mutation.code} could not be carried out: {lacks}")
        if self._faulty(mutation):
            return too_few("the evidence that it is made from has findings of its own")
        return refuted(f"expected {mutation.code}, got {_codes(new)}")

    def _faulty(self, mutation: Mutation) -> bool:
        """Whether a finding concerns what a mutation is made from: bad evidence made worse may look good."""
        arm = (mutation.cell, mutation.history)
        about = (concerned(item, self._base.bundle) for item in self._base.found if item.claims is None)
        return any(arms is None or arm in arms for arms in about)


def _refused(found: Found) -> Outcome:
    return holds(f"refused with {found.code} at {found.where}")


def _verdict(code: str) -> str | None:
    known = CODES.get(code)  # a ledger may declare a code that does not exist: then nothing refuses it
    return known.verdict if known else None


def _codes(found: list[Found]) -> str:
    return several(sorted({item.code for item in found})) if found else "no new finding"
