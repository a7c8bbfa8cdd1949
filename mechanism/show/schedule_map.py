"""What there is to show of a plan's schedule: blocks, tiles, the experts whose routes move. Pure."""

from ledger.plan import Plan
from mechanism.kernel import alignment as aligning
from mechanism.kernel.alignment import Alignment
from mechanism.kernel.schedule import Schedule
from mechanism.plan import geometry
from mechanism.values import frozen


@frozen
class BlockRow:
    """One padded block: its expert, and its valid routes under each history."""

    block: int
    expert: int
    routes: dict[str, tuple[int, ...]]

    @property
    def moves(self) -> bool:
        """Whether the histories put different routes into this block."""
        return len({frozenset(routes) for routes in self.routes.values()}) > 1


@frozen
class GemmMap:
    """The schedule of one GEMM under one grid; `label` names it for people."""

    label: str
    schedule: Schedule

    def slice_counts(self, block: int) -> tuple[int, ...]:
        """How many slices each column tile of a block has; 1 is direct."""
        return tuple(len(self.schedule.slices(block, column)) for column in range(self.schedule.n_tiles))

    def block_class(self, block: int) -> str:
        """`direct`, `split`, or `mixed` if the block holds both."""
        split = {count > 1 for count in self.slice_counts(block)}
        return "mixed" if len(split) == 2 else "split" if True in split else "direct"

    @property
    def split_tiles(self) -> int:
        """Tiles with more than one slice."""
        return sum(len(tile.slices) > 1 for tile in self.schedule)

    @property
    def first_split_block(self) -> int | None:
        """The first padded block with a split tile; None if nothing is split."""
        return next((tile.block for tile in self.schedule if len(tile.slices) > 1), None)


@frozen
class ScheduleMap:
    """Everything the table and the picture show of one plan."""

    plan: str
    title: str
    simulated: bool
    device: str
    gemms: tuple[GemmMap, ...]
    blocks: tuple[BlockRow, ...]

    @property
    def moved_routes(self) -> tuple[int, ...]:
        """Routes that the histories put into different padded blocks, ascending."""
        moved: set[int] = set()
        for row in self.blocks:
            held = [frozenset(routes) for routes in row.routes.values()]
            moved |= frozenset[int]().union(*held) - held[0].intersection(*held)
        return tuple(sorted(moved))


def schedule_map(plan: Plan, topk_ids: geometry.TopkIds) -> ScheduleMap:
    """The map of a deliverable plan: the pinned grid, then every grid that a cell forces."""
    natives = {name: geometry.native(plan, name, topk_ids) for name in plan.histories}
    first = next(iter(natives.values()))
    blocks = len(first.expert_ids)
    forced = sorted({cell.grid for _, cell in plan.cells() if cell.grid is not None})
    gemms = [
        GemmMap(
            label=f"{gemm.name.upper()}, {'pinned' if grid is None else 'forced'} grid",
            schedule=geometry.schedule(plan, gemm, padded_blocks=blocks, grid=grid),
        )
        for grid in (None, *forced)
        for gemm in geometry.gemms(plan.fixture)
    ]
    return ScheduleMap(
        plan=plan.name,
        title=plan.title,
        simulated=plan.engine == "simulated",
        device=f"{plan.build.device.name} ({plan.build.device.arch}, {plan.build.device.sms} SMs)",
        gemms=tuple(gemms),
        blocks=tuple(_row(natives, block, first.expert_ids[block]) for block in range(blocks)),
    )


def _row(natives: dict[str, Alignment], block: int, expert: int) -> BlockRow:
    routes = {name: tuple(sorted(aligning.block_routes(native, block))) for name, native in natives.items()}
    return BlockRow(block=block, expert=expert, routes=routes)
