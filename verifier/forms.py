"""The report in the forms that CI systems read: JUnit XML, and SARIF 2.1.0."""

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote
from xml.sax.saxutils import escape, quoteattr

from ledger.verdict import ClaimVerdict, Finding, Report
from verifier.codes import CODES
from verifier.report import Checked

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
#: What a verdict is in SARIF: evidence that is not there warns, all else is an error.
_LEVEL = {"missing": "warning", "not-run": "warning", "out-of-scope": "note"}


def junit(checked: Checked) -> str:
    """One test case per claim and one per finding; what was not judged is skipped."""
    report = checked.report
    cases = [line for claim in report.claims for line in _claim(claim)]
    cases += [line for finding in report.findings for line in _finding(finding)]
    tests = len(report.claims) + len(report.findings)
    failed = sum(claim.verdict not in {"supported", "out-of-scope"} for claim in report.claims)
    failed += len(report.findings)
    skipped = sum(claim.verdict == "out-of-scope" for claim in report.claims)
    counts = f'tests="{tests}" failures="{failed}" errors="0" skipped="{skipped}"'
    name = f"verifier {report.level}{' SIMULATED' if report.evidence == 'simulated' else ''}"
    return "\n".join(
        [
            '<?xml version="1.0" encoding="UTF-8"?>',
            f"<testsuites {counts}>",
            f"<testsuite name={_attribute(name)} {counts}>",
            "<properties>",
            *(
                f"<property name={_attribute(key)} value={_attribute(value or 'unknown')}/>"
                for key, value in _properties(report).items()
            ),
            "</properties>",
            *cases,
            "</testsuite>",
            "</testsuites>",
            "",
        ]
    )


def _properties(report: Report) -> dict[str, str | None]:
    """What a verdict must not be read without: what made the evidence, and what of the plan is anchored."""
    return {
        "verdict": report.verdict,
        "level": report.level,
        "engine": report.engine,
        "evidence": report.evidence,
        "plan": report.plan.identity,
        "claims": report.plan.claims,
        "plan.sha256": report.plan.sha256,
        "lock.sha256": report.plan.lock,
    }


def _claim(claim: ClaimVerdict) -> Iterator[str]:
    yield f'<testcase classname="claims" name={_attribute(f"{claim.id} {claim.statement}")}>'
    reasons = "; ".join(f"{item.predicate}: {item.reason}" for item in claim.decided_by)
    if claim.verdict == "out-of-scope":
        yield f"<skipped message={_attribute(reasons)}/>"
    elif claim.verdict != "supported":
        yield _failure(claim.verdict, claim.verdict, reasons)
    yield "</testcase>"


def _finding(finding: Finding) -> Iterator[str]:
    yield f'<testcase classname="findings" name={_attribute(f"{finding.code} {finding.where}")}>'
    words = f"{CODES[finding.code].says}; expected {finding.expected}, got {finding.got}"
    yield _failure(finding.code, CODES[finding.code].says, words)
    yield "</testcase>"


def _failure(kind: str, message: str, words: str) -> str:
    return f"<failure type={_attribute(kind)} message={_attribute(message)}>{escape(words)}</failure>"


def _attribute(words: str) -> str:
    return quoteattr(words)  # a report's words hold no control characters (`found.plain`)


def sarif(checked: Checked) -> str:
    """One run: a rule per code that was found, a result per finding."""
    found = checked.report.findings
    codes = sorted({finding.code for finding in found})
    run: dict[str, Any] = {
        "tool": {
            "driver": {
                "name": "verifier",
                "rules": [{"id": code, "shortDescription": {"text": CODES[code].says}} for code in codes],
            }
        },
        "results": [_result(finding, codes) for finding in found],
        "properties": _properties(checked.report),
    }
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1)


def _result(finding: Finding, codes: list[str]) -> dict[str, Any]:
    file, _, key = finding.where.partition(":")
    return {
        "ruleId": finding.code,
        "ruleIndex": codes.index(finding.code),
        "level": _LEVEL.get(CODES[finding.code].verdict, "error"),
        "message": {"text": f"{key + ': ' if key else ''}expected {finding.expected}, got {finding.got}"},
        "locations": [
            {"physicalLocation": {"artifactLocation": {"uri": _uri(file)}}},
        ],
    }


def _uri(path: str) -> str:
    return quote(path)
