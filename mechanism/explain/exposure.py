"""Which experts and routes the alignment can move between blocks that are cut differently (2.4, 5.3).

Only experts with more routes than a padded block holds have a choice of block; and a choice matters only if
the expert's blocks have different slice lists at a GEMM. Both conditions are decided by counts of routes
alone, so they hold for every order of the atomics.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mechanism.explain.gemms import block_class, cuts
from mechanism.kernel.schedule import Schedule


@dataclass(frozen=True, kw_only=True, slots=True)
class ExpertAt:
    """The blocks of one expert at one GEMM: their classes, and whether their slice lists differ."""

    gemm: str
    classes: tuple[str, ...]
    differ: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class CrowdedExpert:
    """One expert with more routes than `block_size_m`.

    Attributes:
        expert: Its id.
        routes: Its route ids, ascending; empty where only the count is known.
        count: How many routes it has.
        blocks: Its padded blocks.
        at: Per GEMM whose launch is known, what its blocks look like.
    """

    expert: int
    routes: tuple[int, ...]
    count: int
    blocks: tuple[int, ...]
    at: tuple[ExpertAt, ...]

    @property
    def exposed(self) -> bool:
        """Whether two of its blocks are cut differently at some GEMM."""
        return any(gemm.differ for gemm in self.at)


def padded_blocks(counts: Sequence[int], block_size_m: int) -> int:
    """Active padded blocks: every expert's routes rounded up to whole blocks (2.3)."""
    return sum(-(-count // block_size_m) for count in counts)


def crowded(
    counts: Sequence[int],
    block_size_m: int,
    schedules: Mapping[str, Schedule],
    routes: Mapping[int, tuple[int, ...]] | None = None,
) -> tuple[CrowdedExpert, ...]:
    """Experts with more than `block_size_m` routes, ascending, and how their blocks are cut.

    Args:
        counts: Routes of every expert.
        block_size_m: Slots per padded block.
        schedules: By GEMM name, those that are known; all of one number of padded blocks.
        routes: Route ids of every crowded expert, where wanted.
    """
    found = []
    first = 0
    for expert, count in enumerate(counts):
        blocks = range(first, first - (-count // block_size_m))
        first = blocks.stop
        if count <= block_size_m:
            continue
        found.append(
            CrowdedExpert(
                expert=expert,
                routes=() if routes is None else routes[expert],
                count=count,
                blocks=tuple(blocks),
                at=tuple(_at(name, schedule, blocks) for name, schedule in schedules.items()),
            )
        )
    return tuple(found)


def _at(name: str, schedule: Schedule, blocks: range) -> ExpertAt:
    if blocks.stop * schedule.n_tiles <= schedule.rounds * schedule.grid:
        return ExpertAt(gemm=name, classes=("direct",) * len(blocks), differ=False)  # all in whole rounds
    lists = [cuts(schedule, block) for block in blocks]
    return ExpertAt(
        gemm=name, classes=tuple(block_class(found) for found in lists), differ=len(set(lists)) > 1
    )
