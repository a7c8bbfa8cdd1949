"""Verdicts, findings and the report: what a verifier says, and the exit code that goes with it."""

from typing import Literal

from ledger.claim import Code, Level
from ledger.model import Count, Frozen, Sha256

Verdict = Literal["supported", "refuted", "missing", "malformed", "ambiguous", "not-run", "out-of-scope"]

#: Documented exit codes; of several verdicts the first in PRECEDENCE decides.
EXIT_CODES: dict[str, int] = {
    "malformed": 2,
    "ambiguous": 2,
    "refuted": 1,
    "missing": 3,
    "not-run": 3,
    "out-of-scope": 0,
    "supported": 0,
}
PRECEDENCE: tuple[Verdict, ...] = (
    "malformed",
    "ambiguous",
    "refuted",
    "missing",
    "not-run",
    "supported",
    "out-of-scope",
)
USAGE = 4


class Finding(Frozen):
    """One fault of the evidence. `code` is stable; `where` is a file, then a colon and a key if needed."""

    code: Code
    where: str
    expected: str
    got: str


class PlanIdentity(Frozen):
    """The plan the bundle says it ran, and what of it the caller anchored from outside.

    `sha256` is of plan.yaml, `lock` of plan.lock. `identity` is the plan's; `claims` the ledger's, which only
    the lock's digest anchors.
    """

    sha256: Sha256 | None
    identity: Literal["anchored", "self-declared"]
    lock: Sha256 | None
    claims: Literal["anchored", "self-declared"]


class Decision(Frozen):
    """What one predicate of a claim gave."""

    part: Literal["delivered", "outcome", "control", "known-bad", "findings"]
    predicate: str
    verdict: Verdict
    reason: str


class ClaimVerdict(Frozen):
    """A claim with its verdict. `evidence` lists the records it rests on."""

    id: str
    verdict: Verdict
    statement: str
    scope: str
    assumptions: tuple[str, ...]
    in_simulation: Literal["measured", "follows-from-model"]
    evidence: tuple[str, ...]
    decided_by: tuple[Decision, ...]


class CheckResult(Frozen):
    """A check that ran (`findings` counts what it found) or did not (`reason` says why)."""

    name: str
    says: str
    findings: Count
    reason: str | None


class Report(Frozen):
    """The verifier's whole answer: one JSON object."""

    schema_version: Literal[1]
    verdict: Verdict
    engine: str | None
    evidence: str | None
    level: Level
    plan: PlanIdentity
    claims: tuple[ClaimVerdict, ...]
    non_claims: tuple[str, ...]
    findings: tuple[Finding, ...]
    checked: tuple[CheckResult, ...]
    not_checked: tuple[CheckResult, ...]
