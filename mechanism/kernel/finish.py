"""What is done to rounded sums before they are written: column scale, routing weight (marlin-moe 6, 7.3)."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from mechanism.kernel.alignment import Alignment, block_routes
from mechanism.kernel.dequantize import Weights
from mechanism.kernel.rounding import F32, Stored, multiply, narrow, widen

Routes = npt.NDArray[np.intp]


def finish(
    output: Stored,
    weights: Weights,
    experts: Routes,
    topk_weights: F32 | None,
    columns: slice = slice(None),
) -> Stored:
    """Column scale of a channelwise GEMM (6.6), then routing weight (7.3); one rounding each.

    Args:
        output: (rows, columns), 16 bits.
        weights: For their scales.
        experts: Expert of each row.
        topk_weights: fp32 (rows,), or None.
        columns: Which of N these are.
    """
    if weights.group == -1:
        scales = widen(weights.scales[:, 0, columns][experts])
        output = multiply(widen(output), scales, weights.dtype)
    if topk_weights is not None:
        output = multiply(widen(output), factors(topk_weights, weights.dtype)[:, np.newaxis], weights.dtype)
    return output


def factors(topk_weights: F32, dtype: str) -> F32:
    """Routing weights as they are multiplied in: rounded to 16 bits, once per slot."""
    return widen(narrow(topk_weights, dtype))


@lru_cache(maxsize=32)
def routes_by_block(alignment: Alignment) -> tuple[Routes, ...]:
    """Valid routes of every padded block, in slot order. Kept: both GEMMs of a layer ask for them."""
    blocks = range(len(alignment.expert_ids))
    found = tuple(np.array(block_routes(alignment, block), dtype=np.intp) for block in blocks)
    for routes in found:
        routes.flags.writeable = False
    return found


@lru_cache(maxsize=32)
def expert_of_route(alignment: Alignment) -> Routes:
    """Expert that computes each route; -1 for a route without a slot. Kept likewise."""
    experts = np.full(alignment.routes, -1, dtype=np.intp)
    for routes, expert in zip(routes_by_block(alignment), alignment.expert_ids, strict=True):
        experts[routes] = expert
    experts.flags.writeable = False
    return experts
