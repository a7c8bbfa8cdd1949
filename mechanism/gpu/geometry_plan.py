"""The route-block plan of one device, made from its geometry alone: nothing in it is chosen by hand.

The published layer: 128 experts, top-8, hidden 2048, intermediate 768, group 128, 12 tokens, 50 padded
blocks. Where the boundary between whole tiles and split ones lies follows from the launch that the kernel
chooses on the device (marlin-moe 4.3) and from the schedule (5); the crowded expert is put there by dealing
so many experts before it.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ledger.fault import Fault, FaultsError
from ledger.model import read_yaml
from ledger.plan import Plan
from ledger.strict_yaml import load
from mechanism.engine import vllm_grid
from mechanism.errors import EngineError, PlanError
from mechanism.explain.choice import BlockPair, Choice
from mechanism.explain.claims import ledger_text
from mechanism.explain.exposure import CrowdedExpert
from mechanism.explain.gemms import Cuts, block_class, cuts
from mechanism.kernel import arrival
from mechanism.kernel.configuration import Launch, choose
from mechanism.kernel.devices import Device
from mechanism.kernel.schedule import Schedule
from mechanism.plan.static import static_faults

TOKENS, TOP_K, EXPERTS, HIDDEN, INTERMEDIATE, GROUP, BLOCK = 12, 8, 128, 2048, 768, 128, 8
BLOCKS = 50
#: One route for each of nine tokens: three in each of the three warps that serve 96 routes.
HOT_ROUTES = (5, 22, 28, 35, 51, 62, 75, 86, 93)
#: Experts beside the crowded one; each gets one or two routes, so one padded block.
OTHERS = BLOCKS - 2
KERNEL = "vllm==0.22.0"
_SIZES = {"w13": (2 * INTERMEDIATE, HIDDEN), "w2": (HIDDEN, INTERMEDIATE)}


@dataclass(frozen=True, kw_only=True, slots=True)
class Made:
    """A plan and its ledger as text, and what was chosen."""

    plan: str
    ledger: str
    choice: Choice


@dataclass(frozen=True, kw_only=True, slots=True)
class Boundary:
    """Where two padded blocks of one expert are cut differently, on one device.

    Attributes:
        launches: The kernel's own, of w13 and w2.
        blocks: The two padded blocks.
        w13: Their classes at W13.
        w2: Their classes at W2.
        w2_differs: Whether their slice lists differ at W2.
        expert: The crowded expert's id.
        grid: A grid that the device can be told and at which every W13 tile has one slice.
    """

    launches: dict[str, Launch]
    blocks: tuple[int, int]
    w13: tuple[str, str]
    w2: tuple[str, str]
    w2_differs: bool
    expert: int
    grid: int


def boundary(device: Device) -> Boundary:
    """The boundary on a device. Raises PlanError if its launches cut no two neighbours differently."""
    launches = {
        name: choose(device, n=n, k=k, group=GROUP, block_size_m=BLOCK, routes=TOKENS * TOP_K)
        for name, (n, k) in _SIZES.items()
    }
    at = {name: schedule(name, launch, launch.grid) for name, launch in launches.items()}
    pairs = [(first, [cuts(at["w13"], block) for block in (first, first + 1)]) for first in range(OTHERS + 1)]
    different = [(first, both) for first, both in pairs if both[0] != both[1]]
    if not different:
        raise PlanError(
            f"{device.name}: expected padded blocks that are cut differently at W13, got none of {BLOCKS}"
            f" on a grid"
            f" of {launches['w13'].grid}: alignment cannot change bits there"
        )
    first, both = min(different, key=lambda pair: (_preference(pair[1]), pair[0]))
    second = [cuts(at["w2"], block) for block in (first, first + 1)]
    return Boundary(
        launches=launches,
        blocks=(first, first + 1),
        w13=(block_class(both[0]), block_class(both[1])),
        w2=(block_class(second[0]), block_class(second[1])),
        w2_differs=second[0] != second[1],
        expert=max(first, min(EXPERTS - 1 - (OTHERS - first), EXPERTS * first // BLOCKS)),
        grid=single_slice_grid(device, launches),
    )


def _preference(both: Sequence[Cuts]) -> int:
    """A whole block beside one that is not, first of all."""
    classes = [block_class(cut) for cut in both]
    return {("direct", "split"): 0, ("direct", "mixed"): 1}.get((classes[0], classes[1]), 2)


def schedule(name: str, launch: Launch, grid: int) -> Schedule:
    """The schedule of one GEMM of the layer on a grid."""
    n, k = _SIZES[name]
    return Schedule(
        n=n,
        k=k,
        tile_k=launch.tile_k,
        tile_n=launch.tile_n,
        grid=grid,
        padded_blocks=BLOCKS,
        group=GROUP,
        kernel=KERNEL,
    )


def single_slice_grid(device: Device, launches: dict[str, Launch]) -> int:
    """The largest grid up to the launched one that splits no W13 tile and that the device can be told.

    Raises PlanError if there is none.
    """
    for grid in range(launches["w13"].grid, 0, -1):
        both = [schedule(name, launch, grid) for name, launch in launches.items()]
        if both[0].single_slice and all(_told(item, launches, device) for item in both):
            return grid
    raise PlanError(f"{device.name}: expected a grid at which every W13 tile has one slice, found none")


def _told(item: Schedule, launches: dict[str, Launch], device: Device) -> bool:
    threads = launches["w13"].threads
    try:
        vllm_grid.told(item, device, threads=threads, block_size_m=BLOCK)
    except EngineError:
        return False
    return True


def geometry_plan(
    device: Device, *, name: str, ledger: str, orders: tuple[tuple[int, ...], tuple[int, ...]] | None = None
) -> Made:
    """The plan of a device with its ledger.

    Args:
        device: What the kernel's host code asks.
        name: The plan's name.
        ledger: The ledger's name, as the plan gives it.
        orders: In which order the atomics of H0 and H1 served all routes in an earlier run; None for whole
        warps.

    Raises PlanError if the device shows nothing, or the orders differ in no membership of the crowded expert.
    """
    found = boundary(device)
    served = orders or (
        arrival.warp_order(TOKENS * TOP_K, (0, 2, 1)),
        arrival.warp_order(TOKENS * TOP_K, (1, 2, 0)),
    )
    made = _choice(found, served)
    text = "\n".join(_lines(device, found, made, name, ledger, explicit=orders is not None))
    plan = read_yaml(Plan, load(text.encode(), name=name), name=name)
    if faults := static_faults(plan):
        raise FaultsError([Fault(file=name, line=1, path=path, message=words) for path, words in faults])
    claims = ledger_text(
        made,
        name=ledger.rpartition("/")[2].removesuffix(".yaml"),
        scope=f"One synthetic layer of the published geometry on {device.name}",
        assumptions=(),
    )
    head = claims.partition("\n")[2]
    return Made(
        plan=text, ledger=f"# Claims of the plan that `mechanism gpu plan` makes\n{head}", choice=made
    )


def last_of(order: Sequence[int]) -> int:
    """The route of the crowded expert that an order serves last: it alone fills the second block."""
    hot = set(HOT_ROUTES)
    return next(route for route in reversed(order) if route in hot)


def _choice(found: Boundary, orders: tuple[tuple[int, ...], tuple[int, ...]]) -> Choice:
    ends = (last_of(orders[0]), last_of(orders[1]))
    if ends[0] == ends[1]:
        raise PlanError(
            f"expected histories that put different routes into the second block, got {ends[0]} under"
            f" both: a plan"
            " needs two; try other steps"
        )
    crowded = CrowdedExpert(
        expert=found.expert, routes=HOT_ROUTES, count=len(HOT_ROUTES), blocks=found.blocks, at=()
    )
    stay = [route for route in HOT_ROUTES if route not in ends]
    return Choice(
        pair=BlockPair(
            expert=crowded, blocks=found.blocks, w13=found.w13, w2=found.w2, w2_differs=found.w2_differs
        ),
        boundary=ends,
        within=(stay[2], stay[3]),
        orders=orders,
        grid=found.grid,
    )


def _lines(
    device: Device, found: Boundary, made: Choice, name: str, ledger: str, *, explicit: bool
) -> Iterator[str]:
    title = f"Route-block mechanism on the published geometry, {device.sms} SMs of {device.arch}"
    yield f"# {title}"
    yield "# Made from the device's geometry by `mechanism gpu plan`; made again, it is the same."
    yield "schema_version: 1"
    yield f"name: {name}"
    yield f"title: {json.dumps(title)}"
    yield "engine: vllm"
    yield f"ledger: {ledger}"
    yield from ("", "build:", f"  kernel: {KERNEL}")
    yield (
        f"  device: {{name: {device.name}, arch: {device.arch}, sms: {device.sms},"
        f" shared_memory: {device.shared_memory}}}"
    )
    yield "  launch: # tile is [thread_k, thread_n]; the grid is sms * ctas_per_sm"
    for gemm, launch in found.launches.items():
        yield (
            f"    {gemm}: {{tile: [{launch.tile_k}, {launch.tile_n}], ctas_per_sm: {launch.ctas_per_sm},"
            " chosen_by: kernel}"
        )
    yield from _fixture_lines(found)
    yield from ("", "selected_from:", f"  rule: {json.dumps(_rule(device, found))}", "  earlier_run: null")
    yield from ("", "assumptions: [] # a GPU computes what a simulation assumes", "", "histories:")
    yield from _history_lines(made, explicit=explicit)
    yield from _MATRIX.format(
        within=", ".join(map(str, made.within)),
        boundary=", ".join(map(str, made.boundary)),
        grid=made.grid,
    ).splitlines()
    yield ""


def _fixture_lines(found: Boundary) -> Iterator[str]:
    before, hot = found.blocks[0], found.expert
    yield from ("", "fixture:", "  recipe: packed-awq/1", "  seed: 2607", "  seeds_scanned: 0")
    yield from (f"  tokens: {TOKENS}", f"  experts: {EXPERTS}", f"  top_k: {TOP_K}", f"  hidden: {HIDDEN}")
    yield from (f"  intermediate: {INTERMEDIATE}", f"  group_size: {GROUP}", "  dtype: float16")
    yield from ("  twin_pairs: 0 # channels with exact opposites, to make order easy to see", "  routing:")
    yield from ("    seed: 2607", "    pinned:")
    yield f"      - {{expert: {hot}, routes: [{', '.join(map(str, HOT_ROUTES))}]}}"
    yield "    dealt:"
    if before:
        yield f"      - {{first: 0, last: {hot - 1}, count: {before}}}"
    if OTHERS - before:
        yield f"      - {{first: {hot + 1}, last: {EXPERTS - 1}, count: {OTHERS - before}}}"


def _history_lines(made: Choice, *, explicit: bool) -> Iterator[str]:
    """Steps are what is done on the GPU; the arrival is what is expected of it."""
    warps = ((0, 2, 1), (1, 2, 0))
    for name, order, warp, steps in zip(("H0", "H1"), made.orders, warps, _STEPS, strict=True):
        yield f"  {name}: # expected: route {last_of(order)} alone in the second block of the crowded expert"
        yield "    arrival:"
        if explicit:
            yield from ("      kind: explicit", "      routes: [")
            for start in range(0, len(order), 20):
                yield f"        {', '.join(map(str, order[start : start + 20]))},"
            yield "      ]"
        else:
            yield from ("      kind: warps", f"      warps: [{', '.join(map(str, warp))}]")
        yield "    steps:"
        yield from (f"      - {step}" for step in steps)


def _rule(device: Device, found: Boundary) -> str:
    w13 = found.launches["w13"]
    i, j = found.blocks
    return (
        f"The first neighbouring padded blocks of which one is whole and the next is not, at W13 with tile"
        f" {w13.tile_k}x{w13.tile_n} on {w13.grid} CTAs ({device.sms} SMs): {i} ({found.w13[0]}) and {j}"
        f" ({found.w13[1]}). {i} experts are dealt before the crowded one, so that its nine routes fill"
        f" block {i} and"
        f" start block {j}. Pairs and grid follow from the schedule; nothing was run to choose them."
    )


_STEPS = (
    ("{kind: prewarm, repeats: 3}",),
    (
        "{kind: allocate, bytes: 1048576, count: 64, keep: alternate}",
        "{kind: align, tokens: 512, top_k: 8, experts: 128, repeats: 50, seed: 1}",
        "{kind: gemm, repeats: 8, seed: 2}",
    ),
)

_MATRIX = """
surfaces: [w13, activation, w2, output]
replicates: 5
order: {{interleaved: cells, seed: 2607}}
time_limit_s: 180

