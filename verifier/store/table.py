"""Whole numbers by whole numbers, in a few bytes each; and which texts were seen, by their hashes."""

import os
from array import array
from collections.abc import Hashable, Iterable, Sequence
from typing import Generic, TypeVar

from verifier.store import disk

T = TypeVar("T")
_DENSE = 2**22  # keys below it have a place of their own
_MASK = 2**64 - 1
_FULL = 0.65


class Table:
    """Numbers from 1 to 2^32 - 1 by numbers from 0 to 2^63 - 1; 0 stands for none.

    Small keys by place, 4 bytes up to the largest; others by open addressing, some 20 bytes each. The
    multiplier is drawn anew for every table: nobody can choose keys that meet.
    """

    def __init__(self) -> None:
        self._dense = array("I")
        self._bits = 6
        self._count = 0
        self._factor = int.from_bytes(os.urandom(8), "little") | 1
        self._keys = array("Q", bytes(8 << self._bits))
        self._values = array("I", bytes(4 << self._bits))

    def get(self, key: int) -> int:
        """The number of a key; 0 if it has none."""
        if key < _DENSE:
            return self._dense[key] if key < len(self._dense) else 0
        return self._values[self._place(key + 1)]

    def set(self, key: int, value: int) -> None:
        """Give a key a number; 0 takes it away."""
        if key < _DENSE:
            if key >= len(self._dense):
                more = max(64, key + 1 - len(self._dense), len(self._dense) // 4)
                self._dense.frombytes(bytes(4 * more))
            self._dense[key] = value
            return
        place = self._place(key + 1)
        if not self._keys[place]:
            if self._count + 1 > _FULL * (1 << self._bits):
                self._grow()
                place = self._place(key + 1)
            self._keys[place] = key + 1
            self._count += 1
        self._values[place] = value

    def first(self, key: int, value: int) -> int:
        """The number of a key; if it has none it gets this one, and 0 is given."""
        if not (before := self.get(key)):
            self.set(key, value)
        return before

    def _place(self, stored: int) -> int:
        keys, last = self._keys, (1 << self._bits) - 1
        place = (stored * self._factor & _MASK) >> (64 - self._bits)
        while (there := keys[place]) and there != stored:
            place = (place + 1) & last
        return place

    def _grow(self) -> None:
        keys, values = self._keys, self._values
        self._bits += 1
        self._keys = array("Q", bytes(8 << self._bits))
        self._values = array("I", bytes(4 << self._bits))
        for key, value in zip(keys, values, strict=True):
            if key:
                place = self._place(key)
                self._keys[place] = key
                self._values[place] = value


def hashed(value: Hashable) -> int:
    """A key of 62 bits for anything, above all small numbers; equal values have equal ones."""
    return (hash(value) & (2**62 - 1)) | 2**62


class Seen:
    """Texts that were met: as they are while they are few, by their hashes beyond."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._few: set[str] | None = set()
        self._many = Table()
        self._count = 0
        for text in texts:
            self.add(text)

    def add(self, text: str) -> bool:
        """Whether a text is new; it is no longer, then."""
        if self._few is not None:
            if text in self._few:
                return False
            if len(self._few) < disk.MANY:
                self._few.add(text)
                return True
            for earlier in self._few:
                self._many.set(hashed(earlier), 1)
            self._count, self._few = len(self._few), None
        new = not self._many.first(hashed(text), 1)
        self._count += new
        return new

    def __contains__(self, text: str) -> bool:
        return text in self._few if self._few is not None else bool(self._many.get(hashed(text)))

    def __len__(self) -> int:
        return self._count if self._few is None else len(self._few)


class Firsts(Generic[T]):
    """Of the values of a sequence that have the same key the first one, by its place."""

    def __init__(self, values: Sequence[T]) -> None:
        self._values, self._places = values, Table()
        self._held: dict[Hashable, T] = {}

    def of(self, key: Hashable, place: int) -> T:
        """The first value with this key; that at `place`, if none was asked for before."""
        if (held := self._held.get(key)) is None:
            first = self._places.first(hashed(key), place + 1)
            held = self._values[first - 1 if first else place]
            if len(self._held) < disk.MANY:
                self._held[key] = held
        return held
