"""Slices summed by 16-bit atomics: not one output but the set of reachable ones (marlin-moe 7.4, A.1).

The fused layer of vllm 0.22.0 never asks for it; that of 0.11.0 does, for fp16.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, permutations

import numpy as np
import numpy.typing as npt

from mechanism.kernel import versions
from mechanism.kernel.alignment import Alignment
from mechanism.kernel.arrival import seeded
from mechanism.kernel.configuration import Launch
from mechanism.kernel.dequantize import Weights
from mechanism.kernel.errors import KernelError
from mechanism.kernel.gemm import contributions
from mechanism.kernel.rounding import U16, Stored, add, bits16, narrow, widen

MOST_SLICES = 6  # 720 orders; more slices than that are enumerated for nobody, sampled if asked


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class Sampled:
    """Tiles of which not every order was tried, so that the outcomes found are some of the reachable ones.

    Attributes:
        slices: Slices of such a tile.
        orders: Distinct orders that were tried, the same ones for each such tile.
        of: How many there are: slices factorial.
        seed: What they were drawn from.
    """

    slices: int
    orders: int
    of: int
    seed: int


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Outcomes:
    """The bit patterns that each output element can end with: all of them, unless `sampled` says otherwise.

    Attributes:
        bits: (most outcomes, routes, N), ascending along axis 0, the last one repeated.
        count: (routes, N), how many there are.
        sampled: For each number of slices of which a sample of the orders was tried, how large a one; empty
            if every order of every tile was.
    """

    bits: U16
    count: U16
    sampled: tuple[Sampled, ...] = ()


def outcomes(  # noqa: PLR0913 - those of `marlin_gemm`, and which orders
    a: Stored,
    weights: Weights,
    alignment: Alignment,
    launch: Launch,
    *,
    top_k: int,
    arch: str,
    kernel: str = versions.DEFAULT,
    topk_weights: npt.NDArray[np.float32] | None = None,
    sample: int | None = None,
    seed: int = 0,
) -> Outcomes:
    """What one GEMM with ``use_atomic_add`` can leave, over all orders of each tile's slices, or a sample.

    The elements of one run need not share an order: compare element by element. Other arguments and errors
    as for ``gemm.marlin_gemm``. ``sample``: at most so many orders are tried of a tile, and ``seed`` decides
    which; None tries all of them. Raises KernelError for a tile of more than six slices and no ``sample``,
    or for a ``sample`` below 1.
    """
    if sample is not None and sample < 1:
        raise KernelError(f"sample: expected at least 1 order of the slices, got {sample}")
    found: list[tuple[npt.NDArray[np.intp], slice, U16]] = []
    lengths: set[int] = set()
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
        if sample is None and len(parts) > MOST_SLICES:
            raise KernelError(
                f"atomic sum of {len(parts)} slices: at most {MOST_SLICES} are enumerated; use a smaller"
                " grid, or sample= so many of the orders"
            )
        found.append(
            (routes, columns, _sums(parts, orders(len(parts), sample=sample, seed=seed), weights.dtype))
        )
        lengths.add(len(parts))
    most = max((len(sums) for _, _, sums in found), default=1)
    every = np.zeros((most, alignment.routes, weights.n), dtype=np.uint16)
    for routes, columns, sums in found:
        every[:, routes, columns] = sums[-1]  # a repeated order adds nothing to a set
        every[: len(sums), routes, columns] = sums
    return _distinct(every, tuple(_samples(lengths, sample=sample, seed=seed)))


def orders(slices: int, *, sample: int | None, seed: int = 0) -> tuple[tuple[int, ...], ...]:
    """Orders of so many slices, each once: all of them if ``sample`` is None or that many, else a sample.

    A longer sample of the same seed begins with the shorter one.
    """
    every = math.factorial(slices)
    if sample is None or sample >= every:
        return tuple(permutations(range(slices)))
    return tuple(islice(_drawn(slices, seed), sample))


def _drawn(slices: int, seed: int) -> Iterator[tuple[int, ...]]:
    """Distinct orders without end, by the draw that serves arrival orders: the same on every machine."""
    seen: set[tuple[int, ...]] = set()
    draw = 0
    while True:
        order = seeded(slices, f"slices:{seed}:{draw}")
        draw += 1
        if order not in seen:
            seen.add(order)
            yield order


def _samples(lengths: set[int], *, sample: int | None, seed: int) -> Iterator[Sampled]:
    for slices in sorted(lengths):
        of = math.factorial(slices)
        if sample is not None and sample < of:
            yield Sampled(slices=slices, orders=sample, of=of, seed=seed)


def _sums(parts: tuple[Stored, ...], tried: tuple[tuple[int, ...], ...], dtype: str) -> U16:
    """Bits of the sum in each order, (orders, rows, columns); one slice is stored plainly."""
    if len(parts) == 1:
        return bits16(parts[0])[np.newaxis]
    sums = []
    for order in tried:
        total = narrow(np.zeros(parts[0].shape, dtype=np.float32), dtype)  # the zero-filled output
        for index in order:
            total = narrow(add(widen(total), widen(parts[index])), dtype)  # RN16 at every atomic
        sums.append(bits16(total))
    return np.stack(sums)


def _distinct(every: U16, sampled: tuple[Sampled, ...]) -> Outcomes:
    """Ascending distinct patterns along axis 0, the largest repeated to a common length."""
    ascending = np.sort(every, axis=0)
    fresh = np.ones(ascending.shape, dtype=bool)
    fresh[1:] = ascending[1:] != ascending[:-1]
    count = fresh.sum(axis=0).astype(np.uint16)
    length = max(int(count.max(initial=1)), 1)
    order = np.argsort(~fresh, axis=0, kind="stable")  # first of each run of equals to the front
    packed = np.take_along_axis(ascending, order, axis=0)[:length]
    beyond = np.arange(length)[:, np.newaxis, np.newaxis] >= count
    return Outcomes(bits=np.where(beyond, ascending[-1], packed), count=count, sampled=sampled)
