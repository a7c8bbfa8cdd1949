"""The schedule map with the memberships that were delivered, and the picture in the page's colours."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby

from mechanism.kernel.alignment import Alignment, block_routes
from mechanism.plan import geometry
from mechanism.report.errors import ReportError
from mechanism.report.source import Source
from mechanism.show.schedule_map import BlockRow, GemmMap, ScheduleMap
from mechanism.show.schedule_svg import DIRECT, INK, MOVED, PALE, SPLIT, schedule_svg
from mechanism.trace.source import CellName, recorded_runs

#: Colours of the stand-alone picture, and the page's own, which follow light and dark.
_COLOURS = (
    (DIRECT, "var(--direct)"),
    (SPLIT, "var(--split)"),
    (MOVED, "var(--moved)"),
    (INK, "var(--ink)"),
    (PALE, "var(--pale)"),
    ("#ffffff", "var(--panel)"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Stretch:
    """Padded blocks of one kind: their numbers, experts, class per GEMM, and routes where they matter."""

    blocks: str
    experts: str
    classes: tuple[str, ...]
    routes: tuple[tuple[str, tuple[tuple[int, bool], ...]], ...]


def recorded_map(source: Source) -> ScheduleMap:
    """The map of a bundle: alignments as recorded by the cell that constructs them, grids as planned.

    Raises:
        ReportError: The plan has no cell that constructs an alignment.
        TraceError, FaultsError: Its records or alignments cannot be read.
    """
    plan = source.plan
    natives: dict[str, Alignment] = {}
    for phase, cell in plan.cells():
        if cell.alignment == "constructed":
            name = CellName(phase=phase.name, cell=cell, history=cell.histories[0], replicate=1)
            runs, _ = recorded_runs(source.folder, plan, name)
            natives = {**{history: run.alignment for history, run in runs.items()}, **natives}
    if not natives:
        raise ReportError("plan.yaml: expected a cell with alignment: constructed, got none")
    first = next(iter(natives.values()))
    count = len(first.expert_ids)
    forced = sorted({cell.grid for _, cell in plan.cells() if cell.grid is not None})
    gemms = tuple(
        GemmMap(
            label=f"{gemm.name.upper()}, {'pinned' if grid is None else 'forced'} grid",
            schedule=geometry.schedule(plan, gemm, padded_blocks=count, grid=grid),
        )
        for grid in (None, *forced)
        for gemm in geometry.gemms(plan.fixture)
    )
    device = plan.build.device
    return ScheduleMap(
        plan=plan.name,
        title=plan.title,
        simulated=source.simulated,
        device=f"{device.name} ({device.arch}, {device.sms} SMs)",
        gemms=gemms,
        blocks=tuple(_row(natives, block, first.expert_ids[block]) for block in range(count)),
    )


def themed_svg(shown: ScheduleMap) -> str:
    """The picture, with the page's colours in place of its own, and reachable by keyboard as one figure."""
    text = schedule_svg(shown)
    for own, theme in _COLOURS:
        text = text.replace(f'"{own}"', f'"{theme}"')
    return text


def stretches(shown: ScheduleMap) -> tuple[Stretch, ...]:
    """The picture as table rows: neighbours of one kind together, blocks whose routes matter alone."""
    experts = [row.expert for row in shown.blocks]
    moved = set(shown.moved_routes)

    def told(row: BlockRow) -> bool:
        return row.moves or experts.count(row.expert) > 1

    def kind(row: BlockRow) -> tuple[object, ...]:
        return (row.block if told(row) else -1, *(gemm.block_class(row.block) for gemm in shown.gemms))

    found = []
    for (_, *classes), members in groupby(shown.blocks, key=kind):
        rows = list(members)
        first, last = rows[0], rows[-1]
        routes = first.routes.items() if told(first) else ()
        found.append(
            Stretch(
                blocks=_span(first.block, last.block),
                experts=_span(first.expert, last.expert),
                classes=tuple(map(str, classes)),
                routes=tuple(
                    (name, tuple((route, route in moved) for route in sorted(held))) for name, held in routes
                ),
            )
        )
    return tuple(found)


def _row(natives: dict[str, Alignment], block: int, expert: int) -> BlockRow:
    routes = {name: tuple(sorted(block_routes(native, block))) for name, native in natives.items()}
    return BlockRow(block=block, expert=expert, routes=routes)


def _span(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}–{last}"
