"""Chains of matrix instructions for many rows and columns at once (marlin-moe 6.3, tensor-core 7).

A chain keeps one fp32 accumulator per (row, warp row, column), starting from +0, and walks K in ascending
k-tiles. ``FastChain`` is section 7.1 of the tensor-core rules, for finite fp16 operands; ``GeneralChain``
takes anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Protocol

import numpy as np

from mechanism.kernel.panel import LIFT, Panel
from mechanism.kernel.rounding import F32, F64, I32, U8
from mechanism.kernel.tensor_core import I64, Rules, step
from mechanism.values import frozen

_EXPONENT = np.int32(0x7F80_0000)
_KEEP24 = np.int64(-1 << 29)  # clears all of an fp64 mantissa below its 24th bit
_UNLIFT = np.float32(2.0**-LIFT)
_FLOOR = np.uint8(64)  # under every real product; what keeps 2^(F - Emax) normal when all are zero


class Chain(Protocol):
    """What computes accumulators and lets go of them at the end of a slice."""

    def advance(self, tile: int) -> None:
        """Feed k-tile ``tile`` to every accumulator."""

    def take(self, rows: slice, columns: slice) -> F32:
        """Accumulators (rows, warp row, 2, byte columns) of a finished slice; the next starts from +0."""


@frozen(eq=False)
class Rows:
    """Rows of A of one expert, lifted, from ``panel.activations``: (k-tile, 2, 16, rows, warp row, 1)."""

    values: F32
    fields: U8

    @property
    def count(self) -> int:
        """Number of rows."""
        return int(self.values.shape[3])


@contextmanager
def _small_buffers() -> Iterator[None]:
    """Numpy copies broadcast operands into its iteration buffer while a row fits in it; here none shall.

    Speed only: a broadcast multiplication takes a third of the time.
    """
    before = np.setbufsize(256)
    try:
        yield
    finally:
        np.setbufsize(before)


@frozen(eq=False)
class _Expert:
    """One expert's rows, and where its share of a chain's arrays is: views that broadcast over them."""

    rows: Rows
    values: F32
    fields: U8
    products: F32
    added: U8


class FastChain:
    """Finite fp16 operands. Why it is exact: tensor-core 7.1.

    Everything is held times 2^LIFT (``panel.LIFT``), which changes no bit. From +0 an fp16 chain never
    meets the limits that section 7.1 asks about: an accumulator is a multiple of 2^-53, so one that is cut
    against the exponent of zero products (-33 or less) loses nothing, and one below every exponent is +0.
    So no element has to be selected away.
    """

    def __init__(self, panel: Panel, rows: list[Rows], rule: Rules) -> None:
        """``rows`` in the order of the panel's experts."""
        self._panel, self._rule = panel, rule
        length, _, warp_rows, width = panel.shape
        starts = np.cumsum([0] + [part.count for part in rows]).tolist()
        shape = (starts[-1], warp_rows, width)
        self._scale: F32 = np.empty(shape, dtype=np.float32)
        self._scale_bits: I32 = self._scale.view(np.int32)
        self._sums: I32 = np.empty(shape, dtype=np.int32)
        self._wide: F64 = np.empty(shape, dtype=np.float64)
        self._wide_bits: I64 = self._wide.view(np.int64)
        self._peak: U8 = np.empty(shape, dtype=np.uint8)
        self._added: U8 = np.empty((length, *shape), dtype=np.uint8)
        # the terms of a step, L products and the accumulator; the same bytes as the integers cut from them
        self._terms: F32 = np.zeros((length + 1, *shape), dtype=np.float32)
        self._cut: I32 = self._terms.view(np.int32)
        self._acc: F32 = self._terms[-1]
        self._acc_bits: I32 = self._cut[-1]
        self._values: F32 = np.empty(panel.shape, dtype=np.float32)
        self._fields: U8 = np.empty(panel.shape, dtype=np.uint8)
        # the dequantiser is done with its scratch before there are products
        self._scratch: F32 = self._terms.reshape(-1)[: self._values.size].reshape(panel.shape)
        self._experts = [
            _Expert(
                rows=part,
                values=self._values[:, index, np.newaxis],
                fields=self._fields[:, index, np.newaxis],
                products=self._terms[:length, low:high],
                added=self._added[:, low:high],
            )
            for index, (part, (low, high)) in enumerate(zip(rows, pairwise(starts), strict=True))
        ]
        # exponent field of 2^(F - Emax): F + 254 less that of 2^Emax
        self._top = np.uint32((rule.fraction + 254) << 23).astype(np.int32)

    def advance(self, tile: int) -> None:
        """Feed one k-tile: two matrix instructions per warp row, 16 k each."""
        length = self._rule.step
        with _small_buffers():
            for half in (0, 1):
                for low in range(0, 16, length):
                    at = (tile, half, slice(low, low + length))
                    self._panel.unit(*at, self._values, self._fields, self._scratch)
                    self._step(at)

    def take(self, rows: slice, columns: slice) -> F32:
        """As ``Chain.take``."""
        count, warp_rows, width = self._acc.shape
        planes = self._acc.reshape(count, warp_rows, 2, width // 2)[rows, :, :, columns]
        taken = planes * _UNLIFT  # exact: a multiple of 2^-53
        planes[...] = 0
        return taken

    def _step(self, at: tuple[int, int, slice]) -> None:
        for expert in self._experts:
            np.add(expert.rows.fields[at], expert.fields, out=expert.added)
            np.multiply(expert.rows.values[at], expert.values, out=expert.products)  # exact: 22 bits
        self._largest()
        np.multiply(self._terms, self._scale, out=self._terms)  # exact
        np.copyto(self._cut.reshape(-1), self._terms.reshape(-1), casting="unsafe")  # RZ to the quantum
        if self._rule.fraction == 24:
            np.add.reduce(self._cut, axis=0, out=self._sums)  # below 2^30
            np.copyto(self._wide, self._sums)
        else:
            np.add.reduce(self._cut[:-1], axis=0, out=self._sums)  # below 2^31
            np.copyto(self._wide, self._cut[-1])
            np.add(self._wide, self._sums, out=self._wide)  # 16 products and C can leave int32
        np.bitwise_and(self._wide_bits, _KEEP24, out=self._wide_bits)  # RZ to 24 bits
        np.copyto(self._acc, self._wide, casting="unsafe")  # exact
        np.divide(self._acc, self._scale, out=self._acc)  # a power of two: exact

    def _largest(self) -> None:
        """Scale 2^(F - Emax), with Emax over the step's products and the accumulator."""
        np.maximum.reduce(self._added, axis=0, out=self._peak, initial=_FLOOR)
        np.copyto(self._sums, self._peak)
        np.left_shift(self._sums, 23, out=self._sums)
        np.bitwise_and(self._acc_bits, _EXPONENT, out=self._scale_bits)
        np.maximum(self._sums, self._scale_bits, out=self._scale_bits)
        np.subtract(self._top, self._scale_bits, out=self._scale_bits)  # modulo 2^32


class GeneralChain:
    """Any operands and both formats, by ``tensor_core.step``.

    ``a`` and ``w`` are (values, exponents) cut by ``panel.k_view``: (k-tile, 2, 16, warp row, rows or
    columns); columns in plane order.
    """

    def __init__(self, a: tuple[F32, I64], w: tuple[F32, I64], rule: Rules) -> None:
        self._a = (a[0].swapaxes(3, 4)[..., np.newaxis], a[1].swapaxes(3, 4)[..., np.newaxis])
        self._w = (w[0][:, :, :, np.newaxis], w[1][:, :, :, np.newaxis])
        self._rule = rule
        self._acc: F32 = np.zeros((a[0].shape[4], a[0].shape[3], w[0].shape[4]), dtype=np.float32)

    def advance(self, tile: int) -> None:
        """Feed one k-tile: two matrix instructions per warp row, 16 k each."""
        (av, ae), (wv, we) = self._a, self._w
        for half in (0, 1):
            for low in range(0, 16, self._rule.step):
                at = (tile, half, slice(low, low + self._rule.step))
                self._acc = step(av[at], ae[at], wv[at], we[at], self._acc, self._rule)

    def take(self, rows: slice, columns: slice) -> F32:
        """As ``Chain.take``."""
        count, warp_rows, width = self._acc.shape
        planes = self._acc.reshape(count, warp_rows, 2, width // 2)[rows, :, :, columns]
        taken = planes.copy()
        planes[...] = 0
        return taken
