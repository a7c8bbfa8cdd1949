"""Rules that a plan must keep before anything can be worked out from it, and bounds on the work itself.

A bundle is a stranger's: its plan may ask for 2^50 tiles. Every loop of this package runs over numbers
that passed here first.
"""

from collections.abc import Iterator

from ledger.plan import Cell, Plan
from verifier.arithmetic import geometry
from verifier.arithmetic.arrival import arrival_order
from verifier.arithmetic.cells import grids

MAX_ROUTES = 2**17
MAX_TILES = 2**17
MAX_GRID = 2**16
MAX_PROCESSES = 1_000_000
MAX_SLOTS = 2**22  # slots of all alignments that the plan asks for together
MAX_LAUNCHES = 64  # distinct schedules
MAX_EXPERTS = 992  # rounded up to 32 it must stay below 1024 (marlin-moe 2.3)

Fault = tuple[str, str, str]  # key, expected, got


def plan_faults(plan: Plan) -> tuple[Fault, ...]:
    """Everything that keeps a plan from being worked out, as (key, expected, got); empty if nothing.

    Steps: 1 names, 2 histories, 3 treatments, 4 size, 5 shapes and tiles, 6 arrivals.
    """
    found = [*_names(plan), *_histories(plan), *_treatments(plan), *_size(plan)]
    if not found:
        found = [*_shapes(plan), *_arrivals(plan)]
    return tuple(found)


def _cells(plan: Plan) -> Iterator[tuple[str, Cell]]:
    for p, phase in enumerate(plan.phases):
        for c, cell in enumerate(phase.cells):
            yield f"phases[{p}].cells[{c}]", cell


def _names(plan: Plan) -> Iterator[Fault]:
    phases = [phase.name for phase in plan.phases]
    for name in sorted({name for name in phases if phases.count(name) > 1}):
        yield "phases", "each phase once", f"{name} again"
    names = [cell.name for _, cell in plan.cells()]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield "phases", "each cell once, since claims cite cells by name", f"{name} again"


def _histories(plan: Plan) -> Iterator[Fault]:
    for key, cell in _cells(plan):
        for history in cell.histories:
            if history not in plan.histories:
                yield f"{key}.histories", f"one of the plan's ({', '.join(plan.histories)})", history


def _treatments(plan: Plan) -> Iterator[Fault]:
    built = {
        history for _, cell in plan.cells() if cell.alignment == "constructed" for history in cell.histories
    }
    for key, cell in _cells(plan):
        if cell.alignment == "opposite" and len(cell.histories) != 2:
            yield f"{key}.histories", "two histories, for an opposite to be one", str(len(cell.histories))
        if cell.alignment in {"own", "opposite"}:
            for history in cell.histories:
                if history not in built:
                    yield f"{key}.alignment", f"a cell that constructs the alignment of {history}", "none"
        if cell.swap is None:
            continue
        if cell.alignment == "constructed":
            yield f"{key}.swap", "a swap in an injected alignment", "alignment: constructed"
        if cell.swap.routes[0] == cell.swap.routes[1]:
            yield f"{key}.swap", "two routes", f"{cell.swap.routes[0]} twice"
        if max(cell.swap.routes) >= plan.fixture.routes:
            yield f"{key}.swap", f"routes below {plan.fixture.routes}", str(max(cell.swap.routes))


def _size(plan: Plan) -> Iterator[Fault]:
    fixture = plan.fixture
    arms = sum(len(cell.histories) for _, cell in plan.cells())
    launches = {(gemm, grid) for _, cell in plan.cells() for gemm, grid in enumerate(grids(plan, cell))}
    limits = (
        ("fixture", "routes", fixture.routes, MAX_ROUTES),
        ("fixture.experts", "experts", fixture.experts, MAX_EXPERTS),
        ("fixture.top_k", "routes of a token", fixture.top_k, fixture.experts),
        ("phases", "processes", arms * plan.replicates, MAX_PROCESSES),
        ("phases", "schedules", len(launches), MAX_LAUNCHES),
        ("build.launch", "CTAs", max(grid for _, grid in launches), MAX_GRID),
        (
            "phases",
            "alignment slots",
            (arms + len(plan.histories)) * (fixture.routes + 63 * min(fixture.experts, fixture.routes)),
            MAX_SLOTS,
        ),
    )
    for key, what, got, most in limits:
        if got > most:
            yield key, f"at most {most} {what}", str(got)


def _shapes(plan: Plan) -> Iterator[Fault]:
    fixture = plan.fixture
    if plan.build.kernel not in geometry.KERNELS:
        yield (
            "build.kernel",
            f"a build whose schedule is known ({', '.join(geometry.KERNELS)})",
            plan.build.kernel,
        )
    for key in ("hidden", "intermediate"):
        if (size := getattr(fixture, key)) % fixture.group_size:
            yield f"fixture.{key}", f"a multiple of the group size {fixture.group_size}", str(size)
    block = geometry.block_size(fixture.tokens, fixture.top_k, fixture.experts)
    most_blocks = fixture.routes // block + fixture.experts
    for shape in geometry.shapes(fixture):
        key = f"build.launch.{shape.name}.tile"
        tile_k, tile_n = getattr(plan.build.launch, shape.name).tile
        if shape.k % tile_k or shape.n % tile_n:
            yield key, f"a tile that divides K {shape.k} and N {shape.n}", f"[{tile_k}, {tile_n}]"
        elif most_blocks * (shape.n // tile_n) > MAX_TILES:
            yield key, f"at most {MAX_TILES} tiles", str(most_blocks * (shape.n // tile_n))
        elif shape.group >= tile_k and shape.group % tile_k:
            yield key, f"a thread_k that divides the group {shape.group}, or is larger", str(tile_k)


def _arrivals(plan: Plan) -> Iterator[Fault]:
    for name, history in plan.histories.items():
        try:
            arrival_order(history.arrival, plan.fixture.routes)
        except ValueError as fault:
            expected, _, got = str(fault).removeprefix("expected ").partition(", got ")
            yield f"histories.{name}.arrival", expected, got
