"""Expanding a plan's matrix into its processes, in the order in which they are started."""

from collections.abc import Iterator

from ledger.canonical import sha256
from ledger.lock import LockedCell
from ledger.plan import Cell, Phase, Plan


def donor(cell: Cell, history: str) -> str | None:
    """The history whose native alignment the cell injects under `history`; None if it injects none."""
    if cell.alignment == "own":
        return history
    if cell.alignment == "opposite":
        return next(other for other in cell.histories if other != history)
    return None


def expand(plan: Plan, grids: tuple[int, int]) -> tuple[LockedCell, ...]:
    """Every process of the plan, ordered by the rule in ledger/plan.py.

    `grids`: the pinned CTAs of w13 and w2, which a cell's own grid replaces.
    """
    return tuple(
        LockedCell(
            phase=phase.name,
            cell=cell.name,
            history=history,
            replicate=replicate,
            alignment=cell.alignment,
            donor=donor(cell, history),
            swap=cell.swap,
            grids=grids if cell.grid is None else (cell.grid, cell.grid),
        )
        for replicate in range(1, plan.replicates + 1)
        for phase, cell, history in sorted(_arms(plan), key=lambda arm: _place(plan, replicate, *arm))
    )


def _arms(plan: Plan) -> Iterator[tuple[Phase, Cell, str]]:
    for phase, cell in plan.cells():
        for history in cell.histories:
            yield phase, cell, history


def _place(plan: Plan, replicate: int, phase: Phase, cell: Cell, history: str) -> tuple[bool, str]:
    # what other cells inject must have been constructed before: only replicate 1 is bound by that
    later = replicate == 1 and cell.alignment != "constructed"
    text = f"{plan.order.seed}:{replicate}:{phase.name}.{cell.name}.{history}"
    return later, sha256(text.encode())
