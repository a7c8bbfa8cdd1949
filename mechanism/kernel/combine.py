"""The final sum over a token's routes (marlin-moe 8.2, A.1, A.2)."""

from __future__ import annotations

from enum import Enum

import numpy as np

from mechanism.kernel import versions
from mechanism.kernel.errors import ShapeError
from mechanism.kernel.rounding import F32, Stored, add, narrow, storage, widen


class Order(Enum):
    """Which additions make a sum of routes."""

    FOUR = "four"  # four fp32 accumulators, added up at the end
    ONE = "one"  # one fp32 accumulator
    SIXTEEN = "sixteen"  # every partial sum is rounded to 16 bits


def order(top_k: int, kernel: str) -> Order:
    """Those of a build, for so many routes (8.2, A.1, A.2)."""
    build = versions.version(kernel)
    if build.single_accumulator:
        return Order.ONE
    return Order.SIXTEEN if top_k in (2, 3, 4) and not build.fp32_small_sums else Order.FOUR


def moe_sum(routed: Stored, *, top_k: int, dtype: str = "float16", kernel: str = versions.DEFAULT) -> Stored:
    """Sum of the routes of every token, in the build's order of additions.

    Args:
        routed: (tokens * top_k, H), the W2 surface.
        top_k: Routes per token.
        dtype: ``float16`` or ``bfloat16`` (bit patterns in uint16).
        kernel: Build, as in ``versions``.

    Returns:
        (tokens, H), same storage.

    Raises:
        ShapeError: Rows are no multiple of top_k, or of another dtype.
    """
    if routed.ndim != 2 or top_k < 1 or routed.shape[0] % top_k or routed.dtype != storage(dtype):
        raise ShapeError(
            f"routed: expected {storage(dtype)} (tokens * {top_k}, H), got {routed.dtype} {routed.shape}"
        )
    terms = [widen(routed[route::top_k]) for route in range(top_k)]  # each small enough for a cache
    how = order(top_k, kernel)
    if how is Order.SIXTEEN:
        return _sixteen_bit(terms, dtype)
    total = _running(terms) if how is Order.ONE else _four_accumulators(terms)
    return narrow(total, dtype)  # RN16, once


def _running(terms: list[F32]) -> F32:
    total: F32 = np.zeros_like(terms[0])
    for term in terms:
        total = add(total, term)  # RNE, fp32
    return total


def _sixteen_bit(terms: list[F32], dtype: str) -> Stored:
    """Every partial sum is a 16-bit value; fp32 is wide enough that its own rounding never shows."""
    total = narrow(np.zeros_like(terms[0]), dtype)
    for term in terms:
        total = narrow(add(widen(total), term), dtype)  # RN16
    return total


def _four_accumulators(terms: list[F32]) -> F32:
    """PyTorch's reduction: route i goes to accumulator i mod 4, then ((A0 + A1) + A2) + A3."""
    sums = [np.zeros_like(terms[0]) for _ in range(4)]
    for index, term in enumerate(terms):
        sums[index % 4] = add(sums[index % 4], term)  # RNE, fp32
    return add(add(add(sums[0], sums[1]), sums[2]), sums[3])
