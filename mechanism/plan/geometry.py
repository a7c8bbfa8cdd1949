"""From a plan's numbers to the kernel's: GEMM shapes, launches, arrival orders. Pure, no numpy."""

from typing import assert_never

from ledger.plan import AnyFixture, Arrival, ExplicitArrival, IndexArrival, Plan, SeededArrival, WarpArrival
from mechanism.kernel import alignment, arrival, configuration
from mechanism.kernel.devices import Device
from mechanism.kernel.schedule import Schedule
from mechanism.values import frozen


@frozen
class Gemm:
    """One of the layer's two GEMMs. `group`: rows of K that share a scale, -1 if one row does for all."""

    name: str
    n: int
    k: int
    group: int


def gemms(fixture: AnyFixture) -> tuple[Gemm, Gemm]:
    """W13 (N = 2I, K = H) and W2 (N = H, K = I); one scale row means channelwise (marlin-moe 1.4, 9.3)."""

    def gemm(name: str, n: int, k: int) -> Gemm:
        return Gemm(name=name, n=n, k=k, group=fixture.group_size if k > fixture.group_size else -1)

    return (
        gemm("w13", 2 * fixture.intermediate, fixture.hidden),
        gemm("w2", fixture.hidden, fixture.intermediate),
    )


def block_size_m(fixture: AnyFixture) -> int:
    """Rows of a padded block (marlin-moe 2.2)."""
    return alignment.block_size_m(fixture.tokens, fixture.top_k, fixture.experts)


def device(plan: Plan) -> Device:
    """The pinned device as the kernel's host code sees it."""
    pinned = plan.build.device
    return Device(name=pinned.name, arch=pinned.arch, sms=pinned.sms, shared_memory=pinned.shared_memory)


def launch(plan: Plan, gemm: Gemm) -> configuration.Launch:
    """The pinned launch of one GEMM. Raises KernelError if the kernel has no such launch."""
    pinned = getattr(plan.build.launch, gemm.name)
    return configuration.explicit(
        device(plan),
        n=gemm.n,
        k=gemm.k,
        group=gemm.group,
        block_size_m=block_size_m(plan.fixture),
        tile_k=pinned.tile[0],
        tile_n=pinned.tile[1],
        ctas_per_sm=pinned.ctas_per_sm,
        kernel=plan.build.kernel,
    )


def schedule(plan: Plan, gemm: Gemm, *, padded_blocks: int, grid: int | None = None) -> Schedule:
    """The schedule of one GEMM on the pinned grid, or on `grid` CTAs."""
    pinned = launch(plan, gemm)
    return Schedule(
        n=gemm.n,
        k=gemm.k,
        tile_k=pinned.tile_k,
        tile_n=pinned.tile_n,
        grid=pinned.grid if grid is None else grid,
        padded_blocks=padded_blocks,
        group=gemm.group,
        kernel=plan.build.kernel,
    )


def arrival_order(given: Arrival, routes: int) -> tuple[int, ...]:
    """The permutation of all routes that a history's arrival stands for. Raises AlignmentError."""
    match given:
        case IndexArrival():
            return arrival.index_order(routes)
        case WarpArrival():
            return arrival.warp_order(routes, given.warps)
        case ExplicitArrival():
            return arrival.explicit(routes, given.routes)
        case SeededArrival():
            return arrival.seeded(routes, given.seed)
    assert_never(given)


TopkIds = tuple[tuple[int, ...], ...]


def native(plan: Plan, history: str, topk_ids: TopkIds) -> alignment.Alignment:
    """The alignment that the kernel constructs under one history of a simulated plan."""
    fixture = plan.fixture
    if plan.stable_construction:  # whatever the history
        return alignment.stable(
            topk_ids,
            experts=fixture.experts,
            block_size_m=block_size_m(fixture),
            kernel=plan.build.kernel,
        )
    return alignment.align(
        topk_ids,
        experts=fixture.experts,
        block_size_m=block_size_m(fixture),
        arrival=arrival_order(plan.histories[history].arrival, fixture.routes),
        kernel=plan.build.kernel,
    )
