"""Whether the treatments of a plan can be delivered, given its routing: refused here, before any process.

A treatment that cannot matter would make a control out of itself: a boundary swap between blocks whose
slice lists agree, a transfer between equal memberships, a "single slice" grid that splits.
"""

from collections.abc import Iterator

from ledger.fault import FaultsError, Path
from ledger.plan import Cell, Plan, Swap
from mechanism.kernel import alignment as aligning
from mechanism.kernel.alignment import Alignment
from mechanism.plan import geometry
from mechanism.plan.citations import contradictions, ledger_faults
from mechanism.plan.document import LoadedLedger, LoadedPlan
from mechanism.plan.foreseen import Foreseen
from mechanism.plan.inject import injected
from mechanism.plan.static import cells_with_path, needed_assumptions, static_faults

Found = Iterator[tuple[Path, str]]


def refuse_static(loaded: LoadedPlan) -> None:
    """Raise FaultsError with every fault that the plan alone shows."""
    if found := loaded.faults(static_faults(loaded.plan)):
        raise FaultsError(found)


def refuse_undeliverable(loaded: LoadedPlan, ledger: LoadedLedger, topk_ids: geometry.TopkIds) -> int:
    """Raise FaultsError if a treatment cannot be delivered or the ledger not be judged; else the blocks.

    Args:
        loaded: A plan that `refuse_static` let pass.
        ledger: The ledger it will be judged by.
        topk_ids: Expert of every (token, slot), shape (tokens, top_k), from the fixture.
    """
    plan = loaded.plan
    natives = {name: geometry.native(plan, name, topk_ids) for name in plan.histories}
    found = loaded.faults(
        [
            *_assumed(plan, topk_ids),
            *_swaps(plan, natives, topk_ids),
            *_transfers(plan, natives),
            *_grids(plan, natives),
        ]
    )
    blocks = len(next(iter(natives.values())).expert_ids)
    found += ledger_faults(plan, ledger, padded_blocks=blocks)
    if not found:
        found += contradictions(ledger, Foreseen(plan, natives, topk_ids))
    if found:
        raise FaultsError(found)
    return blocks


def _assumed(plan: Plan, topk_ids: geometry.TopkIds) -> Found:
    for name, reason in needed_assumptions(plan, topk_ids).items():
        if name not in plan.assumptions:
            yield ("assumptions",), f"expected {name} among the assumptions, got it missing: {reason}; add it"


def _swaps(plan: Plan, natives: dict[str, Alignment], topk_ids: geometry.TopkIds) -> Found:
    for path, cell in cells_with_path(plan):
        if cell.swap is None:
            continue
        for history in cell.histories:
            plain = cell.model_copy(update={"swap": None})
            base = injected(plan, plain, history, natives, topk_ids)
            if message := _swap_fault(plan, cell, cell.swap, base):
                yield (*path, "swap"), f"under {history}: {message}"
                break  # the other histories would mostly repeat it


def _swap_fault(plan: Plan, cell: Cell, swap: Swap, base: Alignment) -> str | None:
    """Why this swap is not the treatment it is called; None if it is."""
    a, b = swap.routes
    for route in swap.routes:
        if route >= plan.fixture.routes:
            return f"expected routes 0..{plan.fixture.routes - 1}, got {route}"
    block_a, block_b = aligning.block_of(base, a), aligning.block_of(base, b)
    expert_a, expert_b = base.expert_ids[block_a], base.expert_ids[block_b]
    if expert_a != expert_b:
        return f"expected two routes of one expert, got route {a} of expert {expert_a} and {b} of {expert_b}"
    if swap.kind == "within-block":
        if block_a != block_b:
            return f"expected two routes of one padded block, got {a} in block {block_a} and {b} in {block_b}"
        return None
    held = sum(expert == expert_a for expert in base.expert_ids)
    if block_a == block_b:
        way_out = (
            f"expert {expert_a} fills {held} block{'s' if held > 1 else ''} of {base.block_size_m};"
            " choose routes on two sides of a boundary, of an expert with more routes than one block holds"
        )
        return f"expected routes of two padded blocks, got {a} and {b} both in block {block_a}; {way_out}"
    return _boundary_fault(plan, cell, block_a, block_b, padded_blocks=len(base.expert_ids))


def _boundary_fault(plan: Plan, cell: Cell, block_a: int, block_b: int, *, padded_blocks: int) -> str | None:
    """A boundary swap matters only if the two blocks' W13 slice lists differ."""
    w13 = geometry.gemms(plan.fixture)[0]
    schedule = geometry.schedule(plan, w13, padded_blocks=padded_blocks, grid=cell.grid)

    def ranges(block: int) -> list[list[tuple[int, int]]]:
        return [
            [(part.begin, part.end) for part in schedule.slices(block, column)]
            for column in range(schedule.n_tiles)
        ]

    if ranges(block_a) != ranges(block_b):
        return None
    direct = schedule.rounds * schedule.grid
    where = f"tiles 0..{direct - 1} are whole" if direct else "no tile is in a whole round"
    return (
        f"expected padded blocks with different W13 slice lists, got {block_a} and {block_b} with equal ones"
        f" at a grid of {schedule.grid} ({schedule.tiles} tiles, {where}; marlin-moe 5.3): the swap"
        " cannot matter; choose an expert whose blocks lie on two sides of the boundary, or another grid"
    )


def _transfers(plan: Plan, natives: dict[str, Alignment]) -> Found:
    for path, cell in cells_with_path(plan):
        if cell.alignment != "opposite":
            continue
        a, b = cell.histories
        if aligning.membership(natives[a]) == aligning.membership(natives[b]):
            yield (
                (*path, "alignment"),
                f"expected histories whose memberships differ, got {a} and {b} with the same routes in every"
                " padded block: a transfer between them shows nothing; change an arrival order",
            )


def _grids(plan: Plan, natives: dict[str, Alignment]) -> Found:
    blocks = len(next(iter(natives.values())).expert_ids)
    for path, cell in cells_with_path(plan):
        for gemm in geometry.gemms(plan.fixture):
            if gemm.name not in cell.single_slice:
                continue
            schedule = geometry.schedule(plan, gemm, padded_blocks=blocks, grid=cell.grid)
            if not schedule.single_slice:
                split = sum(tile.schedule_class == "split" for tile in schedule)
                yield (
                    (*path, "single_slice"),
                    f"expected a grid at which every {gemm.name} tile has one slice, got {schedule.grid}"
                    f" CTAs: {split} of {schedule.tiles} tiles split ({blocks} padded blocks; marlin-moe"
                    " 5.6); a grid that divides the tiles has none split",
                )
