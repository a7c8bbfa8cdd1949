"""Making changed evidence fit again, as a forger would: attempts log, manifest, bundle.json.

Integrity alone must not be what catches a mutation, so everything around the changed files is redone.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from heapq import merge
from typing import Any

from ledger.bundle import ATTEMPTS, MANIFEST, SUMMARY
from ledger.canonical import CanonicalError, canonical, sha256
from verifier.bundle import Bundle
from verifier.evidence import Evidence, EvidenceError, OverlayEvidence, Written, lines
from verifier.kept import MODELS
from verifier.layout import MAX_LINE, address_of, kind_of, limit_of
from verifier.store.table import Seen


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
    files: dict[str, bytes | Written] = dict(changed)
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
    try:
        files[ATTEMPTS] = Written(_attempts(evidence, digests))
    except EvidenceError as fault:
        raise MutationError(f"{ATTEMPTS} cannot be read: {fault}") from fault
    counts: Counter[str] = Counter()
    manifest = Written(_manifest(bundle, files, removed, counts))
    files[MANIFEST] = manifest
    files[SUMMARY] = _summary(evidence, manifest.sha256, counts)
    return OverlayEvidence(evidence, changed=files, removed=removed)


def _cited(bundle: Bundle, changed: Mapping[str, bytes]) -> Seen:
    """The alignments and captures that the records name after the change."""
    cited = Seen(
        address
        for facts in (bundle.kinds if len(changed) < MODELS else bundle.facts)
        if facts.path not in changed
        for address in (facts.alignment, facts.capture)
    )
    for path, data in changed.items():
        if kind_of(path) == "record":
            record = json.loads(data)
            cited.add(record["treatment"]["alignment"]["sha256"])
            cited.add(record["capture"])
    return cited


def _attempts(evidence: Evidence, digests: Mapping[str, str]) -> Iterator[bytes]:
    """The attempts log with the records' digests replaced and the chain redone from there on."""
    renamed = {f'"record":"{old}"'.encode(): f'"record":"{new}"'.encode() for old, new in digests.items()}

    def pairs() -> Iterator[tuple[bytes, bytes]]:
        for line in lines(evidence, ATTEMPTS, MAX_LINE):
            mine = line
            for old, new in renamed.items():
                mine = mine.replace(old, new)
            yield line, mine

    return linked(pairs())


def linked(pairs: Iterable[tuple[bytes, bytes]]) -> Iterator[bytes]:
    """A log's lines, given as old and new, each holding the digest of the one before where its old one did.

    By text: in canonical JSON a key followed by its digest cannot be part of a longer value.
    """
    before, after = b"", b""
    for old, new in pairs:
        line = new.replace(_previous(before), _previous(after)) if before != after else new
        yield line
        before, after = old, line


def _previous(line: bytes) -> bytes:
    digest = sha256(line.removesuffix(b"\n"))
    return f'"previous":"{digest}"'.encode()


def _manifest(
    bundle: Bundle, files: Mapping[str, bytes | Written], removed: frozenset[str], counts: Counter[str]
) -> Iterator[bytes]:
    """The manifest of the changed bundle; what it lists is counted by kind."""
    listed = bundle.manifest.lines
    new = sorted(path for path in files if path not in listed)
    for path in merge(listed.ascending(), new):
        if path in removed:
            continue
        if (data := files.get(path)) is None:
            size, digest = listed[path]
        elif isinstance(data, Written):
            size, digest = data.size, data.sha256
        else:
            size, digest = len(data), sha256(data)
        counts["files"] += 1
        counts[f"{kind_of(path)}s"] += 1
        # written out instead of through `canonical`: paths, digests and sizes need no escapes
        yield f'{{"path":"{path}","sha256":"{digest}","size":{size}}}\n'.encode()


def _summary(evidence: Evidence, files: str, counts: Mapping[str, int]) -> bytes:
    summary = read_json(evidence, SUMMARY)
    try:
        summary["files"] = files
        summary["counts"] |= {name: counts[name] for name in ("files", "records", "alignments", "objects")}
        return canonical(summary)
    except (KeyError, TypeError) as fault:
        raise MutationError(f"{SUMMARY} has no counts to redo") from fault
    except CanonicalError as fault:  # NaN, a lone surrogate, 2^53: read_json takes them, no bundle may
        raise MutationError(f"{SUMMARY} cannot be redone: it {fault}") from fault
