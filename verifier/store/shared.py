"""Values that many rows have, by number: in memory while they are few, on disk one by one beyond."""

from typing import Any

from verifier.store.disk import Disk

_MOST = 4096


class Shared:
    """Values that many records have, by number. The first ones are kept; others go to disk, one by one."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, ...], int] = {}
        self._values: list[tuple[Any, ...]] = []
        self._disk: Disk | None = None
        self._begins: list[int] = []

    def number(self, value: tuple[Any, ...]) -> int | tuple[int, int]:
        """The number of a value, or where it lies on disk. Values are the same if their parts are."""
        key = tuple(map(id, value))
        number = self._numbers.get(key)
        if number is not None:
            return number
        if len(self._values) < _MOST:
            self._numbers[key] = len(self._values)
            self._values.append(value)
            return len(self._values) - 1
        if self._disk is None:
            self._disk = Disk()
        import pickle  # noqa: PLC0415 - few bundles come here

        at = self._disk.put(pickle.dumps(value))
        return at, self._disk.size

    def value(self, number: int | tuple[int, int]) -> tuple[Any, ...]:
        """The value of a number."""
        if isinstance(number, int):
            return self._values[number]
        if self._disk is None:
            return ()
        import pickle  # noqa: PLC0415 - as above

        value: tuple[Any, ...] = pickle.loads(self._disk.get(*number))  # noqa: S301 - our own, as `disk.unpacked`
        return value
