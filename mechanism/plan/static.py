"""Rules a plan must keep that need the plan alone: names, histories, shapes, launches, arrivals."""

from collections.abc import Iterator

from ledger.fault import Path
from ledger.plan import STABLE_CONSTRUCTION, Cell, Fixture, Plan
from mechanism.fixture.layout import geometry_faults
from mechanism.fixture.routing_rules import routing_faults
from mechanism.kernel import arrival, configuration, versions
from mechanism.kernel.alignment import variant
from mechanism.kernel.devices import rests_on_driver_counts
from mechanism.kernel.errors import KernelError
from mechanism.kernel.shapes import gemm_faults, layer_faults
from mechanism.plan import geometry

Found = Iterator[tuple[Path, str]]


def static_faults(plan: Plan) -> list[tuple[Path, str]]:
    """Everything that keeps the plan from being run, whatever its routing turns out to be.

    Steps: 1 names, 2 histories of cells, 3 alignments and swaps, 4 kernel and shapes, 5 launches, 6 arrivals.
    """
    found = [*_names(plan), *_cell_histories(plan), *_alignments(plan), *_shapes(plan)]
    if not found:  # launches and arrivals can only be worked out for shapes and histories that exist
        found += [*_launches(plan), *_arrivals(plan)]
    return found


def cells_with_path(plan: Plan) -> Iterator[tuple[Path, Cell]]:
    """Every cell with the path of its key in the plan."""
    for p, phase in enumerate(plan.phases):
        for c, cell in enumerate(phase.cells):
            yield ("phases", p, "cells", c), cell


def _names(plan: Plan) -> Found:
    """Step 1: phases and cells are named once; claims cite cells by name alone."""
    seen: set[str] = set()
    for p, phase in enumerate(plan.phases):
        if phase.name in {earlier.name for earlier in plan.phases[:p]}:
            yield ("phases", p, "name"), f"expected each phase once, got {phase.name} again"
    for path, cell in cells_with_path(plan):
        if cell.name in seen:
            yield (*path, "name"), f"expected each cell once, got {cell.name} again; rename one"
        seen.add(cell.name)


def _cell_histories(plan: Plan) -> Found:
    """Step 2: a cell runs under histories that the plan defines."""
    switch = plan.environment.get(STABLE_CONSTRUCTION, "0")
    if switch not in ("0", "1"):
        yield ("environment", STABLE_CONSTRUCTION), f"expected 0 or 1, got {switch}"
    defined = ", ".join(plan.histories)
    for path, cell in cells_with_path(plan):
        for place, history in enumerate(cell.histories):
            if history not in plan.histories:
                yield (
                    (*path, "histories", place),
                    f"expected histories that are defined ({defined}), got {history}; define it under"
                    " `histories`, or name another",
                )


def _alignments(plan: Plan) -> Found:
    """Step 3: what is injected must have been constructed; a swap needs an injected alignment."""
    constructed = {
        history for _, cell in plan.cells() if cell.alignment == "constructed" for history in cell.histories
    }
    for path, cell in cells_with_path(plan):
        here = (*path, "alignment")
        if cell.alignment == "opposite" and len(cell.histories) != 2:
            yield here, f"expected two histories with an opposite alignment, got {len(cell.histories)}"
        if cell.alignment in {"own", "opposite"}:
            lacking = [history for history in cell.histories if history not in constructed]
            if lacking:
                yield (
                    here,
                    "expected a cell with alignment: constructed for every history whose alignment is"
                    f" injected, got none for {', '.join(lacking)}; add one",
                )
        if cell.swap is not None and cell.alignment == "constructed":
            yield (*path, "swap"), "expected a swap in an injected alignment, got alignment: constructed"
        if cell.swap is not None and cell.swap.routes[0] == cell.swap.routes[1]:
            yield (*path, "swap", "routes"), f"expected two routes, got {cell.swap.routes[0]} twice"


