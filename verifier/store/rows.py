"""A long sequence of values on disk, a short one in memory; and sequences made of parts of others."""

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from verifier.store import disk
from verifier.store.disk import Disk, packed, unpacked
from verifier.store.placed import Placed

T = TypeVar("T")
_AT_ONCE = 512  # rows read at a time


class Rows(Placed[T]):
    """Values in the order in which they came: a list up to `disk.MANY`, packed on disk beyond.

    `pack` turns a value into what marshal writes (tuples, text, bytes, integers, None), `unpack` turns it
    back; equal values come back. On disk a row takes 8 bytes of memory. Raises NoRoomError.
    """

    def __init__(self, values: Iterable[T], pack: Callable[[T], object], unpack: Callable[[Any], T]) -> None:
        self._few: list[T] = []
        self._pack, self._unpack = pack, unpack
        self._disk: Disk | None = None
        self._ends = array("Q", (0,))
        for value in values:
            if self._disk is None and len(self._few) < disk.MANY:
                self._few.append(value)
            else:
                self._put(value)

    @property
    def many(self) -> bool:
        """Whether they are on disk."""
        return self._disk is not None

    def _put(self, value: T) -> None:
        if self._disk is None:
            self._disk = Disk()
            few, self._few = self._few, []
            for earlier in few:
                self._put(earlier)
        self._disk.put(packed(self._pack(value)))
        self._ends.append(self._disk.size)

    def __len__(self) -> int:
        return len(self._few) if self._disk is None else len(self._ends) - 1

    def value(self, place: int) -> T:
        """The value at a place."""
        if self._disk is None:
            return self._few[place]
        return self._unpack(unpacked(self._disk.get(self._ends[place], self._ends[place + 1])))

    def __iter__(self) -> Iterator[T]:
        return iter(self._few) if self._disk is None else self._stored(self._disk)

    def _stored(self, stored: Disk) -> Iterator[T]:
        ends, unpack, loads = self._ends, self._unpack, unpacked
        for first in range(0, len(ends) - 1, _AT_ONCE):
            mine = ends[first : first + _AT_ONCE + 1]
            base = mine[0]
            data = stored.get(base, mine[-1])
            for place in range(len(mine) - 1):
                yield unpack(loads(data[mine[place] - base : mine[place + 1] - base]))


class Picked(Placed[T]):
    """Some of a sequence's values, by their places, which ascend."""

    def __init__(self, base: Sequence[Any], places: "array[int]") -> None:
        self._base, self._places = base, places

    def __len__(self) -> int:
        return len(self._places)

    def value(self, place: int) -> T:
        """The value at a place."""
        value: T = self._base[self._places[place]]
        return value

    def __iter__(self) -> Iterator[T]:
        if 2 * len(self._places) < len(self._base):
            yield from (self._base[place] for place in self._places)
            return
        wanted = iter(self._places)
        place = next(wanted, -1)
        for at, value in enumerate(self._base):
            if at == place:
                yield value
                place = next(wanted, -1)


class Patched(Placed[T]):
    """A sequence with some values replaced, some dropped, some added at the end."""

    def __init__(
        self, base: Sequence[T], replaced: Mapping[int, T], dropped: Iterable[int], added: Sequence[T]
    ) -> None:
        self._base, self._replaced = base, dict(replaced)
        self._dropped, self._added = sorted(dropped), tuple(added)
        #: Where the values after each dropped one are in this sequence.
        self._after = [place - number for number, place in enumerate(self._dropped)]

    def __len__(self) -> int:
        return len(self._base) - len(self._dropped) + len(self._added)

    def value(self, place: int) -> T:
        """The value at a place."""
        kept = len(self._base) - len(self._dropped)
        if place >= kept:
            return self._added[place - kept]
        at = place + bisect_left(self._after, place + 1)
        return self._replaced[at] if at in self._replaced else self._base[at]

    def __iter__(self) -> Iterator[T]:
        dropped, replaced = set(self._dropped), self._replaced
        for place, value in enumerate(self._base):
            if place in replaced:
                yield replaced[place]
            elif place not in dropped:
                yield value
        yield from self._added
