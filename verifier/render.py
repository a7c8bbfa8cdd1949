"""The report as text for a terminal: verdict first, then claims, findings, non-claims, the unchecked."""

from collections.abc import Iterator, Sequence
from textwrap import fill

from ledger.verdict import CheckResult, ClaimVerdict, Decision, Finding, Report
from verifier.codes import CODES
from verifier.report import SIGNATURE, Checked

_WIDTH = 100
_PASSES = ("supported", "out-of-scope")
_DECISIONS = 3  # reasons printed per claim that is not supported
#: What is said, below the level that computes anew, of the captured bits; by the kind of evidence.
_BITS_UNKNOWN = "as captured, not recomputed at this level"
_BITS: dict[str | None, str] = {
    "simulated": f"{_BITS_UNKNOWN}; --level reexecute recomputes them",
    "gpu": f"{_BITS_UNKNOWN}; --level reexecute says whether the simulated model agrees",
}
_ANCHOR = "anchor it with --plan FILE, or with --expect-plan and the sha256 of the lock that you froze"
_MOST = 200  # findings printed; --format json has them all


def text(checked: Checked, *, verbose: bool = False) -> str:
    """The whole report as lines of text; `verbose` adds what decided each claim and what went unchecked."""
    return "\n".join(_lines(checked, verbose=verbose)) + "\n"


def _lines(checked: Checked, *, verbose: bool) -> Iterator[str]:
    report = checked.report
    yield from _head(report)
    scopes = {claim.scope for claim in report.claims}
    if len(scopes) == 1 and not verbose:  # said once: every claim of a plan tends to have the plan's scope
        yield _wrapped(f"scope: {scopes.pop()}", "", "       ")
    if report.claims:
        yield ""
    everywhere = () if verbose else _of_every_claim(report.claims)
    if everywhere:
        yield "every claim judged here falls to findings that are listed below:"
        yield from (f"     - {decision.verdict}: {decision.predicate}" for decision in everywhere)
    for claim in report.claims:
        yield from _claim(claim, everywhere, verbose=verbose, scope=verbose or len(scopes) > 1)
    yield from _findings(checked)
    if report.non_claims:
        yield "\nNot claimed, whatever the verdicts:"
        yield from (_wrapped(item, "  - ") for item in report.non_claims)
    yield from _coverage(report, verbose=verbose)


def _head(report: Report) -> Iterator[str]:
    yield f"verdict: {report.verdict.upper()}   (level {report.level})"
    if report.evidence == "simulated":
        yield "evidence: SIMULATED - recomputed arithmetic of the kernel on a CPU; no GPU took part"
    elif report.evidence is not None:
        yield f"evidence: {report.evidence}, engine {report.engine}"
    if report.level != "reexecute" and (report.claims or report.evidence is not None):
        yield f"bits: {_BITS.get(report.evidence, _BITS_UNKNOWN)}"
    if report.plan.sha256 is not None:
        yield from _plan(report)
    yield from (f"signature: {item.reason}" for item in report.checked if item.name == SIGNATURE)
    yield from (f"signature: {item.reason}" for item in report.not_checked if item.name == SIGNATURE)


def _plan(report: Report) -> Iterator[str]:
    """What of the plan is anchored, and the digest that anchors all of it: the lock's."""
    plan = report.plan
    if places := [item.where for item in report.findings if item.code == "V301"]:
        yield f"plan: {'its lock is ' if 'plan.lock' in places else ''}not the one that was expected"
    elif plan.claims == "anchored":
        yield "plan: anchored, and the claims with it"
    elif plan.identity == "anchored":
        yield "plan: anchored; claims: self-declared"
        yield _wrapped(f"A plan's digest says nothing of its claims: {_ANCHOR}.", "      ")
    else:
        yield "plan: self-declared, and the claims with it"
        yield _wrapped(f"The bundle itself says what it ran and claims: {_ANCHOR}.", "      ")
    if plan.lock is not None:
        yield f"lock: sha256 {plan.lock}"


def _of_every_claim(claims: Sequence[ClaimVerdict]) -> tuple[Decision, ...]:
    """The findings that sink every claim that is not out of scope, if these are several: said once."""
    sunk = [
        [decision for decision in claim.decided_by if decision.part == "findings"]
        for claim in claims
        if claim.verdict != "out-of-scope"
    ]
    if len(sunk) < 2:
        return ()
    return tuple(decision for decision in sunk[0] if all(decision in others for others in sunk))


def _claim(
    claim: ClaimVerdict, everywhere: Sequence[Decision], *, verbose: bool, scope: bool
) -> Iterator[str]:
    yield _wrapped(f"{claim.id}  {claim.verdict.upper()}  {claim.statement}", "", "     ")
    if scope:
        yield _wrapped(f"scope: {claim.scope}", "     ")
    notes = [f"assumes {', '.join(claim.assumptions)}"] if claim.assumptions else []
    if claim.in_simulation == "follows-from-model":
        notes.append("follows from the model: a simulator cannot help but show this")
    if notes:
        yield _wrapped("; ".join(notes), "     ")
    if verbose:
        for decision in claim.decided_by:
            yield _wrapped(f"{decision.part}: {decision.verdict}: {decision.predicate}", "     - ", "       ")
            yield _wrapped(decision.reason, "       ")
        yield ""
        return
    against = [
        decision
        for decision in claim.decided_by
        if decision.verdict not in _PASSES and decision not in everywhere
    ]
    for decision in against[:_DECISIONS]:
        why = (
            decision.predicate if decision.part == "findings" else f"{decision.predicate}: {decision.reason}"
        )
        yield _wrapped(f"{decision.part}: {decision.verdict}: {why}", "     - ", "       ")
    if len(against) > _DECISIONS:
        yield f"     - and {len(against) - _DECISIONS} more; --verbose has them all"


def _findings(checked: Checked) -> Iterator[str]:
    found = checked.report.findings
    yield f"\nFindings: {len(found) or 'none'}"
    for finding in found[:_MOST]:
        yield from _finding(finding, checked.sinks.get(finding, ()))
    if len(found) > _MOST:
        yield f"  and {len(found) - _MOST} more; --format json lists all"


def _finding(finding: Finding, sinks: tuple[str, ...]) -> Iterator[str]:
    yield f"  {finding.code} {finding.where}"
    yield _wrapped(CODES[finding.code].says, "       ")
    yield _wrapped(f"expected {finding.expected}", "       ", "         ")
    yield _wrapped(f"got {finding.got}", "       ", "         ")
    if sinks:
        yield _wrapped(f"sinks {', '.join(sinks)} ({CODES[finding.code].verdict})", "       ")


def _coverage(report: Report, *, verbose: bool) -> Iterator[str]:
    yield f"\nChecked: {len(report.checked)} checks and mutations, {_failed(report)} of them with findings"
    told = report.not_checked if verbose else _claims_not_checked(report)
    rest = "" if verbose else "; --verbose lists them, with the reasons"
    yield f"Not checked: {len(report.not_checked)}{rest}"
    for item in told:
        yield _wrapped(f"{item.name}: {item.reason}", "  - ", "    ")


def _claims_not_checked(report: Report) -> list[CheckResult]:
    """A claim that was not judged is never left to --verbose."""
    claims = {claim.id for claim in report.claims}
    return [item for item in report.not_checked if item.name in claims]


def _failed(report: Report) -> int:
    return sum(item.findings > 0 for item in report.checked)


def _wrapped(words: str, first: str, rest: str | None = None) -> str:
    indent = " " * len(first) if rest is None else rest
    return fill(
        words,
        _WIDTH,
        initial_indent=first,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
