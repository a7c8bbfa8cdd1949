"""Weight operands just in time, for the products of one step of every warp row (marlin-moe 6.1, 6.2).

A *unit* holds the L values of k that one step of the tensor core consumes, for all warp rows of a few
experts. Units are small enough to stay in cache between dequantising and multiplying.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from mechanism.kernel.dequantize import I8, Weights, scale_planes, zero_planes
from mechanism.kernel.rounding import F32, I32, U8, Stored, narrow, widen

LIFT = 48
"""Activations are taken times 2^48 in the fast scheme, exactly: so are products and accumulators.

Exponent fields then add up without a wrap, and a zero factor needs no case of its own: its field is 0, so
a product with it has the field 63 or 142 at most, below 145, which is that of the smallest real product.
"""
_LOW, _HIGH = np.uint8(15), np.uint8(4)
_SMALLEST = np.uint8(127 - 14)  # subnormal fp16 operands enter with this exponent


def k_view(array: npt.NDArray[np.generic], tile_k: int, *, interleaved: bool) -> npt.NDArray[np.generic]:
    """K, the first axis, as (k-tile, h, offset in the instruction, warp row); a view.

    Warp row w owns offsets ``[32 w, 32 w + 32)`` of a k-tile, h = 0 and 1 in this order (6.1); with
    ``interleaved`` (vllm 0.11.0) offsets ``16 w`` and ``16 (w + R)`` (A.1).
    """
    rows = tile_k // 32
    tiles = array.shape[0] // tile_k
    shape = (tiles, 2, rows, 16) if interleaved else (tiles, rows, 2, 16)
    cut = array.reshape(shape + array.shape[1:])
    order = (0, 1, 3, 2) if interleaved else (0, 2, 3, 1)
    return cut.transpose(order + tuple(range(4, cut.ndim)))


def exponent_fields(values: F32) -> U8:
    """Exponent + 127 of fp16 values held in fp32; subnormals enter with -14. 0 for zeros."""
    field = ((values.view(np.uint32) >> np.uint32(23)) & np.uint32(255)).astype(np.uint8)
    return np.where(values == 0, np.uint8(0), np.maximum(field, _SMALLEST))


def lifted(values: F32) -> tuple[F32, U8]:
    """fp16 values held in fp32: times 2^LIFT, and exponent + LIFT (``exponent_fields`` has the cases)."""
    fields = exponent_fields(values)
    return values * np.float32(2.0**LIFT), np.where(fields == 0, fields, fields - np.uint8(127 - LIFT))


def _bytes(words: I32) -> U8:
    return np.ascontiguousarray(words).view(np.uint8)


class Panel:
    """The fp16 operands of a few experts for a range of packed byte columns, unit by unit.

    All operands must be finite: see ``dequantize.finite_operands``.

    Attributes:
        shape: (L, experts, warp rows, columns) of one unit; columns in plane order.
    """

    def __init__(
        self,
        weights: Weights,
        experts: Sequence[int],
        columns: slice,
        *,
        tile_k: int,
        interleaved: bool,
        length: int,
    ) -> None:
        self._packed = [
            k_view(_bytes(weights.qweight[expert])[:, columns], tile_k, interleaved=interleaved)
            for expert in experts
        ]
        rows, half = self._packed[0].shape[3:]
        self.shape = (length, len(experts), rows, 2 * half)
        of_k = np.arange(weights.k) // (weights.k // weights.scales.shape[1])
        self._groups = k_view(of_k, tile_k, interleaved=interleaved)[:, :, 0]  # (k-tile, h, warp row)
        zeros = [zero_planes(weights, expert)[:, :, columns] for expert in experts]
        self._zeros: I8 = np.stack(zeros, axis=1)  # (group, experts, 2, byte columns)
        self._grouped = weights.group != -1
        scales = [scale_planes(weights, expert)[:, :, columns].reshape(-1, 2 * half) for expert in experts]
        self._scales: F32 = np.stack(scales, axis=1)  # (group, experts, columns)
        magnitude = np.abs(self._scales)
        # every nonzero |q - z| * s is a normal fp16 number: the three-operation rounding applies
        self._normal = bool(np.min(magnitude, where=magnitude > 0, initial=np.inf) >= 2.0**-14)
        self._at: tuple[int, ...] = ()
        planes = (2, length, len(experts), rows, half)
        self._codes: U8 = np.empty(planes, dtype=np.uint8)
        self._zeros_of_unit: U8 = np.empty(planes, dtype=np.uint8)
        self._large: F32 = np.empty((len(experts), rows, 2 * half), dtype=np.float32)
        self._small: F32 = np.empty_like(self._large)

    def unit(self, tile: int, half: int, ks: slice, values: F32, fields: U8, wide: F32) -> None:
        """Write operands and exponent fields of k offsets ``ks`` of instruction ``half`` of a k-tile.

        RN16((q - z) * s), or the exact q - z if channelwise.

        Args:
            tile: k-tile.
            half: Which of the warp row's two instructions.
            ks: The step's offsets in the instruction.
            values: Out, ``shape``.
            fields: Out, ``shape``.
            wide: Scratch, ``shape``.
        """
        self._move_to(tuple(self._groups[tile, half]))
        low, high = self._codes
        for index, packed in enumerate(self._packed):
            np.bitwise_and(packed[tile, half, ks], _LOW, out=low[:, index])
            np.right_shift(packed[tile, half, ks], _HIGH, out=high[:, index])
        np.subtract(self._codes, self._zeros_of_unit, out=self._codes)  # modulo 256: int8
        centred = self._codes.view(np.int8).transpose(1, 2, 3, 0, 4)
        if not self._grouped:
            np.copyto(values.reshape(centred.shape), centred)  # exact
        elif self._normal:
            np.copyto(wide.reshape(centred.shape), centred)  # exact
            # t = 8193 p rounded to 24 bits keeps 11 bits of p: t - 8192 p = RN16(p), ties to even
            np.multiply(wide, self._large, out=values)  # RNE
            np.multiply(wide, self._small, out=wide)  # exact: 15 bits
            np.subtract(values, wide, out=values)  # exact
        else:
            product = centred.reshape(self.shape) * (self._small * np.float32(2.0**-13))  # exact
            values[...] = widen(narrow(product, "float16"))  # RN16: subnormal results included
            fields[...] = exponent_fields(values)
            return
        bits: I32 = wide.view(np.int32)
        np.right_shift(values.view(np.int32), 23, out=bits)
        np.copyto(fields, bits, casting="unsafe")  # the sign falls off; of a zero, 0 is left

    def _move_to(self, groups: tuple[int, ...]) -> None:
        """Zero points and scales of these groups, one per warp row."""
        if groups == self._at:
            return
        self._at = groups
        rows = list(groups)
        zeros = self._zeros[rows].transpose(2, 1, 0, 3)  # (2, experts, warp rows, byte columns)
        np.copyto(self._zeros_of_unit, zeros[:, np.newaxis].view(np.uint8))
        scales = self._scales[rows].transpose(1, 0, 2)
        np.multiply(scales, np.float32(8193), out=self._large)  # exact: 24 bits
        np.multiply(scales, np.float32(8192), out=self._small)


def activations(stored: Stored, tile_k: int, *, interleaved: bool) -> tuple[F32, U8]:
    """Finite fp16 rows of A, times 2^LIFT, cut like the weights: (k-tile, h, 16, rows, warp row, 1).

    With them goes what is added to a weight's field: exponent + LIFT; 0 for a zero.
    """
    values, fields = lifted(widen(stored))
    cut = [
        np.ascontiguousarray(
            k_view(np.ascontiguousarray(array.T), tile_k, interleaved=interleaved).swapaxes(3, 4)
        )
        for array in (values, fields)
    ]
    return cut[0][..., np.newaxis], cut[1][..., np.newaxis]
