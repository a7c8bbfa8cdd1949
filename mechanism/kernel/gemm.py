"""The Marlin GEMM under a schedule: every slice, every rounding, in the kernel's order (marlin-moe 6, 7, 10).

Only valid rows are computed: padding rows never influence them (9.1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from mechanism.kernel import versions
from mechanism.kernel.alignment import Alignment
from mechanism.kernel.configuration import Launch
from mechanism.kernel.dequantize import Weights, from_planes
from mechanism.kernel.errors import ShapeError
from mechanism.kernel.finish import expert_of_route, finish
from mechanism.kernel.rounding import Stored, narrow, storage
from mechanism.kernel.shapes import require_gemm
from mechanism.kernel.sums import SliceSums
from mechanism.values import frozen

Executed = tuple[tuple[int, int, tuple[tuple[int, int, int], ...]], ...]
"""(block, column tile, ((cta, begin, end), ...)) of every tile; slices in ascending k, in k-tiles."""


@frozen(eq=False)
class Gemm:
    """What one launch left behind.

    Attributes:
        output: (routes, N), float16, or uint16 holding bf16 bits.
        executed: The slices that were summed, as recorded while summing them.
        unwritten: Routes that no slot holds; their rows are 0 here and stale memory on a GPU (9.1).
    """

    output: Stored
    executed: Executed
    unwritten: tuple[int, ...]


Multiply = Callable[..., Gemm]
"""An implementation of the GEMM: called like ``marlin_gemm``, with the same bits."""


def marlin_gemm(  # noqa: PLR0913 - the operator's own arguments, named at every call
    a: Stored,
    weights: Weights,
    alignment: Alignment,
    launch: Launch,
    *,
    top_k: int,
    arch: str,
    kernel: str = versions.DEFAULT,
    topk_weights: npt.NDArray[np.float32] | None = None,
    fp32_reduce: bool = True,
    summed: Callable[..., SliceSums] = SliceSums,
) -> Gemm:
    """One grouped GEMM, bit for bit.

    Args:
        a: Activations (size_m, K); output row r reads row ``r // top_k``. float16, or uint16 bf16 bits.
        weights: Packed weights of all local experts.
        alignment: Slots and blocks; ``routes`` must be size_m * top_k.
        launch: Tile and grid.
        top_k: The kernel's argument: routes per row of ``a`` (1 for the second GEMM of a layer).
        arch: Architecture whose tensor core computes.
        kernel: Build, as in ``versions``.
        topk_weights: fp32 (routes,), multiplied in after all reductions; None for the first GEMM.
        fp32_reduce: False sends the running sum through the output in 16 bits (7.4).
        summed: What sums the slices.

    Returns:
        Output (routes, N) and the slices that were executed.

    Raises:
        ShapeError: Something the operator refuses (9.3), or sizes that do not fit together.
    """
    _require(a, weights, alignment, launch, top_k=top_k, topk_weights=topk_weights)
    sums = summed(a, weights, alignment, launch, top_k=top_k, arch=arch, kernel=kernel)
    output = sums.finished(topk_weights, fp32_reduce=fp32_reduce)
    unwritten = tuple(np.flatnonzero(expert_of_route(alignment) < 0).tolist())
    output[list(unwritten)] = 0
    return Gemm(output=output, executed=sums.executed(), unwritten=unwritten)


def contributions(
    a: Stored,
    weights: Weights,
    alignment: Alignment,
    launch: Launch,
    *,
    top_k: int,
    arch: str,
    kernel: str = versions.DEFAULT,
    topk_weights: npt.NDArray[np.float32] | None = None,
) -> Iterator[tuple[npt.NDArray[np.intp], slice, tuple[Stored, ...]]]:
    """What each slice adds when slices meet in fp16 atomics (7.4): routes, byte columns, one array a slice.

    Each slice is rounded to 16 bits, then multiplied by column scale and routing weight, rounding each
    time. Arrays are (rows, 2, byte columns), columns in plane order. Arguments as for ``marlin_gemm``.
    """
    _require(a, weights, alignment, launch, top_k=top_k, topk_weights=topk_weights)
    experts = expert_of_route(alignment)
    for tile in SliceSums(a, weights, alignment, launch, top_k=top_k, arch=arch, kernel=kernel):
        width = slice(4 * (tile.columns.start // 4) * 2, 4 * (tile.columns.stop // 4) * 2)
        chosen = None if topk_weights is None else topk_weights[tile.routes]
        finished = tuple(
            finish(narrow(from_planes(part), weights.dtype), weights, experts[tile.routes], chosen, width)
            for part in tile.slices
        )
        yield tile.routes, width, finished


def _require(
    a: Stored,
    weights: Weights,
    alignment: Alignment,
    launch: Launch,
    *,
    top_k: int,
    topk_weights: npt.NDArray[np.float32] | None,
) -> None:
    """What the operator checks (9.3) and, because nobody else does, the ranges of the alignment's ids."""
    require_gemm(
        n=weights.n,
        k=weights.k,
        group=weights.group,
        block_size_m=alignment.block_size_m,
        tile_k=launch.tile_k,
        tile_n=launch.tile_n,
    )
    if a.ndim != 2 or a.dtype != storage(weights.dtype):
        raise ShapeError(
            f"a: expected {storage(weights.dtype)} (size_m, {weights.k}), got {a.dtype} {a.shape}"
        )
    if a.shape != (alignment.routes // max(top_k, 1), weights.k) or a.shape[0] * top_k != alignment.routes:
        raise ShapeError(
            f"a: expected (routes / top_k, K) = ({alignment.routes} / {top_k}, {weights.k}), got {a.shape};"
            " is the alignment of another layer?"
        )
    if topk_weights is not None and (
        topk_weights.shape != (alignment.routes,) or topk_weights.dtype != np.float32
    ):
        raise ShapeError(
            f"topk_weights: expected float32 ({alignment.routes},),"
            f" got {topk_weights.dtype} {topk_weights.shape}"
        )
    _require_ids("expert_ids", alignment.expert_ids, weights.experts - 1)
    _require_ids("sorted_token_ids", alignment.sorted_token_ids, alignment.routes)
    if len(alignment.sorted_token_ids) != len(alignment.expert_ids) * alignment.block_size_m:
        raise ShapeError(
            f"sorted_token_ids: expected {len(alignment.expert_ids)} blocks of {alignment.block_size_m},"
            f" got {len(alignment.sorted_token_ids)} slots"
        )


def _require_ids(name: str, ids: Sequence[int], largest: int) -> None:
    for index, value in enumerate(ids):
        if not 0 <= value <= largest:
            raise ShapeError(f"{name}[{index}]: expected 0..{largest}, got {value}")
