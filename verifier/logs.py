"""The two files of many lines, read as streams: the manifest and the attempts log."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TypeVar

from pydantic import ConfigDict, TypeAdapter

from ledger.bundle import ATTEMPTS, MANIFEST, Attempt, ManifestLine
from ledger.canonical import sha256
from verifier.bundle import AttemptLine, Event
from verifier.evidence import Evidence, EvidenceError, lines
from verifier.found import Found, several
from verifier.layout import MAX_FILES, MAX_LINE
from verifier.library import Library, read_json, unreadable

_ATTEMPT: TypeAdapter[Event] = TypeAdapter(Attempt, config=ConfigDict(defer_build=True))
T = TypeVar("T")


def read_manifest(evidence: Evidence, library: Library, unread: list[Found]) -> Mapping[str, ManifestLine]:
    """The manifest's lines by path; what is wrong with a line or with their order is appended to `unread`."""
    found: dict[str, ManifestLine] = {}
    folded: dict[str, str] = {}
    last = ""
    for number, line in _lines(evidence, MANIFEST, library, unread, ManifestLine.model_validate_json):
        if line is None:
            continue
        twin = folded.setdefault(line.path.lower(), line.path)
        if line.path <= last or twin != line.path:
            what = (
                f"a path after {last}"
                if line.path <= last
                else f"no twin of {twin} that differs in case only"
            )
            unread.append(Found(code="V106", file=MANIFEST, key=str(number), expected=what, got=line.path))
        last = max(last, line.path)
        found.setdefault(line.path, line)
    return found


def read_attempts(
    evidence: Evidence, library: Library, unread: list[Found]
) -> tuple[AttemptLine, ...] | None:
    """The readable lines of the attempts log with their digests; None if there is no log."""
    entry = evidence.entries.get(ATTEMPTS)
    if entry is None or entry.kind != "file":
        return None
    found: list[AttemptLine] = []
    digests: list[str] = []
    for number, event in _lines(evidence, ATTEMPTS, library, unread, _ATTEMPT.validate_json, digests):
        if event is not None:
            found.append(AttemptLine(number=number, digest=digests[-1], event=event))
    return tuple(found)


def _lines(
    evidence: Evidence,
    path: str,
    library: Library,
    unread: list[Found],
    validate: Callable[[bytes], T],
    digests: list[str] | None = None,
) -> Iterator[tuple[int, T | None]]:
    """Every line of a file, typed, None where it is not one; digests of the lines on the side."""
    entry = evidence.entries.get(path)
    if entry is None or entry.kind != "file":
        return
    code = {MANIFEST: "V105"}.get(path)
    try:
        for number, data in enumerate(lines(evidence, path, MAX_LINE), start=1):
            if number > 2 * MAX_FILES:
                unread.append(
                    Found(code="V110", file=path, expected=f"at most {2 * MAX_FILES} lines", got="more")
                )
                return
            if digests is not None:
                digests[:] = [sha256(data.removesuffix(b"\n"))]
            value, found = library.once((path, data), partial(_line, data, path, validate))
            unread += (
                replace(item, code=code or item.code, key=several([number, *filter(None, [item.key])]))
                for item in found
            )
            yield number, value
    except EvidenceError as fault:
        unread.append(unreadable(path, fault, MAX_LINE))


def _line(data: bytes, path: str, validate: Callable[[bytes], T]) -> tuple[T | None, tuple[Found, ...]]:
    if not data.endswith(b"\n"):
        return None, (Found(code="V202", file=path, expected="a line that ends in LF", got="a torn one"),)
    return read_json(data[:-1], path, validate)
