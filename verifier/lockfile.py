"""plan.lock with its processes in few words: a lock of a large plan is read one process at a time."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from ledger.lock import Lock, LockedCell
from verifier.arithmetic.cells import Planned
from verifier.evidence import Evidence, EvidenceError
from verifier.found import Found
from verifier.layout import MAX_BYTES, MAX_LINE, limit_of
from verifier.library import Library, read_json
from verifier.store.rows import Rows
from verifier.store.shared import Shared

PATH = "plan.lock"
#: Bytes from which on a lock is taken apart; below, it is one document like any other.
LARGE = 2**18
#: Bytes up to which a lock's faults are told, which takes all of it; and those that may follow its cells.
_WHOLE = MAX_BYTES["document"]

#: Canonical keys ascend, so a lock begins with its cells and a cell with its alignment. No text of JSON holds
#: a bare quote: these bytes stand between two cells and nowhere else.
_BEGIN, _BETWEEN, _END = b'{"cells":[', b'},{"alignment":', b'}],"fixture":'
_REPLICATE = re.compile(rb'"replicate":([1-9][0-9]{0,14}),')
_MOST_MODELS = 2048


class _FaultyError(Exception):
    """The lock cannot be taken apart."""


def read_lock(
    evidence: Evidence, library: Library, unread: list[Found]
) -> tuple[Lock | None, Sequence[Planned]]:
    """The lock and its processes; a large lock comes with its first process alone. None if there is none."""
    entry = evidence.entries.get(PATH)
    if entry is None or entry.kind != "file":
        return None, ()
    if entry.size >= LARGE and (taken := _taken_apart(evidence, library)) is not None:
        return taken
    if _WHOLE < entry.size <= limit_of(PATH):
        most = f"at most {_WHOLE} bytes of a lock that has faults"
        unread.append(Found(code="V110", file=PATH, expected=most, got=f"{entry.size} bytes"))
        return None, ()
    lock = library.json(evidence, PATH, Lock, unread)
    return lock, () if lock is None else library.once(("locked", id(lock)), lambda: _planned(lock))


def _taken_apart(evidence: Evidence, library: Library) -> tuple[Lock, Sequence[Planned]] | None:
    """None for a lock with faults: then the whole document says them."""
    try:
        key = ("taken apart", evidence.digest(PATH))
        return library.once(key, lambda: _apart(evidence))
    except (EvidenceError, _FaultyError):
        return None


def _apart(evidence: Evidence) -> tuple[Lock, Sequence[Planned]]:
    """Raises EvidenceError, _FaultyError."""
    ends: list[bytes] = []  # the first process, and what comes after the last one
    models = _Models()
    locked = Rows((models.planned(text) for text in _cells(evidence, ends)), models.pack, models.unpack)
    first, rest = ends
    lock, _ = read_json(_BEGIN + first + rest, PATH, Lock.model_validate_json)
    if lock is None:
        raise _FaultyError
    return lock, locked


def _cells(evidence: Evidence, ends: list[bytes]) -> Iterator[bytes]:
    """The bytes of each process, as the file is read; then `ends` is filled. Raises _FaultyError."""
    chunks = evidence.chunks(PATH)
    data = next(chunks, b"")
    if not data.startswith(_BEGIN):
        raise _FaultyError
    begin = len(_BEGIN)
    while True:
        end = data.find(_END, begin)
        last = len(data) if end < 0 else end
        while (next_ := data.find(_BETWEEN, begin, last)) >= 0:
            text = data[begin : next_ + 1]
            ends[:] = ends or [text]
            yield text
            begin = next_ + 2
        if end >= 0:
            break
        rest, chunk = data[begin:], next(chunks, b"")
        if not chunk or len(rest) > MAX_LINE:
            raise _FaultyError
        data, begin = rest + chunk, 0
    yield data[begin : end + 1]
    ends[:] = [*(ends or [data[begin : end + 1]]), data[end + 1 :]]
    for chunk in chunks:
        ends[1] += chunk
        if len(ends[1]) > _WHOLE:
            raise _FaultyError


class _Models:
    """Processes by what they have in common: all but the replicate is validated once."""

    def __init__(self) -> None:
        self._models: dict[tuple[bytes, bytes], Planned] = {}
        self._shared = Shared()

    def planned(self, text: bytes) -> Planned:
        """A process of the lock in few words. Raises _FaultyError."""
        match = _REPLICATE.search(text)
        if match is None:
            raise _FaultyError
        key = text[: match.start(1)], text[match.end(1) :]
        if (model := self._models.get(key)) is None:
            cell, _ = read_json(b"1".join(key), PATH, LockedCell.model_validate_json)
            if cell is None:
                raise _FaultyError
            model = _in_few_words(cell)
            if len(self._models) < _MOST_MODELS:
                self._models[key] = model
        return model._replace(replicate=int(match[1]))

    def pack(self, planned: Planned) -> object:
        """What `Rows` puts on disk."""
        return planned.replicate, self._shared.number((*planned[:3], *planned[4:]))

    def unpack(self, row: tuple[int, Any]) -> Planned:
        """The process that was packed."""
        rest = self._shared.value(row[1])
        return Planned._make((*rest[:3], row[0], *rest[3:]))


def _planned(lock: Lock) -> tuple[Planned, ...]:
    return tuple(map(_in_few_words, lock.cells))


def _in_few_words(cell: LockedCell) -> Planned:
    return Planned(
        cell.phase, cell.cell, cell.history, cell.replicate, cell.alignment, cell.donor, cell.swap, cell.grids
    )
