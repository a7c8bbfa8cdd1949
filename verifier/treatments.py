"""Whether a plan's treatments can matter on its routing: swaps, transfers, single-slice grids.

A boundary swap between blocks with equal slice lists, or a transfer between equal memberships, would show
nothing and look like a control that stayed.
"""

from collections.abc import Callable, Iterator

from ledger.plan import Cell, Swap
from ledger.record import AlignmentFile
from verifier.arithmetic.alignment import blocks_of, membership
from verifier.arithmetic.cells import donor, grids
from verifier.arithmetic.rules import Fault
from verifier.arithmetic.schedule import block_ranges, split_tiles
from verifier.workings import Workings

Native = Callable[[str], AlignmentFile | None]


def treatment_faults(worked: Workings, native: Native) -> Iterator[Fault]:
    """Every treatment that cannot matter, as (key, expected, got). `native`: a history's own alignment."""
    for phase, cell in worked.plan.cells():
        for history in cell.histories:
            key = f"{phase.name}.{cell.name}.{history}"
            yield from _swap(worked, cell, history, key, native)
        yield from _transfer(cell, f"{phase.name}.{cell.name}", native)
        yield from _single_slice(worked, cell, f"{phase.name}.{cell.name}")


def _swap(worked: Workings, cell: Cell, history: str, key: str, native: Native) -> Iterator[Fault]:
    if cell.swap is None:
        return
    given = donor(cell, history)
    base = worked.stable if cell.alignment == "stable" else native(given) if given else None
    if base is not None and (fault := _swap_fault(worked, cell, cell.swap, base)):
        yield f"{key}.swap", *fault


def _swap_fault(worked: Workings, cell: Cell, swap: Swap, base: AlignmentFile) -> tuple[str, str] | None:
    a, b = (blocks_of(base, route) for route in swap.routes)
    if len(a) != 1 or len(b) != 1 or base.expert_ids[a[0]] != base.expert_ids[b[0]]:
        return "two routes of one expert", f"{swap.routes[0]} and {swap.routes[1]}"
    if swap.kind == "within-block":
        return None if a == b else ("two routes of one padded block", f"blocks {a[0]} and {b[0]}")
    if a == b:
        return "routes of two padded blocks", f"both in block {a[0]}"
    w13 = worked.launch("w13", grid=grids(worked.plan, cell)[0], padded_blocks=len(base.expert_ids))
    if block_ranges(w13, a[0]) == block_ranges(w13, b[0]):
        return "padded blocks with different W13 slice lists", f"blocks {a[0]} and {b[0]}, with equal ones"
    return None


def _transfer(cell: Cell, key: str, native: Native) -> Iterator[Fault]:
    if cell.alignment != "opposite":
        return
    one, other = (native(history) for history in cell.histories)
    if one is not None and other is not None and membership(one) == membership(other):
        what = f"{cell.histories[0]} and {cell.histories[1]}"
        yield f"{key}.alignment", "histories whose memberships differ", f"{what}, with equal ones"


def _single_slice(worked: Workings, cell: Cell, key: str) -> Iterator[Fault]:
    for place, name in enumerate(("w13", "w2")):
        if name not in cell.single_slice:
            continue
        grid = grids(worked.plan, cell)[place]
        launch = worked.launch("w13" if place == 0 else "w2", grid=grid, padded_blocks=worked.padded_blocks)
        if split := split_tiles(launch):
            yield (
                f"{key}.single_slice",
                f"a grid at which no {name} tile is split",
                f"{split} split at {grid} CTAs",
            )
