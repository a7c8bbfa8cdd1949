"""The first finding that a change brings, by the checks that look at the changed files themselves.

The same checks as in a whole pass, on the bundle as it was but for these files: what they find, a whole pass
finds. What they do not find is left to one.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain

from ledger.bundle import DOCUMENTS, MANIFEST, SUMMARY
from ledger.claim import Ledger
from ledger.plan import Plan
from ledger.record import Record
from verifier.assess import record_findings
from verifier.bundle import Bundle
from verifier.checks import integrity
from verifier.evidence import OverlayEvidence
from verifier.found import Found
from verifier.layout import kind_of
from verifier.library import Library

_YAML: dict[str, type[Plan | Ledger]] = {"plan.yaml": Plan, "ledger.yaml": Ledger}
_INTEGRITY = (integrity.listed_bytes, integrity.listed_files, integrity.unlisted_files)


def quick(
    bundle: Bundle, evidence: OverlayEvidence, library: Library, *, known: frozenset[Found]
) -> Found | None:
    """A new finding, or None if only a whole pass can tell."""
    changed = replace(bundle, evidence=evidence)
    found = chain(_listed(changed, evidence), _records(changed, evidence, library), _yaml(evidence, library))
    return next((item for item in found if item not in known), None)


def _listed(changed: Bundle, evidence: OverlayEvidence) -> Iterator[Found]:
    """As long as the manifest is as it was."""
    paths = {*evidence.changed, *(changed.manifest.lines.keys() - evidence.entries.keys())}
    if not paths & {MANIFEST, SUMMARY}:
        for check in _INTEGRITY:
            yield from check.run(changed)


def _records(changed: Bundle, evidence: OverlayEvidence, library: Library) -> Iterator[Found]:
    """As long as the documents that records are held against are as they were."""
    if set(evidence.changed) & set(DOCUMENTS) - {"attempts.jsonl"}:
        return
    for path in evidence.changed:
        if kind_of(path) == "record":
            unread: list[Found] = []
            record = library.json(evidence, path, Record, unread)
            yield from unread
            if record is not None and record.path == path:
                yield from record_findings(changed, record)


def _yaml(evidence: OverlayEvidence, library: Library) -> Iterator[Found]:
    for path in evidence.changed:
        if path in _YAML:
            unread: list[Found] = []
            library.yaml(evidence, path, _YAML[path], unread)
            yield from unread
