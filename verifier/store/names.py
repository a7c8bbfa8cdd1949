"""A mapping of many names, ascending, on disk: a name is looked up in the one block that could hold it."""

from array import array
from bisect import bisect_right
from collections.abc import Callable, ItemsView, Iterable, Iterator, Mapping
from heapq import merge
from typing import Any, Generic, TypeVar

from verifier.store import disk
from verifier.store.disk import Disk, packed, unpacked

V = TypeVar("V")
_BLOCK = 256  # names of one block
_HELD = 4  # blocks kept unpacked


class Names(Mapping[str, V], Generic[V]):
    """Values by names that came ascending: a dict up to `disk.MANY`, packed blocks on disk beyond.

    `pack` and `unpack` as in `Rows`. `add` while it is made; then it is a mapping that does not change.
    """

    def __init__(self, pack: Callable[[V], object], unpack: Callable[[Any], V]) -> None:
        self._pack, self._unpack = pack, unpack
        self._few: dict[str, V] = {}
        self._disk: Disk | None = None
        self._waiting: list[tuple[str, object]] = []
        self._firsts: list[str] = []
        self._ends = array("Q", (0,))
        self._starts = array("Q")  # the place of each block's first name
        self._length = 0
        self._held: dict[int, dict[str, Any]] = {}
        self._placed: tuple[int, dict[str, int]] = -1, {}  # of one block

    @property
    def many(self) -> bool:
        """Whether they are on disk."""
        return self._disk is not None

    def add(self, name: str, value: V) -> None:
        """Add a name after all others. Raises NoRoomError."""
        if self._disk is None:
            if len(self._few) < disk.MANY:
                self._few[name] = value
                return
            self._disk = Disk()
            few, self._few = self._few, {}
            for earlier, kept in few.items():
                self._put(earlier, kept)
        self._put(name, value)

    def _put(self, name: str, value: V) -> None:
        self._waiting.append((name, self._pack(value)))
        self._length += 1
        if len(self._waiting) == _BLOCK:
            self._flush()

    def _flush(self) -> None:
        if self._disk is not None and self._waiting:
            self._firsts.append(self._waiting[0][0])
            self._starts.append(self._length - len(self._waiting))
            self._disk.put(packed(dict(self._waiting)))
            self._ends.append(self._disk.size)
            self._waiting.clear()

    def __len__(self) -> int:
        return len(self._few) if self._disk is None else self._length

    def __iter__(self) -> Iterator[str]:
        if self._disk is None:
            return iter(self._few)
        self._flush()
        return (name for number in range(len(self._firsts)) for name in self._read(number))

    def items(self) -> ItemsView[str, V]:
        """Names with their values, block by block."""
        return Items(self)

    def pairs(self) -> Iterator[tuple[str, V]]:
        """What `items` iterates over."""
        if self._disk is None:
            return iter(self._few.items())
        self._flush()
        unpack = self._unpack
        blocks = (self._read(number) for number in range(len(self._firsts)))
        return ((name, unpack(value)) for block in blocks for name, value in block.items())

    def __contains__(self, name: object) -> bool:
        if self._disk is None:
            return name in self._few
        return isinstance(name, str) and name in self._block_of(name)

    def __getitem__(self, name: str) -> V:
        if self._disk is None:
            return self._few[name]
        return self._unpack(self._block_of(name)[name])

    def get(self, name: str, default: Any = None) -> Any:
        """The value of a name, or the default."""
        if self._disk is None:
            return self._few.get(name, default)
        there = self._block_of(name)
        return self._unpack(there[name]) if name in there else default

    def at(self, place: int) -> str:
        """The name at a place."""
        if self._disk is None:
            return list(self._few)[place]
        self._flush()
        number = bisect_right(self._starts, place) - 1
        return list(self._block(number))[place - self._starts[number]]

    def place(self, name: str) -> int | None:
        """The place of a name."""
        if self._disk is None:
            return list(self._few).index(name) if name in self._few else None
        self._flush()
        number = bisect_right(self._firsts, name) - 1
        there = self._block(number) if number >= 0 else {}
        if name not in there:
            return None
        if self._placed[0] != number:
            self._placed = number, {kept: place for place, kept in enumerate(there)}
        return self._starts[number] + self._placed[1][name]

    def _block_of(self, name: str) -> dict[str, Any]:
        if self._waiting:
            self._flush()
        number = bisect_right(self._firsts, name) - 1
        return self._block(number) if number >= 0 else {}

    def _block(self, number: int) -> dict[str, Any]:
        if (held := self._held.get(number)) is None:
            held = self._read(number)
            while len(self._held) >= _HELD:
                del self._held[next(iter(self._held))]
            self._held[number] = held
        return held

    def _read(self, number: int) -> dict[str, Any]:
        if self._disk is None:
            return {}
        block: dict[str, Any] = unpacked(self._disk.get(self._ends[number], self._ends[number + 1]))
        return block


class Items(ItemsView[str, V]):
    """The items of a mapping that gives them in one go."""

    def __init__(self, mapping: Any) -> None:
        super().__init__(mapping)
        self._pairs: Callable[[], Iterator[tuple[str, V]]] = mapping.pairs

    def __iter__(self) -> Iterator[tuple[str, V]]:
        return self._pairs()


class Sorted(Generic[V]):
    """Names in any order, each once, made ascending: sorted while they are few, merged from disk beyond."""

    def __init__(self, pack: Callable[[V], object], unpack: Callable[[Any], V]) -> None:
        self._pack, self._unpack = pack, unpack
        self._few: dict[str, V] = {}
        self._runs: list[Names[V]] = []

    def __len__(self) -> int:
        return len(self._few) + sum(len(run) for run in self._runs)

    def add(self, name: str, value: V) -> None:
        """Add a name. Raises NoRoomError."""
        self._few[name] = value
        if len(self._few) >= max(1, 2 * disk.MANY):
            self._put_aside()

    def _put_aside(self) -> None:
        run = Names(self._pack, self._unpack)
        for name, value in sorted(self._few.items()):
            run.add(name, value)
        self._runs.append(run)
        self._few = {}

    def names(self) -> Mapping[str, V]:
        """All of them, ascending; a plain dict while they are few."""
        if not self._runs and len(self._few) <= disk.MANY:
            return dict(sorted(self._few.items()))
        self._put_aside()
        made = Names(self._pack, self._unpack)
        runs: Iterable[Iterator[tuple[str, V]]] = [run.pairs() for run in self._runs]
        for name, value in merge(*runs, key=_name):
            made.add(name, value)
        return made


def _name(item: tuple[str, object]) -> str:
    return item[0]
