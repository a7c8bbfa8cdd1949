"""Weight operands just in time, 16 rows of K for every warp row at once (marlin-moe 6.1, 6.2).

A *unit* is what one matrix instruction per warp row consumes: k offsets ``[16 h, 16 h + 16)`` of each warp
row's 32 in one k-tile. Units are small enough to stay in cache between dequantising and multiplying.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mechanism.kernel.dequantize import I8, Weights, scale_planes, zero_planes
from mechanism.kernel.errors import ShapeError
from mechanism.kernel.rounding import F32, U8, Stored, narrow, widen

NO_TERM = np.uint8(127 - 48)
"""Exponent field of a zero factor in the fast scheme.

-48 lies below every real fp16 exponent even after adding the largest (15): a product with a zero factor
stays under the smallest real product, -28. And -96, two zeros, still gives a normal scale 2^(F + 96).
"""
_SMALLEST = np.uint8(127 - 14)  # subnormal fp16 operands enter with this exponent


def k_view(array: npt.NDArray[np.generic], tile_k: int, *, interleaved: bool) -> npt.NDArray[np.generic]:
    """K, the first axis, as (k-tile, h, offset in the instruction, warp row); a view.

    Warp row w owns offsets ``[32 w, 32 w + 32)`` of a k-tile, h = 0 and 1 in this order (6.1); with
    ``interleaved`` (vllm 0.11.0) offsets ``16 w`` and ``16 (w + R)`` (A.1).
    """
    rows = tile_k // 32
    shape = (-1, 2, rows, 16) if interleaved else (-1, rows, 2, 16)
    cut = array.reshape(shape + array.shape[1:])
    order = (0, 1, 3, 2) if interleaved else (0, 2, 3, 1)
    return cut.transpose(order + tuple(range(4, cut.ndim)))


def exponent_fields(values: F32) -> U8:
    """Exponent + 127 of fp16 values held in fp32; subnormals enter with -14, zeros with ``NO_TERM``."""
    field = ((values.view(np.uint32) >> np.uint32(23)) & np.uint32(255)).astype(np.uint8)
    return np.where(values == 0, NO_TERM, np.maximum(field, _SMALLEST))


class Scratch:
    """Buffers that grow to the largest request and are reused; nothing in them outlives a call."""

    __slots__ = ("_buffers",)

    def __init__(self) -> None:
        self._buffers: dict[str, npt.NDArray[np.uint8]] = {}

    def get(self, name: str, shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[np.generic]:
        """An uninitialised array of this shape on the buffer called ``name``."""
        kind = np.dtype(dtype)
        size = int(np.prod(shape)) * kind.itemsize
        held = self._buffers.get(name)
        if held is None or held.size < size:
            held = self._buffers[name] = np.empty(size, dtype=np.uint8)
        return held[:size].view(kind).reshape(shape)


class Panel:
    """One expert's fp16 operands for a range of packed byte columns, unit by unit."""

    __slots__ = (
        "_groups",
        "_last",
        "_packed",
        "_scales",
        "_scratch",
        "_tables",
        "_zeros",
        "exact",
        "finite",
        "shape",
    )

    def __init__(  # noqa: PLR0913 - where the operands come from and how they are cut
        self,
        weights: Weights,
        expert: int,
        columns: slice,
        *,
        tile_k: int,
        interleaved: bool,
        scratch: Scratch,
    ) -> None:
        if weights.dtype != "float16":
            raise ShapeError(f"panel: expected float16 scales, got {weights.dtype}")
        packed = weights.qweight[expert].view(np.uint8)[:, columns]
        self._packed: U8 = k_view(packed, tile_k, interleaved=interleaved)  # type: ignore[assignment]
        rows, width = self._packed.shape[3], 2 * packed.shape[1]
        self.shape = (16, rows, width)
        of_k = np.arange(weights.k) // (weights.k // weights.scales.shape[1])
        self._groups = k_view(of_k, tile_k, interleaved=interleaved)[:, :, 0]  # (k-tile, h, warp row)
        self._zeros: I8 = zero_planes(weights, expert)[:, :, columns].reshape(-1, width)
        self._scratch = scratch
        self._last: tuple[int, ...] = ()
        self._tables: tuple[I8, F32, F32] | None = None
        self._scales: F32 | None = None
        self.exact = True  # whether the three-operation rounding applies
        self.finite = True
        if weights.group != -1:
            self._scales = scale_planes(weights, expert)[:, :, columns].reshape(-1, width)
            magnitude = np.abs(self._scales)
            smallest = np.min(magnitude, where=magnitude > 0, initial=np.inf)
            # every nonzero |q - z| * s is then a normal fp16 number and none overflows
            self.finite = bool(magnitude.max() * 15 < 65520)  # False for NaN and Inf too
            self.exact = self.finite and bool(smallest >= 2.0**-14)

    def unit(self, tile: int, half: int, values: F32, fields: U8) -> None:
        """Write the unit's operands and exponent fields, each of ``shape``; columns in plane order.

        RN16((q - z) * s), or the exact q - z if channelwise.
        """
        depth, rows, width = self.shape
        zeros, large, small = self._rows_of(tile, half)
        centred = self._scratch.get("centred", (depth, rows, 2, width // 2), np.uint8)
        packed = self._packed[tile, half]
        np.bitwise_and(packed, np.uint8(15), out=centred[:, :, 0])
        np.right_shift(packed, np.uint8(4), out=centred[:, :, 1])
        flat = centred.reshape(self.shape)
        np.subtract(flat, zeros, out=flat)  # modulo 256: int8 two's complement
        if self._scales is None:
            np.copyto(values, flat.view(np.int8))  # exact
        elif not self.exact:
            self._rounded(flat.view(np.int8), small, values, fields)
            return
        else:
            wide = self._scratch.get("wide", self.shape, np.float32)
            np.copyto(wide, flat.view(np.int8))
            # t = 8193 p rounded to 24 bits keeps 11 bits of p: t - 8192 p = RN16(p), ties to even
            np.multiply(wide, large, out=values)  # RNE
            np.multiply(wide, small, out=wide)  # exact: 15 bits
            np.subtract(values, wide, out=values)  # exact
        bits = self._scratch.get("wide", self.shape, np.int32)
        np.right_shift(values.view(np.int32), 23, out=bits)
        np.copyto(fields, bits, casting="unsafe")  # the sign falls off
        np.maximum(fields, NO_TERM, out=fields)

    def _rounded(self, centred: I8, small: F32, values: F32, fields: U8) -> None:
        """Any finite scale: subnormal results and overflow to Inf included."""
        wide = centred.astype(np.float32) * (small * np.float32(2.0**-13))  # exact
        values[...] = widen(narrow(wide, "float16"))
        fields[...] = exponent_fields(values)

    def _rows_of(self, tile: int, half: int) -> tuple[U8, F32, F32]:
        """Zero points, 8193 s and 8192 s of the unit's warp rows, each (warp rows, columns)."""
        groups = tuple(self._groups[tile, half])
        if groups != self._last or self._tables is None:
            index = list(groups)
            zeros = self._zeros[index].view(np.uint8)
            scales = self._scales[index] if self._scales is not None else np.zeros((0,), np.float32)
            self._last = groups
            self._tables = (zeros, scales * np.float32(8193), scales * np.float32(8192))  # 24 bits: exact
        return self._tables


def activations(stored: Stored, tile_k: int, *, interleaved: bool) -> tuple[F32, U8, npt.NDArray[np.bool_]]:
    """Rows of A cut like the weights: values and fields (k-tile, h, 16, warp row, rows, 1).

    Also says which rows are finite. Fields are exponents modulo 256, to be added to a weight's field.
    """
    values = widen(stored)
    finite = np.isfinite(values).all(axis=1)
    fields = exponent_fields(values) - np.uint8(127)  # modulo 256
    cut_values = k_view(np.ascontiguousarray(values.T), tile_k, interleaved=interleaved)[..., np.newaxis]
    cut_fields = k_view(np.ascontiguousarray(fields.T), tile_k, interleaved=interleaved)[..., np.newaxis]
    return np.ascontiguousarray(cut_values), np.ascontiguousarray(cut_fields), finite  # type: ignore[return-value]
