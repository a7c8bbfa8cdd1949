"""The alignment that a cell of a plan is to receive."""

from ledger.plan import Cell, Plan
from mechanism.kernel import alignment as aligning
from mechanism.kernel.alignment import Alignment
from mechanism.plan import geometry
from mechanism.plan.expand import donor


def injected(
    plan: Plan, cell: Cell, history: str, natives: dict[str, Alignment], topk_ids: geometry.TopkIds
) -> Alignment:
    """The alignment a cell is to receive under one history. Raises AlignmentError if the swap is none."""
    given = donor(cell, history)
    if given is not None:
        base = natives[given]
    elif cell.alignment == "stable":
        base = aligning.stable(
            topk_ids,
            experts=plan.fixture.experts,
            block_size_m=geometry.block_size_m(plan.fixture),
            kernel=plan.build.kernel,
        )
    else:
        base = natives[history]
    return base if cell.swap is None else aligning.exchange(base, *cell.swap.routes)
