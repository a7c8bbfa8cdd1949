"""What every sequence here is: values by their places, also counted from the end, or a run of them."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Generic, TypeVar, overload

T = TypeVar("T")


class Placed(Sequence[T], Generic[T]):
    """A sequence of which only `value`, and its length, have to be said."""

    @abstractmethod
    def value(self, place: int) -> T:
        """The value at a place from 0 to one less than the length."""

    @overload
    def __getitem__(self, place: int) -> T: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[T]: ...
    def __getitem__(self, place: int | slice) -> T | Sequence[T]:
        if isinstance(place, slice):
            return [self.value(at) for at in range(*place.indices(len(self)))]
        at = place if place >= 0 else place + len(self)
        if not 0 <= at < len(self):
            raise IndexError(place)
        return self.value(at)
