"""The whole of a re-execution: read, find the fixture, compute what is distinct, compare all."""

from collections.abc import Callable, Mapping
from pathlib import Path

from ledger.reexecution import Cohort, FixtureAgain, Recomputed, RecordAgain, Reexecution, Unread
from mechanism.engine.asked import LaunchRequest, Shape
from mechanism.engine.identity import source_files
from mechanism.fixture.obtain import obtain
from mechanism.fixture.place import folder_of
from mechanism.plan.geometry import block_size_m
from mechanism.reexecute.arithmetic import arithmetic_of
from mechanism.reexecute.compare import compare_records, source_differences, surface_agreement
from mechanism.reexecute.compute import Outcome, Work
from mechanism.reexecute.source import Source, read_bundle
from mechanism.reexecute.treatments import Treatment, distinct, treatment_of
from mechanism.reexecute.workers import compute_all

Progress = Callable[[int, int], None]


def reexecute(
    folder: Path, cache: Path, *, arithmetic: str, jobs: int, progress: Progress | None = None
) -> Reexecution:
    """Steps: 1 bundle; 2 fixture, by recipe; 3 each distinct treatment once; 4 every record.

    If the recipe does not give the lock's fixture, steps 3 and 4 are left out, and the answer says so.
    Raises BundleError, FaultsError, FixtureError, KernelError or EngineError for what cannot be re-executed.
    """
    arithmetic_of(arithmetic)  # refused here, before a fixture is built
    source = read_bundle(folder)
    treatments = distinct(source)
    fixture = obtain(source.plan.plan.fixture, cache, progress=progress)
    outcomes: Mapping[Treatment, Outcome] = {}
    if fixture.digest == source.lock.fixture.digest:
        work = _work(source, arithmetic, folder_of(fixture.recipe, cache))
        outcomes = compute_all(work, source, treatments, jobs=jobs)
    records = compare_records(source, treatments, outcomes) if outcomes else ()
    fixture_again = FixtureAgain(
        recorded=source.lock.fixture.digest,
        rebuilt=fixture.digest,
        equal=fixture.digest == source.lock.fixture.digest,
    )
    simulated = source.build.evidence == "simulated"
    return Reexecution(
        schema_version=1,
        kind="re-execution" if simulated else "agreement",
        computed="simulated",
        arithmetic=arithmetic,
        cohort=_cohort(source),
        fixture=fixture_again,
        source=source_differences(source.build.source, dict(source_files())) if simulated else (),
        treatments=tuple(_recomputed(source, item, outcomes[item]) for item in treatments if outcomes),
        records=records,
        unread=tuple(Unread(path=path, reason=reason) for path, reason in source.unread.items()),
        surfaces=surface_agreement(source, records),
        equal=_all_equal(source, fixture_again, records),
    )


def _all_equal(source: Source, fixture: FixtureAgain, records: tuple[RecordAgain, ...]) -> bool:
    """Everything the lock lists was compared, and nothing differs."""
    if not fixture.equal or not records or source.unread:
        return False
    return all(again.compared and all(item.equal for item in again.compared) for again in records)


def _cohort(source: Source) -> Cohort:
    return Cohort(
        name=source.plan.plan.name,
        engine=source.build.engine,
        evidence=source.build.evidence,
        plan=source.plan.sha256,
        software=source.software,
    )


def _recomputed(source: Source, treatment: Treatment, outcome: Outcome) -> Recomputed:
    count = sum(treatment_of(item.record) == treatment for item in source.records.values())
    return Recomputed(
        alignment=treatment.alignment, grids=treatment.grids, records=count, fault=outcome.fault or None
    )


def _work(source: Source, arithmetic: str, folder: Path) -> Work:
    plan, fixture = source.plan.plan, source.plan.plan.fixture
    w13, w2 = (
        LaunchRequest(
            name=launch.name,
            tile_k=launch.tile_k,
            tile_n=launch.tile_n,
            threads=launch.threads,
            grid=launch.grid,
        )
        for launch in source.lock.launches
    )
    return Work(
        arithmetic=arithmetic,
        kernel=plan.build.kernel,
        arch=plan.build.device.arch,
        shape=Shape(
            tokens=fixture.tokens,
            experts=fixture.experts,
            top_k=fixture.top_k,
            hidden=fixture.hidden,
            intermediate=fixture.intermediate,
            group_size=fixture.group_size,
            dtype=fixture.dtype,
            block_size_m=block_size_m(fixture),
        ),
        launches=(w13, w2),
        fixture=source.lock.fixture.model_dump(mode="json"),
        fixture_folder=str(folder),
    )
