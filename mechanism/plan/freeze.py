"""The lock: what freezing fixes, and whether a plan still is what was frozen. Pure; callers do the files."""

from ledger.canonical import canonical, parse_canonical
from ledger.fault import Fault, FaultsError
from ledger.lock import FileDigest, FixtureLock, LaunchLock, Lock
from ledger.model import read_json
from mechanism.errors import PlanError
from mechanism.plan import geometry
from mechanism.plan.document import LoadedLedger, LoadedPlan
from mechanism.plan.expand import expand


def make_lock(plan: LoadedPlan, ledger: LoadedLedger, fixture: FixtureLock, *, padded_blocks: int) -> Lock:
    """The lock of a deliverable plan."""
    launches = tuple(_launch(plan, gemm) for gemm in geometry.gemms(plan.plan.fixture))
    w13, w2 = launches
    return Lock(
        schema_version=1,
        plan=FileDigest(name=plan.plan.name, sha256=plan.sha256),
        ledger=FileDigest(name=ledger.ledger.name, sha256=ledger.sha256),
        fixture=fixture,
        padded_blocks=padded_blocks,
        launches=(w13, w2),
        cells=expand(plan.plan, (w13.grid, w2.grid)),
    )


def lock_bytes(lock: Lock) -> bytes:
    """The lock file's bytes: canonical JSON."""
    return canonical(lock.model_dump(mode="json"))


def read_lock(data: bytes, *, name: str) -> Lock:
    """A lock from its bytes. Raises FaultsError if they are not one."""
    try:
        value = parse_canonical(data)
    except ValueError as fault:
        message = f"{fault}; run `mechanism freeze` again"
        raise FaultsError([Fault(file=name, line=1, path=(), message=message)]) from fault
    return read_json(Lock, value, name=name)


def require_frozen(plan: LoadedPlan, ledger: LoadedLedger, lock: Lock, *, name: str) -> None:
    """Raise PlanError unless plan and ledger are byte for byte what the lock froze."""
    pairs = (
        ("plan", plan.name, lock.plan.sha256, plan.sha256),
        ("ledger", ledger.name, lock.ledger.sha256, ledger.sha256),
    )
    for what, file, frozen, found in pairs:
        if frozen != found:
            raise PlanError(
                f"{file}: the {what} was changed after it was frozen: {name} has sha256 {frozen}, the file"
                f" has {found}; undo the change, or freeze the changed {what} with `mechanism freeze`"
            )


def require_same(lock: Lock, again: Lock, *, name: str) -> None:
    """Raise PlanError unless freezing again gives the same lock: a lock edited by hand is none."""
    if lock == again:
        return
    keys = [key for key in Lock.model_fields if getattr(lock, key) != getattr(again, key)]
    raise PlanError(
        f"{name}: {', '.join(keys)} differ from what this plan gives now; the lock was edited, or made by"
        " another version of the recipe or the rules; freeze again with `mechanism freeze`"
    )


def _launch(plan: LoadedPlan, gemm: geometry.Gemm) -> LaunchLock:
    launch = geometry.launch(plan.plan, gemm)
    return LaunchLock(
        name="w13" if gemm.name == "w13" else "w2",
        tile_k=launch.tile_k,
        tile_n=launch.tile_n,
        threads=launch.threads,
        ctas_per_sm=launch.ctas_per_sm,
        grid=launch.grid,
    )
