"""Chains of matrix instructions for many rows and columns at once (marlin-moe 6.3, tensor-core 7).

A chain keeps one fp32 accumulator per (warp row, row, column), starting from +0, and walks K in ascending
k-tiles. ``FastChain`` is section 7.1 of the tensor-core rules for finite fp16 operands; ``GeneralChain`` takes anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from mechanism.kernel.panel import Panel, Scratch
from mechanism.kernel.rounding import F32, U8
from mechanism.kernel.tensor_core import I64, Rules, step

_EXPONENT = np.int32(0x7F80_0000)
_KEEP24 = np.int64(-1 << 29)  # clears all of an fp64 mantissa below its 24th bit


class Chain(Protocol):
    """What computes accumulators and lets go of them at the end of a slice."""

    def advance(self, tile: int) -> None:
        """Feed k-tile ``tile`` to every accumulator."""

    def take(self, rows: slice, columns: slice) -> F32:
        """Accumulators (warp row, rows, 2, byte columns) of a finished slice; starts the next from +0."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Part:
    """The rows of one expert in a chain: their operands, and the expert's weights.

    ``values`` and ``fields`` as from ``panel.activations``, shape (k-tile, 2, 16, warp row, rows, 1).
    """

    panel: Panel
    values: F32
    fields: U8


