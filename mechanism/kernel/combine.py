"""The final sum over a token's routes (marlin-moe 8.2, A.1, A.2)."""

from __future__ import annotations

import numpy as np

from mechanism.kernel import versions
from mechanism.kernel.errors import ShapeError
from mechanism.kernel.rounding import F32, Stored, add, narrow, storage, widen


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
    build = versions.version(kernel)
    if build.single_accumulator:
        return narrow(_running(terms), dtype)  # RN16, once
    if top_k in (2, 3, 4) and not build.fp32_small_sums:
        return _sixteen_bit(terms, dtype)
    return narrow(_four_accumulators(terms), dtype)  # RN16, once


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
