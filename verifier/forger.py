"""Making changed evidence fit again, as a forger would: attempts log, manifest, bundle.json.

Integrity alone must not be what catches a mutation, so everything around the changed files is redone.
"""

import json
from collections.abc import Mapping
from typing import Any

from ledger.bundle import ATTEMPTS, MANIFEST, SUMMARY
from ledger.canonical import canonical, sha256
from verifier.bundle import Bundle
from verifier.evidence import Evidence, EvidenceError, OverlayEvidence
from verifier.layout import address_of, kind_of, limit_of


class MutationError(Exception):
    """Bad evidence cannot be made from this bundle; the message says what it lacks."""


def read_json(evidence: Evidence, path: str) -> Any:
    """A JSON document as plain data, to be changed. Raises MutationError."""
    try:
        return json.loads(evidence.read(path, limit_of(path)))
    except (EvidenceError, ValueError, RecursionError) as fault:
        raise MutationError(f"{path} cannot be read: {fault}") from fault


def forge(bundle: Bundle, changed: Mapping[str, bytes]) -> OverlayEvidence:
    """The bundle with files changed or added, unused ones removed, and everything that names them redone.

    Raises MutationError if the log, the manifest or bundle.json is too broken to be redone.
    """
    evidence = bundle.evidence
    files = dict(changed)
    cited = _cited(bundle, changed)
    removed = frozenset(
        path
        for path in bundle.manifest.lines
        if (address := address_of(path)) is not None and address not in cited
    )
    digests = {
        evidence.digest(path): sha256(data)
        for path, data in changed.items()
        if kind_of(path) == "record" and path in evidence.entries
    }
    files[ATTEMPTS] = _attempts(evidence, digests)
    files[MANIFEST], lines = _manifest(bundle, files, removed)
    files[SUMMARY] = _summary(evidence, sha256(files[MANIFEST]), lines)
    return OverlayEvidence(evidence, changed=files, removed=removed)


def _cited(bundle: Bundle, changed: Mapping[str, bytes]) -> set[str]:
    """The alignments and captures that the records name after the change."""
    cited = {
        address
        for facts in bundle.facts
        if facts.path not in changed
        for address in (facts.alignment, facts.capture)
    }
    for path, data in changed.items():
        if kind_of(path) == "record":
            record = json.loads(data)
            cited |= {record["treatment"]["alignment"]["sha256"], record["capture"]}
    return cited


def _attempts(evidence: Evidence, digests: Mapping[str, str]) -> bytes:
    """The attempts log with the records' digests replaced and the chain redone from there on."""
    try:
        lines = evidence.read(ATTEMPTS, limit_of(ATTEMPTS)).split(b"\n")
    except EvidenceError as fault:
        raise MutationError(f"{ATTEMPTS} cannot be read: {fault}") from fault
    renamed = {f'"record":"{old}"'.encode(): f'"record":"{new}"'.encode() for old, new in digests.items()}
    changed = []
    for line in lines:
        mine = line
        for old, new in renamed.items():
            mine = mine.replace(old, new)
        changed.append(mine)
    return b"\n".join(relinked(lines, changed))


def relinked(old: list[bytes], new: list[bytes]) -> list[bytes]:
    """The log's new lines, each holding the digest of the one before where its old one held the old one's.

    By text: in canonical JSON a key followed by its digest cannot be part of a longer value.
    """
    linked: list[bytes] = []
    for place, line in enumerate(new):
        before, after = (old[place - 1], linked[-1]) if place else (b"", b"")
        linked.append(line.replace(_previous(before), _previous(after)) if before != after else line)
    return linked


def _previous(line: bytes) -> bytes:
    return f'"previous":"{sha256(line)}"'.encode()


def _manifest(
    bundle: Bundle, files: Mapping[str, bytes], removed: frozenset[str]
) -> tuple[bytes, Mapping[str, int]]:
    """The manifest of the changed bundle, and the size of every file it lists."""
    listed = {
        path: (line.size, line.sha256) for path, line in bundle.manifest.lines.items() if path not in removed
    }
    listed |= {path: (len(data), sha256(data)) for path, data in files.items()}
    # written out instead of through `canonical`: paths, digests and sizes need no escapes
    data = "".join(
        f'{{"path":"{path}","sha256":"{digest}","size":{size}}}\n'
        for path, (size, digest) in sorted(listed.items())
    )
    return data.encode(), {path: size for path, (size, _) in listed.items()}


def _summary(evidence: Evidence, files: str, listed: Mapping[str, int]) -> bytes:
    summary = read_json(evidence, SUMMARY)
    kinds = [kind_of(path) for path in listed]
    try:
        summary["files"] = files
        summary["counts"] |= {
            "files": len(kinds),
            "records": kinds.count("record"),
            "alignments": kinds.count("alignment"),
            "objects": kinds.count("object"),
        }
    except (KeyError, TypeError) as fault:
        raise MutationError(f"{SUMMARY} has no counts to redo") from fault
    return canonical(summary)
