"""The records that a claim rests on, by their paths, as a list that is not in memory."""

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet

from verifier.bundle import Facts
from verifier.found import ArmKey


class Paths(list[str]):
    """The paths of the records of some arms, None for all. A list to whoever writes it out; read only."""

    def __init__(self, facts: Sequence[Facts], arms: AbstractSet[ArmKey] | None) -> None:
        super().__init__()
        self._facts, self._arms = facts, arms

    def __iter__(self) -> Iterator[str]:
        return (facts.path for facts in self._facts if self._arms is None or facts.arm in self._arms)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __bool__(self) -> bool:
        return next(iter(self), None) is not None
