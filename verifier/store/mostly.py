"""A mapping of names that should have come ascending, in the order in which they did come."""

from collections import deque
from collections.abc import Callable, ItemsView, Iterator, Mapping
from heapq import merge
from typing import Any, Generic, TypeVar

from verifier.store.names import Items, Names
from verifier.store.table import Table, hashed

V = TypeVar("V")


class Mostly(Mapping[str, V], Generic[V]):
    """Values by name; of a name that comes twice the first one stays. `add` while it is made.

    The names that came after a greater one are few, or whoever adds them stops: these are held in memory.
    """

    def __init__(self, pack: Callable[[V], object], unpack: Callable[[Any], V]) -> None:
        self._main: Names[V] = Names(pack, unpack)
        self._last = ""
        self._odd: dict[str, tuple[int, V]] = {}  # each with how many of the others came before it
        #: Where case does not count: the place of the first of each name; those of `_odd` by themselves.
        self._places = Table()
        self._low: dict[int, str] = {}

    def add(self, name: str, value: V) -> None:
        """Add a name. Raises NoRoomError."""
        if name > self._last:
            self._main.add(name, value)
            self._last = name
        elif name not in self:
            self._odd[name] = len(self._main), value

    def __len__(self) -> int:
        return len(self._main) + len(self._odd)

    def __contains__(self, name: object) -> bool:
        return name in self._main or name in self._odd

    def __getitem__(self, name: str) -> V:
        return self._odd[name][1] if name in self._odd else self._main[name]

    def get(self, name: str, default: Any = None) -> Any:
        """The value of a name, or the default."""
        return self._odd[name][1] if name in self._odd else self._main.get(name, default)

    def __iter__(self) -> Iterator[str]:
        return iter(self._main) if not self._odd else (name for name, _ in self.pairs())

    def items(self) -> ItemsView[str, V]:
        """Names with their values, in one go."""
        return Items(self)

    def pairs(self) -> Iterator[tuple[str, V]]:
        """What `items` iterates over."""
        odd = deque((before, (name, value)) for name, (before, value) in self._odd.items())
        for place, item in enumerate(self._main.pairs()):
            while odd and odd[0][0] == place:
                yield odd.popleft()[1]
            yield item
        yield from (item for _, item in odd)

    def twin(self, name: str) -> str | None:
        """The first of them that is this name but for case. To be asked before each `add`, and only then."""
        low = name.lower()
        key = hashed(low)
        if key in self._low:
            first = self._low[key]
        elif before := self._places.get(key):
            first = self._main.at(before - 1)
        else:
            if name > self._last:
                self._places.set(key, len(self._main) + 1)
            else:
                self._low[key] = name
            return None
        return first if first.lower() == low else None

    def seal(self) -> None:
        """No name will come any more: let go what told twins."""
        self._places, self._low = Table(), {}

    def ascending(self) -> Iterator[str]:
        """The names, sorted."""
        return merge(self._main, sorted(self._odd)) if self._odd else iter(self._main)
