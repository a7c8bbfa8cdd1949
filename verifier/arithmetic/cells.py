"""A plan's matrix as processes, in the order in which they are started (rule in ledger/plan.py)."""

from array import array
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from ledger.canonical import sha256
from ledger.plan import Cell, Plan, Swap
from verifier.store.placed import Placed

Slot = tuple[str, str, str, int]


class Planned(NamedTuple):
    """One process of a plan with its treatment; the keys are those of `ledger.lock.LockedCell`."""

    phase: str
    cell: str
    history: str
    replicate: int
    alignment: str
    donor: str | None
    swap: Swap | None
    grids: tuple[int, int]


def pinned_grids(plan: Plan) -> tuple[int, int]:
    """CTAs of w13 and w2 on the pinned build: SMs times CTAs per SM."""
    sms, launch = plan.build.device.sms, plan.build.launch
    return sms * launch.w13.ctas_per_sm, sms * launch.w2.ctas_per_sm


def grids(plan: Plan, cell: Cell) -> tuple[int, int]:
    """CTAs of w13 and w2 for one cell."""
    return pinned_grids(plan) if cell.grid is None else (cell.grid, cell.grid)


def donor(cell: Cell, history: str) -> str | None:
    """Whose native alignment is injected: one's own, the other of two, or nobody's."""
    if cell.alignment == "own":
        return history
    if cell.alignment == "opposite":
        return next((other for other in cell.histories if other != history), None)
    return None


class Processes(Placed[Planned]):
    """Every process of a plan, in order, and by its (phase, cell, history, replicate); in 8 bytes each."""

    def __init__(self, plan: Plan) -> None:
        arms = [(phase.name, cell, history) for phase, cell in plan.cells() for history in cell.histories]
        self._firsts = [
            Planned(
                phase,
                cell.name,
                history,
                1,
                cell.alignment,
                donor(cell, history),
                cell.swap,
                grids(plan, cell),
            )
            for phase, cell, history in arms
        ]
        self._arms = {first[:3]: number for number, first in enumerate(self._firsts)}
        self._replicates = plan.replicates
        #: Of every replicate the arms, by number, in the order in which they are started.
        self._order = array("I")
        for replicate in range(1, plan.replicates + 1):
            keyed = sorted(
                (
                    # in replicate 1 what is injected elsewhere must be built first
                    (replicate == 1 and cell.alignment != "constructed"),
                    sha256(f"{plan.order.seed}:{replicate}:{phase}.{cell.name}.{history}".encode()),
                    number,
                )
                for number, (phase, cell, history) in enumerate(arms)
            )
            self._order.extend(number for _, _, number in keyed)

    def __len__(self) -> int:
        return len(self._order)

    def value(self, place: int) -> Planned:
        """The process at a place."""
        return self._planned(self._order[place], place // len(self._firsts) + 1)

    def __iter__(self) -> Iterator[Planned]:
        arms = len(self._firsts)
        return (self._planned(number, place // arms + 1) for place, number in enumerate(self._order))

    def get(self, slot: Slot) -> Planned | None:
        """The process of a slot; None if the plan has none."""
        number = self._arms.get(slot[:3])
        if number is None or not 1 <= slot[3] <= self._replicates:
            return None
        return self._planned(number, slot[3])

    def place(self, slot: Slot) -> int | None:
        """Where a slot's process is in the order; None if the plan has none."""
        number = self._arms.get(slot[:3])
        if number is None or not 1 <= slot[3] <= self._replicates:
            return None
        return self._places[(slot[3] - 1) * len(self._firsts) + number]

    @cached_property
    def _places(self) -> "array[int]":
        """Places by replicate and number of the arm."""
        arms = len(self._firsts)
        places = array("I", bytes(4 * len(self._order)))
        for place, number in enumerate(self._order):
            places[place - place % arms + number] = place
        return places

    def _planned(self, number: int, replicate: int) -> Planned:
        first = self._firsts[number]
        return first if replicate == 1 else first._replace(replicate=replicate)


def expand(plan: Plan) -> Processes:
    """Every process of a plan, in order."""
    return Processes(plan)
