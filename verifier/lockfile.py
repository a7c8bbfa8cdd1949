"""plan.lock with its processes in few words: a lock of a large plan is read one process at a time."""

from collections.abc import Iterator

from ledger.lock import Lock, LockedCell
from verifier.arithmetic.cells import Planned
from verifier.evidence import Evidence, EvidenceError
from verifier.found import Found
from verifier.layout import limit_of
from verifier.library import Library, read_json

PATH = "plan.lock"
#: Bytes from which on a lock is taken apart; below, it is one document like any other.
LARGE = 2**18

#: Canonical keys ascend, so a lock begins with its cells and a cell with its alignment. No text of JSON holds
#: a bare quote: these bytes stand between two cells and nowhere else.
_BEGIN, _BETWEEN, _END = b'{"cells":[', b'},{"alignment":', b'}],"fixture":'


def read_lock(
    evidence: Evidence, library: Library, unread: list[Found]
) -> tuple[Lock | None, tuple[Planned, ...]]:
    """The lock and its processes; a large lock comes with its first process alone. None if there is none."""
    entry = evidence.entries.get(PATH)
    if entry is None or entry.kind != "file":
        return None, ()
    if entry.size >= LARGE and (taken := _taken_apart(evidence, library)) is not None:
        return taken
    lock = library.json(evidence, PATH, Lock, unread)
    return lock, () if lock is None else library.once(("locked", id(lock)), lambda: _planned(lock, library))


def _taken_apart(evidence: Evidence, library: Library) -> tuple[Lock, tuple[Planned, ...]] | None:
    """None for a lock with faults: then the whole document says them."""
    try:
        key = ("taken apart", evidence.digest(PATH))
        return library.once(key, lambda: _apart(evidence.read(PATH, limit_of(PATH)), library))
    except EvidenceError:
        return None


def _apart(data: bytes, library: Library) -> tuple[Lock, tuple[Planned, ...]] | None:
    end = data.find(_END)
    if not data.startswith(_BEGIN) or end < 0:
        return None
    first = data[len(_BEGIN) : end + 1].partition(_BETWEEN)[0].removesuffix(b"}") + b"}"
    lock, _ = read_json(_BEGIN + first + data[end + 1 :], PATH, Lock.model_validate_json)
    if lock is None:
        return None
    found: list[Planned] = []
    for text in _cells(data, end):
        cell, _ = read_json(text, PATH, LockedCell.model_validate_json)
        if cell is None:
            return None
        found.append(_in_few_words(cell, library))
    return lock, tuple(found)


def _cells(data: bytes, end: int) -> Iterator[bytes]:
    """The bytes of each process, without a copy of all of them."""
    begin = len(_BEGIN)
    while (next_ := data.find(_BETWEEN, begin, end)) >= 0:
        yield data[begin : next_ + 1]
        begin = next_ + 2
    yield data[begin : end + 1]


def _planned(lock: Lock, library: Library) -> tuple[Planned, ...]:
    return tuple(_in_few_words(cell, library) for cell in lock.cells)


def _in_few_words(cell: LockedCell, library: Library) -> Planned:
    same = library.same
    model = Planned(cell.phase, cell.cell, cell.history, 1, cell.alignment, cell.donor, cell.swap, cell.grids)
    return same(model)._replace(replicate=cell.replicate)
