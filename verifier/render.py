"""The report as text for a terminal: verdict first, then claims, findings, non-claims, the unchecked."""

from collections.abc import Iterator
from textwrap import fill

from ledger.verdict import ClaimVerdict, Finding, Report
from verifier.codes import CODES
from verifier.report import Checked

_WIDTH = 100
_MOST = 200  # findings printed; --format json has them all


def text(checked: Checked) -> str:
    """The whole report as lines of text."""
    return "\n".join(_lines(checked)) + "\n"


def _lines(checked: Checked) -> Iterator[str]:
    report = checked.report
    yield from _head(report)
    for claim in report.claims:
        yield from _claim(claim)
    yield from _findings(checked)
    if report.non_claims:
        yield "\nNot claimed, whatever the verdicts:"
        yield from (_wrapped(item, "  - ") for item in report.non_claims)
    yield from _coverage(report)


def _head(report: Report) -> Iterator[str]:
    yield f"verdict: {report.verdict.upper()}   (level {report.level})"
    if report.evidence == "simulated":
        yield "evidence: SIMULATED - recomputed arithmetic of the kernel on a CPU; no GPU took part"
    elif report.evidence is not None:
        yield f"evidence: {report.evidence}, engine {report.engine}"
    if report.plan.sha256 is not None:
        yield f"plan: {report.plan.sha256} ({report.plan.identity})"
        if report.plan.identity == "self-declared":
            yield "      The bundle itself says which plan it ran: anchor it with --expect-plan or --plan."


def _claim(claim: ClaimVerdict) -> Iterator[str]:
    yield ""
    yield _wrapped(f"{claim.id}  {claim.verdict.upper()}  {claim.statement}", "", "     ")
    yield _wrapped(f"scope: {claim.scope}", "     ")
    if claim.assumptions:
        yield f"     assumes: {', '.join(claim.assumptions)}"
    if claim.in_simulation == "follows-from-model":
        yield "     follows from the model: a simulator cannot help but show this"
    for decision in claim.decided_by:
        yield _wrapped(f"{decision.part}: {decision.verdict}: {decision.predicate}", "     - ", "       ")
        yield _wrapped(decision.reason, "       ")


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


def _coverage(report: Report) -> Iterator[str]:
    yield f"\nChecked: {len(report.checked)} checks and mutations, {_failed(report)} of them with findings"
    yield f"Not checked: {len(report.not_checked)}"
    for item in report.not_checked:
        yield _wrapped(f"{item.name}: {item.reason}", "  - ", "    ")


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
