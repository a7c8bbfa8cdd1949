"""The forger of the sweep: log, manifest and summary are made to fit a change: integrity says nothing."""

import json
from typing import Any

from ledger.bundle import ATTEMPTS, MANIFEST, SUMMARY
from ledger.canonical import canonical, sha256
from verifier.bundle import Bundle
from verifier.evidence import OverlayEvidence
from verifier.forger import linked
from verifier.layout import kind_of, limit_of
from verifier.sweep.mutant import Mutant

_NAMED = {"plan": "plan.yaml", "lock": "plan.lock", "ledger": "ledger.yaml"}


def plain(bundle: Bundle, mutant: Mutant) -> OverlayEvidence:
    """The bundle with the change and nothing else."""
    return OverlayEvidence(bundle.evidence, changed=mutant.changed, removed=mutant.removed)


def forged(bundle: Bundle, mutant: Mutant) -> OverlayEvidence | None:
    """The bundle with the change and everything around it redone; None where there is nothing to redo.

    A record's digest in the log, the log's chain, manifest, digests and counts in bundle.json. What other
    documents say of the changed one is left: a forger who redoes plan, lock and records has made another
    bundle, which is what anchors are for.
    """
    files = dict(mutant.changed)
    if SUMMARY in files or SUMMARY in mutant.removed or MANIFEST in mutant.removed:
        return None
    if ATTEMPTS not in mutant.removed:
        files[ATTEMPTS] = _log(bundle, files)
    if MANIFEST not in files:
        files[MANIFEST] = _manifest(bundle, files, mutant.removed)
    files[SUMMARY] = _summary(bundle, files)
    return OverlayEvidence(bundle.evidence, changed=files, removed=mutant.removed)


def _log(bundle: Bundle, files: dict[str, bytes]) -> bytes:
    old = bundle.evidence.read(ATTEMPTS, limit_of(ATTEMPTS)).split(b"\n")
    if ATTEMPTS in files:
        new = files[ATTEMPTS].split(b"\n")
        return b"\n".join(linked(zip(old, new, strict=True))) if len(old) == len(new) else files[ATTEMPTS]
    digests = {
        bundle.evidence.digest(path): sha256(data)
        for path, data in files.items()
        if kind_of(path) == "record" and path in bundle.evidence.entries
    }
    named = {f'"record":"{a}"'.encode(): f'"record":"{b}"'.encode() for a, b in digests.items()}
    return b"\n".join(linked((line, _replaced(line, named)) for line in old))


def _replaced(line: bytes, named: dict[bytes, bytes]) -> bytes:
    """A line with at most one digest replaced: of two records that changed places, each once."""
    for old, new in named.items():
        if old in line:
            return line.replace(old, new)
    return line


def _manifest(bundle: Bundle, files: dict[str, bytes], removed: frozenset[str]) -> bytes:
    listed = {p: (line.size, line.sha256) for p, line in bundle.manifest.lines.items() if p not in removed}
    listed |= {path: (len(data), sha256(data)) for path, data in files.items()}
    return "".join(
        f'{{"path":"{path}","sha256":"{digest}","size":{size}}}\n'
        for path, (size, digest) in sorted(listed.items())
    ).encode()


def _summary(bundle: Bundle, files: dict[str, bytes]) -> bytes:
    summary: dict[str, Any] = json.loads(bundle.evidence.read(SUMMARY, limit_of(SUMMARY)))
    summary["files"] = sha256(files[MANIFEST])
    for key, path in _NAMED.items():
        if path in files:
            summary[key] = sha256(files[path])
    lines = files[MANIFEST].split(b"\n")[:-1]
    paths = [line.split(b'"path":"', 1)[-1].split(b'"', 1)[0].decode("utf-8", "replace") for line in lines]
    kinds = [kind_of(path) for path in paths]
    summary["counts"] |= {
        "files": len(lines),
        "records": kinds.count("record"),
        "alignments": kinds.count("alignment"),
        "objects": kinds.count("object"),
    }
    return canonical(summary)
