"""`mechanism fixture build`: build a plan's fixture into the cache, or verify the one that is there."""

from collections.abc import Callable
from pathlib import Path

import click

from mechanism.fixture.obtain import obtain
from mechanism.fixture.place import cache_root
from mechanism.plan.deliver import refuse_static
from mechanism.plan.document import load_plan

Progress = Callable[[int, int], None]


def build_fixture(plan: Path, *, progress: Progress) -> int:
    """Build or verify, then say what there is."""
    loaded = load_plan(plan)
    refuse_static(loaded)
    lock = obtain(loaded.plan.fixture, cache_root(), progress=progress)
    click.echo(f"fixture {lock.digest}")
    for name, tensor in sorted(lock.tensors.items()):
        click.echo(f"  {tensor.sha256}  {name} {tensor.dtype} {list(tensor.shape)}")
    return 0
