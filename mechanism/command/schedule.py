"""`mechanism schedule`: print a plan's schedule, and draw it."""

from pathlib import Path

import click

from mechanism.command.writing import require_place, write
from mechanism.fixture.obtain import routing_of
from mechanism.fixture.place import cache_root
from mechanism.plan.deliver import refuse_static, refuse_undeliverable
from mechanism.plan.document import load_ledger, load_plan
from mechanism.show.schedule_map import schedule_map
from mechanism.show.schedule_svg import schedule_svg
from mechanism.show.schedule_text import schedule_text


def schedule(plan: Path, *, svg: Path | None) -> int:
    """Print the schedule of a deliverable plan; with `svg`, write the picture too."""
    if svg is not None:
        require_place("--svg", svg)
    loaded = load_plan(plan)
    refuse_static(loaded)
    topk_ids = routing_of(loaded.plan.fixture, cache_root()).topk_ids
    refuse_undeliverable(loaded, load_ledger(loaded, plan.parent), topk_ids)
    shown = schedule_map(loaded.plan, topk_ids)
    click.echo(schedule_text(shown), nl=False)
    if svg is not None:
        write("--svg", svg, schedule_svg(shown).encode())
        click.echo(f"picture: {svg}")
    return 0
