"""`mechanism freeze`: check that a plan can deliver, build its fixture, write its lock."""

from collections.abc import Callable
from pathlib import Path

import click

from ledger.lock import FixtureLock, Lock
from mechanism.command.writing import write
from mechanism.fixture.obtain import obtain, routing_of
from mechanism.fixture.place import cache_root
from mechanism.plan.deliver import refuse_static, refuse_undeliverable
from mechanism.plan.document import LoadedLedger, LoadedPlan, load_ledger, load_plan, lock_path
from mechanism.plan.freeze import lock_bytes, make_lock, read_lock

Progress = Callable[[int, int], None]


def freeze(plan: Path, *, progress: Progress) -> int:
    """Write `<plan>.lock`. Raises before anything is built if the plan cannot deliver its treatments."""
    loaded = load_plan(plan)
    refuse_static(loaded)
    ledger = load_ledger(loaded, plan.parent)
    topk_ids = routing_of(loaded.plan.fixture, cache_root()).topk_ids
    blocks = refuse_undeliverable(loaded, ledger, topk_ids)
    fixture = obtain(loaded.plan.fixture, cache_root(), progress=progress)
    lock = make_lock(loaded, ledger, fixture, padded_blocks=blocks)
    path = lock_path(plan)
    before = _frozen_before(path)
    write("lock", path, lock_bytes(lock), way_out="copy the plan to a folder where there is room for it")
    _say(path, lock, loaded, ledger, before)
    return 0


def _frozen_before(path: Path) -> str | None:
    """The plan digest of the lock that is replaced; None if there is none or it cannot be read."""
    try:
        return read_lock(path.read_bytes(), name=path.name).plan.sha256
    except (OSError, ValueError):
        return None


def _say(path: Path, lock: Lock, plan: LoadedPlan, ledger: LoadedLedger, before: str | None) -> None:
    fixture: FixtureLock = lock.fixture
    click.echo(f"plan     {plan.sha256}  {plan.name}")
    click.echo(f"ledger   {ledger.sha256}  {ledger.name}")
    click.echo(f"fixture  {fixture.digest}")
    click.echo(f"{len(lock.cells)} processes on {lock.padded_blocks} padded blocks; frozen in {path}")
    if before is not None and before != lock.plan.sha256:
        click.echo(f"replaced the lock of plan {before}")
