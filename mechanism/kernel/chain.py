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

from mechanism.kernel.panel import Panel
from mechanism.kernel.rounding import F32, F64, I32, U8
from mechanism.kernel.tensor_core import I64, Rules, step
from mechanism.values import frozen

_EXPONENT = np.int32(0x7F80_0000)
_KEEP24 = np.int64(-1 << 29)  # clears all of an fp64 mantissa below its 24th bit


class Chain(Protocol):
    """What computes accumulators and lets go of them at the end of a slice."""

    def advance(self, tile: int) -> None:
        """Feed k-tile ``tile`` to every accumulator."""

    def take(self, rows: slice, columns: slice) -> F32:
        """Accumulators (rows, warp row, 2, byte columns) of a finished slice; the next starts from +0."""


@frozen(eq=False)
class Rows:
    """Rows of A of one expert, from ``panel.activations``: (k-tile, 2, 16, rows, warp row, 1)."""

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


class FastChain:
    """Finite fp16 operands. Why it is exact: tensor-core 7.1.

    From +0 an fp16 chain never meets the limits that section 7.1 asks about: an accumulator is a multiple
    of 2^-53, so one that is cut against the exponent of zero products (-33 or less) loses nothing, and
    one below every exponent is +0. So no element has to be selected away.
    """

    def __init__(self, panel: Panel, rows: list[Rows], rule: Rules, *, limit: int) -> None:
        """``rows`` in the order of the panel's experts; ``limit`` products are worked on at a time."""
        self._panel, self._rows, self._rule = panel, rows, rule
        length, _, warp_rows, width = panel.shape
        starts = np.cumsum([0] + [part.count for part in rows]).tolist()
        self._spans = [slice(low, high) for low, high in pairwise(starts)]
        shape = (starts[-1], warp_rows, width)
        self._acc: F32 = np.zeros(shape, dtype=np.float32)
        self._scale: F32 = np.empty(shape, dtype=np.float32)
        self._total: I32 = np.empty(shape, dtype=np.int32)
        self._sums: I32 = np.empty(shape, dtype=np.int32)
        self._peak: U8 = np.empty(shape, dtype=np.uint8)
        self._added: U8 = np.empty((length, *shape), dtype=np.uint8)
        self._values: F32 = np.empty(panel.shape, dtype=np.float32)
        self._fields: U8 = np.empty(panel.shape, dtype=np.uint8)
        # exponent field of 2^(F - Emax): F + 254 less that of 2^Emax
        self._top = np.uint32((rule.fraction + 254) << 23).astype(np.int32)
        chunk = max(1, limit // (length * warp_rows * width))
        self._chunks = [slice(low, min(low + chunk, starts[-1])) for low in range(0, starts[-1], chunk)]
        # one buffer serves the products, the dequantiser and the fp64 sums, none of which outlives its use
        size = max(min(chunk, starts[-1]) * length * warp_rows * width, self._values.size, 2 * self._acc.size)
        self._buffer: F32 = np.empty(size, dtype=np.float32)

    def advance(self, tile: int) -> None:
        """Feed one k-tile: two matrix instructions per warp row, 16 k each."""
        length = self._rule.step
        wide = self._buffer[: self._values.size].reshape(self._values.shape)
        with _small_buffers():
            for half in (0, 1):
                for low in range(0, 16, length):
                    ks = slice(low, low + length)
                    self._panel.unit(tile, half, ks, self._values, self._fields, wide)
                    self._step(tile, half, ks)

    def take(self, rows: slice, columns: slice) -> F32:
        """As ``Chain.take``."""
        count, warp_rows, width = self._acc.shape
        planes = self._acc.reshape(count, warp_rows, 2, width // 2)[rows, :, :, columns]
        taken = planes.copy()
        planes[...] = 0
        return taken

    def _step(self, tile: int, half: int, ks: slice) -> None:
        self._largest(tile, half, ks)
        scaled: F32 = self._total.view(np.float32)
        np.multiply(self._acc, self._scale, out=scaled)  # exact
        np.copyto(self._total.reshape(-1), scaled.reshape(-1), casting="unsafe")  # RZ to the quantum
        for chunk in self._chunks:
            self._products(tile, half, ks, chunk)
        wide: F64 = self._buffer.view(np.float64)[: self._acc.size].reshape(self._acc.shape)
        if self._rule.fraction == 24:
            np.add(self._total, self._sums, out=self._total)  # below 2^30
            np.copyto(wide, self._total)
        else:
            np.copyto(wide, self._total)
            np.add(wide, self._sums, out=wide)  # 16 products and C can leave int32
        bits: I64 = wide.view(np.int64)
        np.bitwise_and(bits, _KEEP24, out=bits)  # RZ to 24 bits
        np.copyto(self._acc, wide, casting="unsafe")  # exact
        np.divide(self._acc, self._scale, out=self._acc)  # a power of two: exact

    def _largest(self, tile: int, half: int, ks: slice) -> None:
        """Scale 2^(F - Emax), with Emax over the step's products and the accumulator."""
        for index, (span, rows) in enumerate(zip(self._spans, self._rows, strict=True)):
            weights = self._fields[:, index, np.newaxis]
            np.add(rows.fields[tile, half, ks], weights, out=self._added[:, span])  # modulo 256
        np.maximum.reduce(self._added, axis=0, out=self._peak)
        exponent, scale = self._sums, self._scale.view(np.int32)
        np.copyto(exponent, self._peak)
        np.left_shift(exponent, 23, out=exponent)
        np.bitwise_and(self._acc.view(np.int32), _EXPONENT, out=scale)
        np.maximum(exponent, scale, out=scale)
        np.subtract(self._top, scale, out=scale)  # modulo 2^32

    def _products(self, tile: int, half: int, ks: slice, chunk: slice) -> None:
        """Sums of the products of some rows, each cut toward zero to a multiple of 2^(Emax - F)."""
        length, _, warp_rows, width = self._panel.shape
        shape = (length, chunk.stop - chunk.start, warp_rows, width)
        flat = self._buffer[: shape[0] * shape[1] * shape[2] * shape[3]]
        products = flat.reshape(shape)
        for index, (span, rows) in enumerate(zip(self._spans, self._rows, strict=True)):
            low, high = max(span.start, chunk.start), min(span.stop, chunk.stop)
            if low < high:
                factors = rows.values[tile, half, ks, low - span.start : high - span.start]
                out = products[:, low - chunk.start : high - chunk.start]
                np.multiply(factors, self._values[:, index, np.newaxis], out=out)  # exact: 22 bits
        np.multiply(products, self._scale[chunk], out=products)  # exact
        cut: I32 = flat.view(np.int32)
        np.copyto(cut, flat, casting="unsafe")  # RZ, in place element by element
        np.add.reduce(cut.reshape(shape), axis=0, out=self._sums[chunk])  # below 2^31


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
