"""A plan's matrix as processes, in the order in which they are started (rule in ledger/plan.py)."""

from typing import NamedTuple

from ledger.canonical import sha256
from ledger.plan import Cell, Plan, Swap


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


def expand(plan: Plan) -> tuple[Planned, ...]:
    """Every process of a plan, in order."""
    arms = [(phase.name, cell, history) for phase, cell in plan.cells() for history in cell.histories]
    firsts = [
        Planned(
            phase, cell.name, history, 1, cell.alignment, donor(cell, history), cell.swap, grids(plan, cell)
        )
        for phase, cell, history in arms
    ]
    processes: list[Planned] = []
    for replicate in range(1, plan.replicates + 1):
        keyed = sorted(
            (
                # in replicate 1 what is injected elsewhere must be built first
                (replicate == 1 and cell.alignment != "constructed"),
                sha256(f"{plan.order.seed}:{replicate}:{phase}.{cell.name}.{history}".encode()),
                place,
            )
            for place, (phase, cell, history) in enumerate(arms)
        )
        processes += (firsts[place]._replace(replicate=replicate) for _, _, place in keyed)
    return tuple(processes)
