"""V6xx, the launch and what came out of it: tile, grid, slices executed, surfaces, fixture, assumptions."""

from collections.abc import Iterator

from ledger.record import Record
from verifier.arithmetic import geometry
from verifier.arithmetic.schedule import slices_digest
from verifier.bundle import Bundle
from verifier.checks.check import record_check
from verifier.found import Found, show


@record_check("V601")
def tiles(bundle: Bundle, record: Record) -> Iterator[Found]:
    """V601: both GEMMs, w13 then w2, ran with the tile and the threads that the lock pins."""
    for place, (pinned, got) in enumerate(zip(bundle.lock.launches, record.treatment.gemms, strict=True)):
        for key in ("name", "tile_k", "tile_n", "threads"):
            if (expected := getattr(pinned, key)) != (said := getattr(got, key)):
                yield _gemm("V601", record, place, key, f"{expected}, as plan.lock pins", str(said))


@record_check("V602")
def grids(bundle: Bundle, record: Record) -> Iterator[Found]:
    """V602: both GEMMs ran on the cell's grid: the pinned one, or the one that the cell forces."""
    locked = bundle.planned.cells.get((record.phase, record.cell, record.history, record.replicate))
    if locked is None:
        return  # V402
    for place, (expected, got) in enumerate(zip(locked.grids, record.treatment.gemms, strict=True)):
        if got.grid != expected:
            yield _gemm("V602", record, place, "grid", f"{expected} CTAs, the cell's", f"{got.grid}")


@record_check("V603")
def slices(bundle: Bundle, record: Record) -> Iterator[Found]:
    """V603: the slices executed are those of the schedule (marlin-moe 5) on the cell's grid."""
    worked = bundle.worked
    locked = worked.cells.get((record.phase, record.cell, record.history, record.replicate))
    if locked is None:
        return  # V402
    for place, got in enumerate(record.treatment.gemms):
        launch = worked.launch(
            "w13" if place == 0 else "w2", grid=locked.grids[place], padded_blocks=worked.padded_blocks
        )
        if got.slices != (expected := slices_digest(launch)) and got.grid == launch.grid:
            what = f"{expected}, for {launch.padded_blocks} padded blocks on {launch.grid} CTAs"
            yield _gemm("V603", record, place, "slices", what, got.slices)


def _gemm(code: str, record: Record, place: int, key: str, expected: str, got: str) -> Found:
    where = f"treatment.gemms[{place}].{key}"
    return Found(code=code, file=record.path, key=where, expected=expected, got=got)


@record_check("V604")
def surfaces(bundle: Bundle, record: Record) -> Iterator[Found]:
    """V604: the record has every surface of the plan, in its order, and no other."""
    got = tuple(surface.name for surface in record.surfaces)
    if got != bundle.plan.surfaces:
        yield Found(
            code="V604",
            file=record.path,
            key="surfaces",
            expected=", ".join(bundle.plan.surfaces),
            got=show(", ".join(got)),
        )


@record_check("V605")
def surface_shapes(bundle: Bundle, record: Record) -> Iterator[Found]:
    """V605: every surface has the shape and type that the plan's geometry gives (marlin-moe appendix B)."""
    fixture = bundle.plan.fixture
    for place, surface in enumerate(record.surfaces):
        expected = (fixture.dtype, geometry.surface_shape(fixture, surface.name))
        if (got := (surface.dtype, surface.shape)) != expected:
            yield Found(
                code="V605",
                file=record.path,
                key=f"surfaces[{place}]",
                expected=f"{surface.name} as {expected[0]} {list(expected[1])}",
                got=f"{got[0]} {list(got[1])}",
            )


@record_check("V606")
def fixture(bundle: Bundle, record: Record) -> Iterator[Found]:
    """V606: the record was made from the fixture that the lock froze."""
    if record.fixture != (expected := bundle.lock.fixture.digest):
        yield Found(
            code="V606",
            file=record.path,
            key="fixture",
            expected=f"{expected}, the lock's fixture.digest",
            got=record.fixture,
        )


@record_check("V607")
def assumptions(bundle: Bundle, record: Record) -> Iterator[Found]:
    """V607: a record rests on assumptions of its plan only, and says so where it needs one.

    U5 where the alignment comes from an arrival that serves lanes out of order; U10 for a simulated
    activation, and U2 where it met gate values whose silu is open (marlin-moe 8.1).
    """
    allowed, said = set(bundle.plan.assumptions), set(record.assumptions)
    if extra := sorted(said - allowed):
        yield _assumption(
            record, f"some of {', '.join(bundle.plan.assumptions) or 'none'}, the plan's", ", ".join(extra)
        )
    if record.engine != "simulated":
        return
    open_values = record.activation.ambiguous_elements
    if open_values and "U2" not in said:
        yield _assumption(record, f"U2, for {open_values} ambiguous elements", "none")
    if "U10" not in said:
        yield _assumption(record, "U10, on which every simulated activation rests", "none")
    worked = bundle.worked
    cell = worked.cell.get(record.cell)
    if cell is None or record.history not in cell.histories:
        return  # V402
    built = record.history if cell.alignment == "constructed" else worked.donors[record.cell, record.history]
    if built is not None and worked.lane_order(built) and "U5" not in said:
        yield _assumption(record, f"U5, on which the arrival order of {built} rests", "none")


def _assumption(record: Record, expected: str, got: str) -> Found:
    return Found(code="V607", file=record.path, key="assumptions", expected=expected, got=got)


CHECKS = (tiles, grids, slices, surfaces, surface_shapes, fixture, assumptions)
