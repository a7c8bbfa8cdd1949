"""Slices summed by 16-bit atomics: not one output but the set of reachable ones (marlin-moe 7.4, A.1).

The fused layer of vllm 0.22.0 never asks for it; that of 0.11.0 does, for fp16.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations

import numpy as np
import numpy.typing as npt

from mechanism.kernel import versions
from mechanism.kernel.alignment import Alignment
from mechanism.kernel.configuration import Launch
from mechanism.kernel.dequantize import Weights
from mechanism.kernel.errors import KernelError
from mechanism.kernel.gemm import contributions
from mechanism.kernel.rounding import U8, U16, Stored, add, bits16, narrow, widen

MOST_SLICES = 6  # 720 orders; more slices than that are not enumerated


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Outcomes:
    """Every bit pattern that each output element can end with.

    Attributes:
        bits: (most outcomes, routes, N), ascending along axis 0, the last one repeated.
        count: (routes, N), how many there are.
    """

    bits: U16
    count: U8


def outcomes(
    a: Stored,
    weights: Weights,
    alignment: Alignment,
    launch: Launch,
    *,
    top_k: int,
    arch: str,
    kernel: str = versions.DEFAULT,
    topk_weights: npt.NDArray[np.float32] | None = None,
) -> Outcomes:
    """What one GEMM with ``use_atomic_add`` can leave, over all orders of each tile's slices.

    The elements of one run need not share an order: compare element by element. Arguments and errors as
    for ``gemm.marlin_gemm``; also raises KernelError for a tile of more than six slices.
    """
    found: list[tuple[npt.NDArray[np.intp], slice, U16]] = []
    for routes, columns, parts in contributions(
        a,
        weights,
        alignment,
        launch,
        top_k=top_k,
        arch=arch,
        kernel=kernel,
        topk_weights=topk_weights,
    ):
        if len(parts) > MOST_SLICES:
            raise KernelError(
                f"atomic sum of {len(parts)} slices: at most {MOST_SLICES} are enumerated; use a smaller grid"
            )
        found.append((routes, columns, _orders(parts, weights.dtype)))
    most = max((len(sums) for _, _, sums in found), default=1)
    every = np.zeros((most, alignment.routes, weights.n), dtype=np.uint16)
    for routes, columns, sums in found:
        every[:, routes, columns] = sums[-1]  # a repeated order adds nothing to a set
        every[: len(sums), routes, columns] = sums
    return _distinct(every)


def _orders(parts: tuple[Stored, ...], dtype: str) -> U16:
    """Bits of the sum in every order, (orders, rows, columns); one slice is stored plainly."""
    if len(parts) == 1:
        return bits16(parts[0])[np.newaxis]
    sums = []
    for order in permutations(range(len(parts))):
        total = narrow(np.zeros(parts[0].shape, dtype=np.float32), dtype)  # the zero-filled output
        for index in order:
            total = narrow(add(widen(total), widen(parts[index])), dtype)  # RN16 at every atomic
        sums.append(bits16(total))
    return np.stack(sums)


def _distinct(every: U16) -> Outcomes:
    """Ascending distinct patterns along axis 0, the largest repeated to a common length."""
    ascending = np.sort(every, axis=0)
    fresh = np.ones(ascending.shape, dtype=bool)
    fresh[1:] = ascending[1:] != ascending[:-1]
    count = fresh.sum(axis=0).astype(np.uint8)
    length = max(int(count.max(initial=1)), 1)
    order = np.argsort(~fresh, axis=0, kind="stable")  # first of each run of equals to the front
    packed = np.take_along_axis(ascending, order, axis=0)[:length]
    beyond = np.arange(length)[:, np.newaxis, np.newaxis] >= count
    return Outcomes(bits=np.where(beyond, ascending[-1], packed), count=count)
