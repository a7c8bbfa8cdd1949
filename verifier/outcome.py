"""What judging one predicate gives: holds, refuted, or too little evidence to say; the reason in words."""

from dataclasses import dataclass

from ledger.verdict import Verdict


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """The verdict on one predicate and what decided it."""

    verdict: Verdict
    reason: str


def holds(reason: str) -> Outcome:
    """The predicate holds."""
    return Outcome(verdict="supported", reason=reason)


def refuted(reason: str) -> Outcome:
    """The evidence says otherwise."""
    return Outcome(verdict="refuted", reason=reason)


def too_few(reason: str) -> Outcome:
    """There is not enough evidence to say."""
    return Outcome(verdict="missing", reason=reason)
