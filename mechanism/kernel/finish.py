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


def routes_by_block(alignment: Alignment) -> tuple[Routes, ...]:
    """Valid routes of every padded block, in slot order: ``block_routes`` of all blocks at once."""
    return _places(*_slots(alignment))[0]


def expert_of_route(alignment: Alignment) -> Routes:
    """Expert that computes each route; -1 for a route without a slot."""
    return _places(*_slots(alignment))[1]


def _slots(alignment: Alignment) -> tuple[int, int, tuple[int, ...], tuple[int, ...]]:
    """What decides the places of routes, in tuples whatever the alignment was made of."""
    ids = tuple(alignment.sorted_token_ids), tuple(alignment.expert_ids)
    return alignment.routes, alignment.block_size_m, *ids


@lru_cache(maxsize=8)
def _places(
    routes: int, block_size_m: int, sorted_token_ids: tuple[int, ...], expert_ids: tuple[int, ...]
) -> tuple[tuple[Routes, ...], Routes]:
    """Routes of every block, and expert of every route. Kept: a layer's GEMMs have the same alignment."""
    slots = np.array(sorted_token_ids, dtype=np.intp).reshape(len(expert_ids), block_size_m)
    valid = slots < routes
    experts = np.full(routes, -1, dtype=np.intp)
    of_slot = np.broadcast_to(np.array(expert_ids, dtype=np.intp)[:, np.newaxis], slots.shape)
    experts[slots[valid]] = of_slot[valid]
    blocks = tuple(block[mine] for block, mine in zip(slots, valid, strict=True))
    for made in (*blocks, experts):
        made.flags.writeable = False
    return blocks, experts
