"""Findings made while reading: a hostile bundle may give millions, of which the first are kept by code."""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain, repeat

from verifier.found import Found

MAX_FAULTS = 5000  # of one code; a hostile manifest may have as many as lines


class Unread(list[Found]):
    """Findings in the order in which they were made; of each code the first ones, and how many more."""

    def __init__(self) -> None:
        super().__init__()
        self._count: Counter[str] = Counter()
        self._last: dict[str, Found] = {}

    def append(self, found: Found) -> None:
        """Add a finding."""
        self._count[found.code] += 1
        if self._count[found.code] <= MAX_FAULTS + 1:
            super().append(found)
            self._last[found.code] = found

    def extend(self, found: Iterable[Found]) -> None:
        """Add findings."""
        for item in found:
            self.append(item)

    def __iadd__(self, found: Iterable[Found]) -> "Unread":  # type: ignore[override,misc]
        self.extend(found)
        return self

    def of(self, code: str) -> Iterator[Found]:
        """The findings of one code; for each that was not kept the last one again."""
        more = self._count[code] - MAX_FAULTS - 1
        return chain(
            (item for item in self if item.code == code),
            repeat(self._last[code], more) if more > 0 else (),
        )