class FastChain:
    """Finite fp16 operands. Why it is exact: tensor-core 7.1.

    From +0 an fp16 chain never meets the limits that section 7.1 asks about: an accumulator is a multiple
    of 2^-53, so one that is cut against the exponent of zero products (-33 or less) loses nothing, and
    one below every exponent is +0. So no element has to be selected away.
    """

    def __init__(self, parts: list[Part], rule: Rules, scratch: Scratch, *, limit: int) -> None:
        self._parts, self._rule, self._scratch = parts, rule, scratch
        self._rows, self._width = parts[0].panel.shape[1:]
        self._starts = np.cumsum([0] + [part.values.shape[4] for part in parts]).tolist()
        self._shape = (self._rows, self._starts[-1], self._width)
        self._acc = np.zeros(self._shape, dtype=np.float32)
        self._units = [
            (
                np.empty(part.panel.shape, dtype=np.float32),
                np.empty(part.panel.shape, dtype=np.uint8),
            )
            for part in parts
        ]
        # exponent field of 2^(F - Emax): F + 254 less that of 2^Emax
        self._top = np.uint32((rule.fraction + 254) << 23).astype(np.int32)
        per_row = rule.step * self._rows * self._width
        self._chunk = max(1, limit // per_row)  # rows whose products stay in cache together

    def advance(self, tile: int) -> None:
        """Feed one k-tile: two matrix instructions per warp row, 16 k each."""
        length = self._rule.step
        for half in (0, 1):
            for part, (values, fields) in zip(self._parts, self._units, strict=True):
                part.panel.unit(tile, half, values, fields)
            for low in range(0, 16, length):
                self._step(tile, half, slice(low, low + length))

    def take(self, rows: slice, columns: slice) -> F32:
        """As ``Chain.take``."""
        planes = self._acc.reshape(self._rows, -1, 2, self._width // 2)[:, rows, :, columns]
        taken = planes.copy()
        planes[...] = 0
        return taken

    def _step(self, tile: int, half: int, ks: slice) -> None:
        shape, scratch, fraction = self._shape, self._scratch, self._rule.fraction
        scale = scratch.get("scale", shape, np.float32)
        self._largest(tile, half, ks, scale.view(np.int32))
        total = self._scaled_accumulators(scale)
        sums = scratch.get("sums", shape, np.int32)
        for part, (values, _), start in zip(self._parts, self._units, self._starts, strict=False):
            count = part.values.shape[4]
            for low in range(0, count, self._chunk):
                high = min(low + self._chunk, count)
                rows = slice(start + low, start + high)
                factors = part.values[tile, half, ks, :, low:high]
                self._products(factors, values[ks], scale[:, rows], sums[:, rows])
        wide = scratch.get("wide_sum", shape, np.float64)
        if fraction == 24:
            np.add(total, sums, out=total)  # below 2^30
            np.copyto(wide, total)
        else:
            np.copyto(wide, total)
            np.add(wide, sums, out=wide)  # 16 products and C can leave int32
        bits = wide.view(np.int64)
        np.bitwise_and(bits, _KEEP24, out=bits)  # RZ to 24 bits
        np.copyto(self._acc, wide, casting="unsafe")  # exact
        np.divide(self._acc, scale, out=self._acc)  # a power of two: exact

    def _largest(self, tile: int, half: int, ks: slice, out: npt.NDArray[np.int32]) -> None:
        """Bits of 2^(F - Emax), with Emax over the step's products and the accumulator."""
        scratch = self._scratch
        peak = scratch.get("peak", self._shape, np.uint8)
        for part, (_, fields), start in zip(self._parts, self._units, self._starts, strict=False):
            mine = part.fields[tile, half, ks]
            count = mine.shape[2]
            added = scratch.get("added", (ks.stop - ks.start, self._rows, count, self._width), np.uint8)
            np.add(mine, fields[ks, :, np.newaxis], out=added)  # modulo 256
            np.maximum.reduce(added, axis=0, out=peak[:, start : start + count])
        exponent = scratch.get("exponent", self._shape, np.int32)
        np.copyto(exponent, peak)
        np.left_shift(exponent, 23, out=exponent)
        np.bitwise_and(self._acc.view(np.int32), _EXPONENT, out=out)
        np.maximum(exponent, out, out=exponent)
        np.subtract(self._top, exponent, out=out)  # modulo 2^32

    def _scaled_accumulators(self, scale: F32) -> npt.NDArray[np.int32]:
        scaled = self._scratch.get("scaled", self._shape, np.float32)
        total = self._scratch.get("total", self._shape, np.int32)
        np.multiply(self._acc, scale, out=scaled)  # exact
        np.copyto(total, scaled, casting="unsafe")  # RZ to the quantum
        return total

    def _products(self, factors: F32, values: F32, scale: F32, out: npt.NDArray[np.int32]) -> None:
        """Sums of the products, each cut toward zero to a multiple of 2^(Emax - F)."""
        length, rows, count = factors.shape[:3]
        products = self._scratch.get("products", (length, rows, count, self._width), np.float32)
        np.multiply(factors, values[:, :, np.newaxis], out=products)  # exact: 22 bits
        np.multiply(products, scale, out=products)  # exact
        flat = products.reshape(-1)
        cut = flat.view(np.int32)
        np.copyto(cut, flat, casting="unsafe")  # RZ, in place element by element
        np.add.reduce(cut.reshape(products.shape), axis=0, out=out)  # below 2^31


class GeneralChain:
    """Any operands and both formats, by ``tensor_core.step``.

    ``a`` and ``w`` are (values, exponents) cut by ``panel.k_view``: (k-tile, 2, 16, warp row, rows or
    columns); columns in plane order.
    """

    def __init__(self, a: tuple[F32, I64], w: tuple[F32, I64], rule: Rules) -> None:
        self._a, self._w, self._rule = a, w, rule
        self._acc = np.zeros((a[0].shape[3], a[0].shape[4], w[0].shape[4]), dtype=np.float32)

    def advance(self, tile: int) -> None:
        """Feed one k-tile: two matrix instructions per warp row, 16 k each."""
        (av, ae), (wv, we) = self._a, self._w
        for half in (0, 1):
            for low in range(0, 16, self._rule.step):
                at = (tile, half, slice(low, low + self._rule.step))
                self._acc = step(
                    av[at][..., np.newaxis],
                    ae[at][..., np.newaxis],
                    wv[at][:, :, np.newaxis],
                    we[at][:, :, np.newaxis],
                    self._acc,
                    self._rule,
                )

    def take(self, rows: slice, columns: slice) -> F32:
        """As ``Chain.take``."""
        warp_rows, count, width = self._acc.shape
        planes = self._acc.reshape(warp_rows, count, 2, width // 2)[:, rows, :, columns]
        taken = planes.copy()
        planes[...] = 0
        return taken
