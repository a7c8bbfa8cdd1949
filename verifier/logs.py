"""The two files of many lines, read as streams: the manifest and the attempts log."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from pydantic import ConfigDict, TypeAdapter

from ledger.bundle import (
    ATTEMPTS,
    MANIFEST,
    Attempt,
    AttemptEnded,
    AttemptStarted,
    LogResumed,
    ManifestLine,
)
from ledger.canonical import NO_DIGEST, sha256
from verifier.bundle import AttemptLine, Ended, Event, Listed, Log, Resumed, Started
from verifier.evidence import Evidence, EvidenceError, lines
from verifier.found import Found, several
from verifier.layout import MAX_FILES, MAX_LINE
from verifier.library import Library, read_json, unreadable
from verifier.lines import plain_attempt, plain_listed
from verifier.store.mostly import Mostly
from verifier.store.rows import Rows
from verifier.store.table import Table
from verifier.unread import MAX_FAULTS

_ATTEMPT: TypeAdapter[AttemptStarted | AttemptEnded | LogResumed] = TypeAdapter(
    Attempt, config=ConfigDict(defer_build=True)
)
T = TypeVar("T")
#: A line typed, None if it is not one; what is wrong with it.
Line = tuple[T | None, tuple[Found, ...]]


def read_manifest(evidence: Evidence, library: Library, unread: list[Found]) -> Mostly[Listed]:
    """The manifest's lines by path; what is wrong with a line or with their order is appended to `unread`."""
    found: Mostly[Listed] = Mostly(tuple, Listed._make)
    last = ""
    for number, line in _lines(evidence, MANIFEST, library, unread, _manifest_line):
        if line is None:
            continue
        path, listed = line
        twin = found.twin(path)
        if path <= last or (twin is not None and twin != path):
            what = f"a path after {last}" if path <= last else f"no twin of {twin} that differs in case only"
            unread.append(Found(code="V106", file=MANIFEST, key=str(number), expected=what, got=path))
            if len(unread) > MAX_FAULTS:
                break
        last = max(last, path)
        found.add(path, listed)
    found.seal()
    return found


def read_attempts(evidence: Evidence, library: Library, unread: list[Found]) -> Log | None:
    """The readable lines of the attempts log, and where its chain breaks; None if there is no log."""
    entry = evidence.entries.get(ATTEMPTS)
    if entry is None or entry.kind != "file":
        return None
    breaks: list[tuple[int, str, str]] = []
    started, ended = Table(), Table()

    def events() -> Iterator[AttemptLine]:
        before, place = NO_DIGEST, 0
        for number, line in _lines(evidence, ATTEMPTS, library, unread, partial(_attempt_line, library)):
            if line is None:
                continue
            digest, previous, event = line
            if previous != before:
                more = len(breaks) >= MAX_FAULTS  # counted from there on, the last one as often as it takes
                breaks.append(breaks[-1] if more else (number, before, previous))
            before = digest
            place += 1
            if isinstance(event, Started):
                started.first(event.attempt, place)
            elif isinstance(event, Ended):
                ended.first(event.attempt, place)
            yield AttemptLine(number, event)

    rows = Rows(events(), _packed, _unpacked)
    return Log(lines=rows, breaks=tuple(breaks), started=started, ended=ended)


def _packed(line: AttemptLine) -> object:
    return (line.number, *line.event)


def _unpacked(row: tuple[Any, ...]) -> AttemptLine:
    """The kinds of events have different numbers of fields."""
    number, *event = row
    if len(event) == 4:
        return AttemptLine(number, Started._make(event))
    return AttemptLine(number, Ended._make(event) if len(event) == 7 else Resumed._make(event))


def _manifest_line(data: bytes) -> Line[tuple[str, Listed]]:
    if (plain := plain_listed(data)) is not None:
        return plain, ()
    line, found = read_json(data[:-1], MANIFEST, ManifestLine.model_validate_json)
    return (None, found) if line is None else ((line.path, Listed(line.size, line.sha256)), found)


def _attempt_line(library: Library, data: bytes) -> Line[tuple[str, str, Event]]:
    """An event with the digest of its line and the one that it holds of the line before."""
    if (plain := plain_attempt(data)) is not None:
        return (sha256(data[:-1]), *plain), ()
    line, found = read_json(data[:-1], ATTEMPTS, _ATTEMPT.validate_json)
    if line is None:
        return None, found
    return (sha256(data[:-1]), line.previous, _event(line, library)), found


def _event(line: AttemptStarted | AttemptEnded | LogResumed, library: Library) -> Event:
    same = library.same
    if isinstance(line, AttemptStarted):
        slot = (same(line.phase), same(line.cell), same(line.history), line.replicate)
        return Started(line.attempt, slot, line.nonce, line.time_us)
    if isinstance(line, AttemptEnded):
        outcome, reason = same(line.outcome), same(line.reason)
        return Ended(line.attempt, outcome, reason, line.exit_code, line.signal, line.record, line.time_us)
    return Resumed(line.time_us)


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
    return read(data)
