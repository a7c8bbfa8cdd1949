"""Which expert, blocks and routes show the effect best on a geometry, and the arrival orders for it. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mechanism.explain.answer import Answer, Layer
from mechanism.explain.errors import ExplainError
from mechanism.explain.exposure import CrowdedExpert
from mechanism.explain.gemms import Cuts, block_class, cuts
from mechanism.explain.remedies import single_slice_grid
from mechanism.explain.words import why_not
from mechanism.kernel.arrival import relies_on_lane_order

_LARGE = 1024  # routes from which on no batch takes the small-batch variant (2.4)


@dataclass(frozen=True, kw_only=True, slots=True)
class BlockPair:
    """Two padded blocks of one expert: their classes at W13 and W2, and whether W2's slice lists differ."""

    expert: CrowdedExpert
    blocks: tuple[int, int]
    w13: tuple[str, str]
    w2: tuple[str, str]
    w2_differs: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """What the experiment is made of.

    Attributes:
        pair: The two padded blocks.
        boundary: Routes a and b: H0 puts a into the second block, H1 puts b there.
        within: Two routes that share the first block under both histories.
        orders: Arrival orders of H0 and H1, permutations of all routes.
        grid: A grid at which every W13 tile has one slice.
    """

    pair: BlockPair
    boundary: tuple[int, int]
    within: tuple[int, int]
    orders: tuple[tuple[int, ...], tuple[int, ...]]
    grid: int


def choose(answer: Answer) -> Choice:
    """The experiment for an exposed batch.

    Raises:
        ExplainError: Nothing is exposed at W13, or the build cannot be claimed about; with the way out.
    """
    layer = require_layer(answer)
    pairs = [pair for expert in layer.exposed for pair in _pairs(layer, expert)]
    if not pairs:
        raise ExplainError(
            "--write-plan: expected an expert whose padded blocks are cut differently at W13, got none:"
            " only W2's"
            " differ here, and a boundary treatment needs W13's; try other --tokens, --seed or --routes"
        )
    # best: a direct block against a split one, then blocks next to each other, then the first
    pair = min(pairs, key=lambda p: (p.w13 != ("direct", "split"), p.blocks[1] - p.blocks[0], p.blocks))
    grid = single_slice_grid(layer.gemms[0], answer.question.kernel)
    if grid is None:
        raise ExplainError(
            "--write-plan: expected a grid at which every W13 tile has one slice, found none; try other"
            " --tokens, or --launch"
        )
    boundary, orders = _orders(layer, pair)
    size = layer.block_size_m
    start = (pair.blocks[0] - pair.expert.blocks[0]) * size
    stay = [route for route in pair.expert.routes[start : start + size] if route not in boundary]
    return Choice(pair=pair, boundary=boundary, within=(stay[0], stay[1]), orders=orders, grid=grid)


def require_layer(answer: Answer) -> Layer:
    """The layer, if a simulated plan can show its case.

    Raises:
        ExplainError: It cannot; with the way out.
    """
    layer, asked = answer.layer, answer.question
    why = None
    if layer is None:
        why = f"a layer that takes this kernel, got: {answer.path.obstacles[0].says}"
    elif asked.kernel == "vllm==0.11.0":
        why = (
            "a build whose split tiles repeat, got vllm==0.11.0, which sums them by atomics; use"
            " --kernel vllm==0.22.0"
        )
    elif asked.dtype != "float16":
        why = f"float16, the only format of the fixture's recipe, got {asked.dtype}; use --dtype float16"
    elif answer.path.kind != "marlin":
        why = "AWQ weights with zero points, the only ones of the fixture's recipe; use --group-size"
    elif answer.verdict != "yes":
        why = f"an exposed batch, got verdict {answer.verdict}{_way_out(answer, layer)}"
    if layer is None or why is not None:
        raise ExplainError(f"--write-plan: expected {why}")
    return layer


def _way_out(answer: Answer, layer: Layer) -> str:
    """Why this batch is not exposed, as far as that is known, and what could make another one so."""
    if answer.verdict == "unknown":
        return "; settle tile and grid with --launch"
    if layer.variant == "small-batch":
        enough = -(-_LARGE // answer.question.model.top_k)
        return f": {why_not(layer)}; use --tokens {enough} or more"
    return f": {why_not(layer)}; try other --tokens, --seed, --routing or --routes"


def _pairs(layer: Layer, expert: CrowdedExpert) -> Iterator[BlockPair]:
    """Every two blocks of an expert whose W13 slice lists differ."""
    at: dict[str, dict[int, Cuts]] = {
        gemm.shape.name: {block: cuts(gemm.split.schedule, block) for block in expert.blocks}
        for gemm in layer.gemms
        if gemm.split is not None
    }
    for i, j in itertools.combinations(expert.blocks, 2):
        if at["w13"][i] != at["w13"][j]:
            yield BlockPair(
                expert=expert,
                blocks=(i, j),
                w13=(block_class(at["w13"][i]), block_class(at["w13"][j])),
                w2=(block_class(at["w2"][i]), block_class(at["w2"][j])),
                w2_differs=at["w2"][i] != at["w2"][j],
            )


def _orders(layer: Layer, pair: BlockPair) -> tuple[tuple[int, int], tuple[tuple[int, ...], tuple[int, ...]]]:
    """The two routes, and the orders that serve one of them late enough for the second block.

    Preferred are two routes whose orders keep the lanes of every warp ascending (without U5).
    """
    size, routes, first = layer.block_size_m, pair.expert.routes, pair.expert.blocks[0]
    start = (pair.blocks[0] - first) * size
    last = min((pair.blocks[1] - first + 1) * size, len(routes)) - 1  # the last slot of the second block
    candidates = routes[start : start + size]
    total = len(layer.topk_ids) * len(layer.topk_ids[0])

    def late(route: int) -> tuple[int, ...]:
        others = [other for other in routes if other != route]
        served = iter([*others[:last], route, *others[last:]])
        own = set(routes)
        return tuple(next(served) if item in own else item for item in range(total))

    free = [route for route in candidates if not relies_on_lane_order(late(route), layer.topk_ids)]
    a, b = _two(free if len(free) > 1 else candidates)
    return (a, b), (late(a), late(b))


def _two(routes: Sequence[int]) -> tuple[int, int]:
    """The last two: the shortest way to the next block."""
    return routes[-2], routes[-1]
