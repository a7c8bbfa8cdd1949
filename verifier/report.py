"""The verifier's whole answer: one pass, the mutations, the claims, as a ledger.verdict.Report."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ledger.bundle import ATTEMPTS, MANIFEST, SUMMARY
from ledger.claim import Level
from ledger.verdict import EXIT_CODES, CheckResult, ClaimVerdict, Finding, PlanIdentity, Report, Verdict
from verifier.assess import Assessment, assess, judge_all
from verifier.codes import CODES
from verifier.evidence import Evidence
from verifier.found import Found, plain
from verifier.judge import LEVELS, Judged, mutation_found, sunk_by, worst
from verifier.layout import FEW_ENOUGH, kind_of
from verifier.library import Library
from verifier.opening import Given, NothingHereError, opened
from verifier.trials import MutationTrials
from verifier.unchecked import unchecked

if TYPE_CHECKING:
    from verifier.reexecute import Reexecuted

#: What lies in a folder only while a runner works in it.
_OF_A_RUNNER = frozenset({"staging", "runner.lock"})
#: What the report calls its word on who signed, and that word where a key decided it (`verifier.stated`).
SIGNATURE, SIGNED = "signature", "signed by the key given"


@dataclass(frozen=True, kw_only=True, slots=True)
class Checked:
    """A report, and per finding in it the claims that it sinks."""

    report: Report
    sinks: dict[Finding, tuple[str, ...]]

    @property
    def exit_code(self) -> int:
        """0 supported, 1 refuted, 2 malformed or ambiguous, 3 missing or not run."""
        return EXIT_CODES[self.report.verdict]


def check(path: Path, *, level: Level, anchor: str | None, key: bytes | None = None) -> Checked:
    """Verify the bundle in a folder or an archive. Bad evidence never raises.

    `anchor`: the sha256 that its plan must have. `key`: PEM of the public key that must have signed the
    release; raises ValueError if it is none.
    """
    try:
        with opened(path, key=key) as given:
            return check_evidence(given.evidence, level=level, anchor=anchor, around=given)
    except NothingHereError as fault:
        wanted = "a bundle: a folder, a .zip or a .tar.gz"
        item = Found(code="V100", file=".", expected=wanted, got=str(fault))
        return _nothing_to_check(level, (item,))


def check_evidence(
    evidence: Evidence,
    *,
    level: Level,
    anchor: str | None,
    library: Library | None = None,
    around: Given | None = None,
) -> Checked:
    """Verify a bundle wherever it lies. `library`: what was parsed before, for bundles that share files."""
    if around is not None and not evidence.entries:
        return _nothing_to_check(level, around.findings)
    if evidence.overfull:
        many = Found(code="V110", file=".", expected=FEW_ENOUGH, got="more")
        return _nothing_to_check(level, (*(around.findings if around else ()), many))
    if (unfinished := _unfinished(evidence, around)) is not None:
        return _nothing_to_check(level, (unfinished,))
    library = Library() if library is None else library
    base = assess(evidence, library, level=level, anchor=anchor)
    if around is not None:
        base = replace(base, found=(*around.findings, *base.found))
    again = _reexecuted(base) if level == "reexecute" else None
    if again is not None:
        base = replace(base, found=(*base.found, *again.findings))
    trials = MutationTrials(base, library, level=level)
    judged = judge_all(base, level=level, trials=trials)
    tried = (*_trial_findings(base, trials), *(item for one in judged for item in one.found))
    # what could not be made from a bundle with findings follows from them, and is listed as not checked
    found = (*base.found, *(item for item in tried if item.code != "V904" or not base.found))
    checked = [*_checked(base, found, trials), *_signature(around, checked=True)]
    rest = [*_not_checked(base, level, judged, trials), *_signature(around, checked=False)]
    checked += _again(again, checked=True)
    rest += _again(again, checked=False)
    return _report(base, level, found, judged, (tuple(checked), tuple(rest)))


def _reexecuted(base: Assessment) -> "Reexecuted":
    from verifier.reexecute import reexecute  # noqa: PLC0415 - needed at this level alone

    return reexecute(base.bundle.evidence, already=frozenset(item.file for item in base.found))


def _signature(around: Given | None, *, checked: bool) -> tuple[CheckResult, ...]:
    """Who signed, in words; it counts as checked only where a key decided it."""
    if around is None:
        return ()
    findings = sum(item.code in {"V123", "V124"} for item in around.findings)
    decided = bool(findings) or around.signature == SIGNED
    if decided != checked:
        return ()
    says = "the signature of the release"
    return (CheckResult(name=SIGNATURE, says=says, findings=findings, reason=around.signature),)


def _again(again: "Reexecuted | None", *, checked: bool) -> tuple[CheckResult, ...]:
    """What re-execution decided, with its notes; or what it left open, and why."""
    if again is None:
        return ()
    if checked:
        counts = Counter(item.code for item in again.findings)
        return (
            *(
                CheckResult(name=code, says=CODES[code].says, findings=counts[code], reason=None)
                for code in again.checked
            ),
            *again.notes,
        )
    return tuple(
        CheckResult(name=code, says=CODES[code].says, findings=0, reason=reason)
        for code, reason in again.not_checked.items()
    )


def _trial_findings(base: Assessment, trials: MutationTrials) -> tuple[Found, ...]:
    """V902 and V904 of the declared mutations, whichever claims cite them."""
    ledger = base.bundle.documents.ledger
    if ledger is None:
        return ()
    by_id = {mutation.id: mutation for mutation in ledger.mutations}
    results = ((by_id[name], outcome) for name, outcome in trials.tried.items())
    made = (mutation_found(mutation, outcome, ledger.claims) for mutation, outcome in results)
    return tuple(item for item in made if item is not None)


def _report(
    base: Assessment,
    level: Level,
    found: Sequence[Found],
    judged: Sequence[Judged],
    results: tuple[tuple[CheckResult, ...], tuple[CheckResult, ...]],
) -> Checked:
    documents = base.bundle.documents
    verdicts: list[Verdict] = [CODES[item.code].verdict for item in found]
    verdicts += [one.verdict for one in judged if one.verdict != "out-of-scope"]
    source = documents.summary or documents.build
    report = Report(
        schema_version=1,
        verdict=worst(verdicts),
        engine=source.engine if source else None,
        evidence=source.evidence if source else None,
        level=level,
        plan=_identity(base),
        claims=tuple(_claim(one) for one in judged),
        non_claims=documents.ledger.non_claims if documents.ledger else (),
        findings=tuple(item.finding() for item in found),
        checked=results[0],
        not_checked=results[1],
    )
    return Checked(report=report, sinks=_sinks(base, found))


def _identity(base: Assessment) -> PlanIdentity:
    """What the anchor holds: the lock names plan and ledger by digest, the plan its ledger by name alone."""
    plan, lock = (base.bundle.digests.get(name) for name in ("plan.yaml", "plan.lock"))
    anchor = base.bundle.anchor
    by_lock = anchor is not None and anchor == lock
    return PlanIdentity(
        sha256=plan,
        identity="anchored" if by_lock or (anchor is not None and anchor == plan) else "self-declared",
        lock=lock,
        claims="anchored" if by_lock else "self-declared",
    )


def _claim(one: Judged) -> ClaimVerdict:
    claim = one.claim
    told = ClaimVerdict(
        id=claim.id,
        verdict=one.verdict,
        statement=plain(claim.statement.strip()),
        scope=plain(claim.scope.strip()),
        assumptions=claim.assumptions,
        in_simulation=claim.in_simulation,
        evidence=one.evidence if isinstance(one.evidence, tuple) else (),
        decided_by=one.decisions,
    )
    if isinstance(one.evidence, tuple):
        return told
    return told.model_copy(update={"evidence": one.evidence})  # which is not validated: the list stays one


def _checked(base: Assessment, found: Sequence[Found], trials: MutationTrials) -> tuple[CheckResult, ...]:
    counts = Counter(item.code for item in found)
    ran = [code for code in base.ran if code not in base.skipped]
    # what re-execution and the signature decided is told by those themselves
    ran += sorted(
        code for code in counts if code not in base.ran and not code.startswith(("V85", "V123", "V124"))
    )
    results = [
        CheckResult(name=code, says=CODES[code].says, findings=counts[code], reason=None) for code in ran
    ]
    results += (
        CheckResult(
            name=name,
            says="mutation of this evidence",
            findings=int(outcome.verdict != "supported"),
            reason=outcome.reason,
        )
        for name, outcome in trials.tried.items()
        if outcome.verdict != "missing"
    )
    return tuple(results)


def _not_checked(
    base: Assessment, level: Level, judged: Sequence[Judged], trials: MutationTrials
) -> tuple[CheckResult, ...]:
    """Claims and checks of higher levels, checks that lacked something, and fields that nothing looks at."""
    results = [
        CheckResult(name=one.claim.id, says=plain(one.claim.statement.strip()), findings=0, reason=d.reason)
        for one in judged
        for d in one.decisions
        if one.verdict == "out-of-scope"
    ]
    results += (
        CheckResult(name=code, says=CODES[code].says, findings=0, reason=reason)
        for code, reason in base.skipped.items()
    )
    results += (
        CheckResult(name=name, says="mutation of this evidence", findings=0, reason=outcome.reason)
        for name, outcome in trials.tried.items()
        if outcome.verdict == "missing"
    )
    if (anchor := base.bundle.anchor) is not None and anchor == base.bundle.digests.get("plan.yaml"):
        results.append(
            CheckResult(
                name="ledger.yaml",
                says="whether the claims are those frozen with the plan",
                findings=0,
                reason="a plan's digest says nothing of its ledger: anchor the bundle by its lock's",
            )
        )
    results += (
        CheckResult(name=code.code, says=code.says, findings=0, reason=f"needs --level {code.level}")
        for code in CODES.values()
        if LEVELS.index(code.level) > LEVELS.index(level)
    )
    return (*results, *unchecked(level))


def _sinks(base: Assessment, found: Sequence[Found]) -> dict[Finding, tuple[str, ...]]:
    ledger = base.bundle.documents.ledger
    claims = ledger.claims if ledger else ()
    return {
        item.finding(): tuple(claim.id for claim in claims if sunk_by(claim, (item,), base.bundle))
        for item in found
    }


def _unfinished(evidence: Evidence, around: Given | None) -> Found | None:
    """V112: a folder in which a run began: plan and log are there, the summary that ends it is not.

    It is no bundle yet, so that nothing in it is right or wrong as one. bundle.json is written last.
    """
    there = evidence.entries
    begun = SUMMARY not in there and {"plan.lock", ATTEMPTS} <= there.keys()
    if not begun or (MANIFEST in there and not there.keys() & _OF_A_RUNNER):
        return None
    records = sum(kind_of(path) == "record" for path in there)
    where = around.place if around is not None and around.place else "DIR"
    wanted = f"a finished bundle; complete it with mechanism run PLAN --out {where} --resume"
    return Found(code="V112", file=".", expected=wanted, got=f"an unfinished run; records so far: {records}")


def _nothing_to_check(level: Level, found: Sequence[Found]) -> Checked:
    codes = tuple(dict.fromkeys(item.code for item in found))
    counts = Counter(item.code for item in found)
    report = Report(
        schema_version=1,
        verdict=worst([CODES[code].verdict for code in codes]),
        engine=None,
        evidence=None,
        level=level,
        plan=PlanIdentity(sha256=None, identity="self-declared", lock=None, claims="self-declared"),
        claims=(),
        non_claims=(),
        findings=tuple(item.finding() for item in found),
        checked=tuple(
            CheckResult(name=code, says=CODES[code].says, findings=counts[code], reason=None)
            for code in codes
        ),
        not_checked=tuple(
            CheckResult(name=code.code, says=code.says, findings=0, reason="there is no bundle to be checked")
            for code in CODES.values()
            if code.code not in codes
        ),
    )
    return Checked(report=report, sinks={item.finding(): () for item in found})
