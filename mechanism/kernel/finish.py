"""What is done to rounded sums before they are written: column scale, routing weight (marlin-moe 6, 7.3)."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from mechanism.kernel.alignment import Alignment
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


@lru_cache(maxsize=8)
def routes_by_block(alignment: Alignment) -> tuple[Routes, ...]:
    """Valid routes of every padded block, in slot order: ``block_routes`` of all blocks at once.

    Kept, as ``expert_of_route`` is: both GEMMs of a layer have the same alignment.
    """
    slots, valid = _slots(alignment)
    return tuple(_fixed(block[mine]) for block, mine in zip(slots, valid, strict=True))


@lru_cache(maxsize=8)
def expert_of_route(alignment: Alignment) -> Routes:
    """Expert that computes each route; -1 for a route without a slot."""
    slots, valid = _slots(alignment)
    experts = np.full(alignment.routes, -1, dtype=np.intp)
    of_slot = np.broadcast_to(np.array(alignment.expert_ids, dtype=np.intp)[:, np.newaxis], slots.shape)
    experts[slots[valid]] = of_slot[valid]
    return _fixed(experts)


def _fixed(routes: Routes) -> Routes:
    routes.flags.writeable = False
    return routes


def _slots(alignment: Alignment) -> tuple[Routes, npt.NDArray[np.bool_]]:
    """What every slot holds, (blocks, slots), and whether that is a route."""
    slots = np.array(alignment.sorted_token_ids, dtype=np.intp)
    slots = slots.reshape(len(alignment.expert_ids), alignment.block_size_m)
    return slots, slots < alignment.routes