def _shapes(plan: Plan) -> Found:
    """Step 4: a kernel whose arithmetic is known, and a layer that takes its path (marlin-moe 3, 9)."""
    fixture = plan.fixture
    if plan.build.kernel not in versions.VERSIONS:
        known = ", ".join(versions.VERSIONS)
        yield (
            ("build", "kernel"),
            f"expected a build whose arithmetic is known ({known}), got {plan.build.kernel}",
        )
    dealt = routing_faults(fixture) if isinstance(fixture, Fixture) else ()
    for keys, message in (*geometry_faults(fixture), *dealt):
        yield ("fixture", *keys), message
    for message in layer_faults(
        hidden=fixture.hidden, intermediate=fixture.intermediate, group=fixture.group_size
    ):
        key = message.partition(" ")[0]  # a rule starts with the size that it is about
        yield (("fixture", key) if hasattr(fixture, key) else ("fixture",)), message
    for gemm in geometry.gemms(fixture):
        tile_k, tile_n = getattr(plan.build.launch, gemm.name).tile
        rules = gemm_faults(
            n=gemm.n,
            k=gemm.k,
            group=gemm.group,
            block_size_m=geometry.block_size_m(fixture),
            tile_k=tile_k,
            tile_n=tile_n,
        )
        for message in rules:
            yield ("build", "launch", gemm.name), message
    if fixture.top_k > fixture.experts:
        yield (
            ("fixture", "top_k"),
            f"expected at most {fixture.experts} experts per token, got {fixture.top_k}",
        )
    routes = fixture.routes
    if variant(routes, fixture.experts) == "small-batch":
        yield (
            ("fixture", "experts"),
            f"expected an alignment decided by atomics (1024 routes or more, or more than 64 experts), got"
            f" {routes} routes to {fixture.experts} experts: their order is fixed, so histories cannot differ"
            f" (marlin-moe 2.4)",
        )


def _launches(plan: Plan) -> Found:
    """Step 5: the pinned launch exists, and is the kernel's own choice where the plan says so."""
    fixture = plan.fixture
    for gemm in geometry.gemms(fixture):
        path = ("build", "launch", gemm.name)
        pinned = getattr(plan.build.launch, gemm.name)
        try:
            geometry.launch(plan, gemm)
            if pinned.chosen_by != "kernel":
                continue
            choice = configuration.choose(
                geometry.device(plan),
                n=gemm.n,
                k=gemm.k,
                group=gemm.group,
                block_size_m=geometry.block_size_m(fixture),
                routes=fixture.routes,
                dtype=fixture.dtype,
                kernel=plan.build.kernel,
            )
        except KernelError as fault:
            yield path, str(fault)
            continue
        wanted = ((choice.tile_k, choice.tile_n), choice.ctas_per_sm)
        if (pinned.tile, pinned.ctas_per_sm) != wanted:
            yield (
                path,
                f"expected the kernel's own choice, tile [{choice.tile_k}, {choice.tile_n}] with"
                f" {choice.ctas_per_sm} CTAs per SM (marlin-moe 4.3), got tile {list(pinned.tile)} with"
                f" {pinned.ctas_per_sm}; pin that, or say chosen_by: plan",
            )


def _arrivals(plan: Plan) -> Found:
    """Step 6: an arrival is a permutation of the routes (marlin-moe 2.4); steps need a GPU to be done on."""
    for name, history in plan.histories.items():
        if history.steps and plan.engine == "simulated":
            yield (
                ("histories", name, "steps"),
                f"expected no steps in a simulated plan, got {len(history.steps)}: they are done on a GPU",
            )
        try:
            geometry.arrival_order(history.arrival, plan.fixture.routes)
        except KernelError as fault:
            arrival_key = {"explicit": ("routes",), "warps": ("warps",)}.get(history.arrival.kind, ())
            yield ("histories", name, "arrival", *arrival_key), str(fault)


def needed_assumptions(plan: Plan, topk_ids: geometry.TopkIds) -> dict[str, str]:
    """The assumptions a simulated run of this plan rests on, each with the reason in words."""
    if plan.engine != "simulated":
        return {}  # a GPU computes what is assumed elsewhere; what it launched is read back
    fixture, kernel = plan.fixture, plan.build.kernel
    orders = [geometry.arrival_order(history.arrival, fixture.routes) for history in plan.histories.values()]
    lanes = not plan.stable_construction and any(
        arrival.relies_on_lane_order(order, topk_ids) for order in orders
    )
    reasons = {
        "U1": (
            rests_on_driver_counts(plan.build.device.arch),
            "register counts come from the driver's compiler",
        ),
        "U2": (True, "silu of 15 gate values is open, and a simulated run takes one candidate"),
        "U3": (True, "only valid rows are computed, wherever they sit in their block"),
        "U5": (lanes, "an arrival order serves lanes of one warp out of lane order"),
        "U7": (
            fixture.top_k == 1 or fixture.top_k >= 64,
            f"the final sum for top_k {fixture.top_k} is not verified",
        ),
        "U8": (kernel == "vllm==0.11.0", "its PyTorch is assumed to sum in the order of 2.11"),
        "U9": (kernel == "vllm==0.29.0", "Marlin is assumed to be its choice for AWQ with zero points"),
        "U10": (True, "only the listed gate values are taken to depend on EX2"),
    }
    return {name: reason for name, (needs, reason) in reasons.items() if needs}