# The whole environment of every cold process; nothing is inherited.
environment:
  LC_ALL: C.UTF-8
  TZ: UTC
  PYTHONHASHSEED: "0"
  PYTHONDONTWRITEBYTECODE: "1"
  OMP_NUM_THREADS: "1"
  OPENBLAS_NUM_THREADS: "1"
  MECHANISM_THREADS: "1"
  CUDA_VISIBLE_DEVICES: "0"
  KINETO_LOG_LEVEL: "5"
  MECHANISM_REPACK: cpu

phases:
  - name: qualification
    cells:
      - {{name: native, alignment: constructed, histories: [H0, H1]}}
      - {{name: replay, alignment: own, histories: [H0, H1]}}
  - name: transfer
    cells:
      - {{name: cross-order, alignment: opposite, histories: [H0, H1]}}
      - {{name: canonical, alignment: stable, histories: [H0, H1]}}
  - name: ablation
    cells:
      - name: within-block
        alignment: own
        histories: [H0, H1]
        swap: {{kind: within-block, routes: [{within}]}}
      - name: block-boundary
        alignment: own
        histories: [H0, H1]
        swap: {{kind: block-boundary, routes: [{boundary}]}}
      - name: forced-grid
        alignment: own
        histories: [H0, H1]
        grid: {grid}
        single_slice: [w13]"""
