"""The two files of many lines, read as streams: the manifest and the attempts log."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
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
#: A line typed, None if it is not one; what is wrong with it.
Line = tuple[T | None, tuple[Found, ...]]


def read_manifest(evidence: Evidence, library: Library, unread: list[Found]) -> Mapping[str, ManifestLine]:
    """The manifest's lines by path; what is wrong with a line or with their order is appended to `unread`."""
    found: dict[str, ManifestLine] = {}
    folded: dict[str, str] = {}
    last = ""
    for number, line in _lines(evidence, MANIFEST, library, unread, _manifest_line):
        if line is None:
            continue
        path = line.path
        twin = folded.setdefault(path.lower(), path)
        if path <= last or twin != path:
            what = f"a path after {last}" if path <= last else f"no twin of {twin} that differs in case only"
            unread.append(Found(code="V106", file=MANIFEST, key=str(number), expected=what, got=path))
        last = max(last, path)
        found.setdefault(path, line)
    return found


def read_attempts(
    evidence: Evidence, library: Library, unread: list[Found]
) -> tuple[AttemptLine, ...] | None:
    """The readable lines of the attempts log with their digests; None if there is no log."""
    entry = evidence.entries.get(ATTEMPTS)
    if entry is None or entry.kind != "file":
        return None
    return tuple(
        AttemptLine(number=number, digest=read[0], event=read[1])
        for number, read in _lines(evidence, ATTEMPTS, library, unread, _attempt_line)
        if read is not None
    )


def _manifest_line(data: bytes) -> Line[ManifestLine]:
    return read_json(data, MANIFEST, ManifestLine.model_validate_json)


def _attempt_line(data: bytes) -> Line[tuple[str, Event]]:
    """An event with the digest of its line."""
    event, found = read_json(data, ATTEMPTS, _ATTEMPT.validate_json)
    return (None, found) if event is None else ((sha256(data), event), found)


def _lines(
    evidence: Evidence,
    path: str,
    library: Library,
    unread: list[Found],
    read: Callable[[bytes], Line[T]],
) -> Iterator[tuple[int, T | None]]:
    """Every line of a file, typed, None where it is not one."""
    entry = evidence.entries.get(path)
    if entry is None or entry.kind != "file":
        return
    code = {MANIFEST: "V105"}.get(path)
    shelf: dict[bytes, Line[T]] = library.shelf(path)
    try:
        for number, data in enumerate(lines(evidence, path, MAX_LINE), start=1):
            if number > 2 * MAX_FILES:
                most = f"at most {2 * MAX_FILES} lines"
                unread.append(Found(code="V110", file=path, expected=most, got="more"))
                return
            value, found = shelf.get(data) or library.shelve(shelf, data, _line(data, path, read))
            if found:
                unread += (
                    replace(item, code=code or item.code, key=several([number, *filter(None, [item.key])]))
                    for item in found
                )
            yield number, value
    except EvidenceError as fault:
        unread.append(unreadable(path, fault, MAX_LINE))


def _line(data: bytes, path: str, read: Callable[[bytes], Line[T]]) -> Line[T]:
    if not data.endswith(b"\n"):
        return None, (Found(code="V202", file=path, expected="a line that ends in LF", got="a torn one"),)
    return read(data[:-1])
