"""The schedule map as text: one line per GEMM, one per stretch of padded blocks of one kind."""

from itertools import groupby

from mechanism.show.schedule_map import BlockRow, GemmMap, ScheduleMap

HEADS = ("GEMM", "tile", "grid", "tiles", "rounds", "part 2", "iters", "direct", "split", "first split block")


def schedule_text(shown: ScheduleMap) -> str:
    """The whole text, plain lines; the first says whether the schedule is a simulation's."""
    label = "SIMULATED schedule" if shown.simulated else "Schedule"
    lines = [f"{label} of plan {shown.plan} on {shown.device}", shown.title, ""]
    lines += _table([HEADS, *(_gemm_row(gemm) for gemm in shown.gemms)])
    lines += ["", "Padded blocks (routes only where an expert has more than one block or routes move):"]
    lines += _table(
        [("blocks", "expert", *(gemm.label for gemm in shown.gemms), "routes"), *_stretches(shown)]
    )
    moved = ", ".join(map(str, shown.moved_routes)) or "none"
    lines += ["", f"Routes that move between padded blocks from history to history: {moved}"]
    return "\n".join(lines) + "\n"


def _gemm_row(gemm: GemmMap) -> tuple[str, ...]:
    plan = gemm.schedule
    first = gemm.first_split_block
    return (
        gemm.label,
        f"{plan.tile_k} x {plan.tile_n}",
        str(plan.grid),
        str(plan.tiles),
        str(plan.rounds),
        str(plan.part2),
        str(plan.iters),
        str(plan.tiles - gemm.split_tiles),
        str(gemm.split_tiles),
        "none" if first is None else str(first),
    )


def _stretches(shown: ScheduleMap) -> list[tuple[str, ...]]:
    experts = [row.expert for row in shown.blocks]

    def kind(row: BlockRow) -> tuple[object, ...]:
        alone = row.block if row.moves or experts.count(row.expert) > 1 else -1
        return (alone, *(gemm.block_class(row.block) for gemm in shown.gemms))

    rows = []
    for (alone, *classes), stretch in groupby(shown.blocks, key=kind):
        members = list(stretch)
        first, last = members[0], members[-1]
        blocks = str(first.block) if first is last else f"{first.block}..{last.block}"
        spread = str(first.expert) if first.expert == last.expert else f"{first.expert}..{last.expert}"
        routes = (
            "; ".join(f"{name}: {_routes(held)}" for name, held in first.routes.items())
            if alone != -1
            else ""
        )
        rows.append((blocks, spread, *map(str, classes), routes))
    return rows


def _routes(routes: tuple[int, ...]) -> str:
    return " ".join(map(str, routes))


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
