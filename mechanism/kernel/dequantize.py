"""Packed AWQ words, zero points and scales to matrix-instruction operands (marlin-moe 1.1, 1.4, 6.2).

Columns are kept in *plane order* while sums are made: a packed byte holds two columns, its low nibble in
plane 0 and its high nibble in plane 1, so unpacking is a mask and a shift. Arithmetic does not depend on
the column, so only finished outputs are put back into natural order.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from mechanism.kernel.errors import ShapeError
from mechanism.kernel.rounding import F32, U8, Stored, bits16, narrow, widen
from mechanism.values import frozen

Scalar = TypeVar("Scalar", bound=np.generic)
I8 = npt.NDArray[np.int8]
I32 = npt.NDArray[np.int32]


SYMMETRIC_ZERO = 8  # zero point of uint4b8 weights, which carry none


@frozen(eq=False)
class Weights:
    """The packed weights of one GEMM, all experts (marlin-moe 1.1, 1.2).

    Attributes:
        qweight: int32 (E, K, N/8), AutoAWQ nibble order.
        scales: (E, K/group, N), or one row for channelwise; float16, or uint16 holding bf16 bits.
        qzeros: int32 (E, K/group, N/8), same packing; None for uint4b8 weights (zero point 8).

    Raises:
        ShapeError: Shapes or dtypes do not fit together.
    """

    qweight: I32
    scales: Stored
    qzeros: I32 | None = None

    def __post_init__(self) -> None:
        if self.qweight.ndim != 3 or self.qweight.dtype != np.int32:
            raise ShapeError(
                f"qweight: expected int32 (E, K, N/8), got {self.qweight.dtype} {self.qweight.shape}"
            )
        experts, k, n = self.qweight.shape[0], self.qweight.shape[1], self.qweight.shape[2] * 8
        if self.scales.dtype not in (np.float16, np.uint16):
            raise ShapeError(f"scales: expected float16, or uint16 bf16 bits, got {self.scales.dtype}")
        if self.scales.ndim != 3 or self.scales.shape[::2] != (experts, n):
            raise ShapeError(f"scales: expected ({experts}, K/group, {n}), got {self.scales.shape}")
        rows = self.scales.shape[1]
        if rows < 1 or k % rows:
            raise ShapeError(f"scales: K % rows must be 0: K={k}, {rows} rows; store one row per group")
        if self.qzeros is None:
            return
        want = (experts, rows, n // 8)
        if self.qzeros.dtype != np.int32 or self.qzeros.shape != want:
            raise ShapeError(
                f"qzeros: expected int32 {want}, packed 8 to a word like qweight,"
                f" got {self.qzeros.dtype} {self.qzeros.shape}"
            )

    @property
    def experts(self) -> int:
        """E, local experts."""
        return int(self.qweight.shape[0])

    @property
    def k(self) -> int:
        """K, reduction length."""
        return int(self.qweight.shape[1])

    @property
    def n(self) -> int:
        """N, output columns."""
        return int(self.qweight.shape[2]) * 8

    @property
    def group(self) -> int:
        """Rows of K that share a scale; -1 (channelwise) if there is one scale row (1.4)."""
        rows = int(self.scales.shape[1])
        return -1 if rows == 1 else self.k // rows

    @property
    def dtype(self) -> str:
        """``float16`` or ``bfloat16``: the format of scales, activations and outputs."""
        return "float16" if self.scales.dtype == np.float16 else "bfloat16"


def to_planes(natural: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
    """Columns in plane order: shape (..., N) to (..., 2, N/2), contiguous.

    Byte b of a word holds columns ``x0 + 2*plane + 4*x2`` with ``x0 = b >> 1``, ``x2 = b & 1`` (1.1).
    """
    *lead, n = natural.shape
    cut = natural.reshape(*lead, n // 8, 2, 2, 2)  # word, x2, plane, x0
    axes = len(lead)
    moved = np.moveaxis(cut, (axes + 2, axes, axes + 3, axes + 1), (axes, axes + 1, axes + 2, axes + 3))
    return np.ascontiguousarray(moved).reshape(*lead, 2, n // 2)


def from_planes(planes: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
    """The inverse of ``to_planes``: shape (..., 2, N/2) to (..., N)."""
    *lead, _, half = planes.shape
    cut = planes.reshape(*lead, 2, half // 4, 2, 2)  # plane, word, x0, x2
    axes = len(lead)
    moved = np.moveaxis(cut, (axes, axes + 1, axes + 2, axes + 3), (axes + 2, axes, axes + 3, axes + 1))
    return np.ascontiguousarray(moved).reshape(*lead, 2 * half)


def nibble_planes(words: I32) -> U8:
    """Unpacked codes 0..15 in plane order: int32 (..., N/8) to uint8 (..., 2, N/2)."""
    packed = np.ascontiguousarray(words).view(np.uint8)  # little-endian: byte b holds nibbles 2b, 2b+1
    return np.stack([packed & np.uint8(15), packed >> np.uint8(4)], axis=-2)


def centred_planes(weights: Weights, expert: int) -> I8:
    """Codes less zero points, q - z, of one expert in plane order, int8 (K, 2, N/2); exact (6.2, step 3)."""
    codes = nibble_planes(weights.qweight[expert]).view(np.int8)
    zeros = zero_planes(weights, expert)
    rows = codes.shape[0] // zeros.shape[0]
    return codes - np.repeat(zeros, rows, axis=0)


def packed_zeros(weights: Weights, expert: int) -> U8:
    """Zero points of one expert as the bytes of their packed words, uint8 (K/group, N/2)."""
    if weights.qzeros is None:
        return np.full((weights.scales.shape[1], weights.n // 2), SYMMETRIC_ZERO * 0x11, dtype=np.uint8)
    return np.ascontiguousarray(weights.qzeros[expert]).view(np.uint8)


def zero_planes(weights: Weights, expert: int) -> I8:
    """Zero points of one expert in plane order, int8 (K/group, 2, N/2)."""
    return nibble_planes(packed_zeros(weights, expert).view(np.int32)).view(np.int8)


def scale_planes(weights: Weights, expert: int) -> F32:
    """Scales of one expert in plane order, exact in fp32, (K/group, 2, N/2)."""
    return widen(to_planes(weights.scales[expert]))


def operand_planes(weights: Weights, expert: int) -> Stored:
    """The matrix instruction's weight operand of one expert, plane order (K, 2, N/2).

    Grouped: RN16((q - z) * s), one rounding, subnormals kept, overflow to Inf (6.2). Channelwise: the
    integer q - z, exact (6.6). bf16 likewise with RNb (6.7).
    """
    centred = centred_planes(weights, expert).astype(np.float32)
    if weights.group == -1:
        return narrow(centred, weights.dtype)  # exact
    scales = np.repeat(scale_planes(weights, expert), weights.group, axis=0)
    # the exact product has at most 15 bits; in fp64 because a bf16 scale may be subnormal in fp32
    with np.errstate(invalid="ignore"):  # a scale that is infinite, or no number
        exact = centred.astype(np.float64) * scales.astype(np.float64)
    return narrow(exact, weights.dtype)


def finite_operands(weights: Weights, expert: int) -> bool:
    """Whether no operand of this expert is infinite or NaN."""
    magnitude = bits16(weights.scales[expert]) & np.uint16(0x7FFF)  # in the order of the values; NaN is last
    return finite_up_to(weights, magnitude.max(keepdims=True).view(weights.scales.dtype)).item()


def finite_up_to(weights: Weights, largest: Stored) -> npt.NDArray[np.bool_]:
    """Whether no operand is infinite or NaN where a scale is as large as ``largest``; any shape."""
    if weights.group == -1:
        return np.ones(largest.shape, dtype=np.bool_)  # the scale is applied to the sum
    return widen(largest).astype(np.float64) * 15 < (
        65520 if weights.dtype == "float16" else 2.0**127
    )  # False for NaN too


def dequantize(weights: Weights, expert: int) -> Stored:
    """``operand_planes`` in natural column order, shape (K, N)."""
    return from_planes(operand_planes(weights, expert))


def as_loaded(weights: Weights, *, group_size: int, intermediate: int) -> Weights:
    """The weights as the build's weight processing leaves them for the kernel (1.4).

    Which permutation the scales are stored in is decided from the intermediate size for both w13 and w2;
    where the kernel path undoes the other one, columns get each other's scales. This known defect of the
    supported builds is reproduced. The same object comes back where the permutation is right.
    """
    stored = "grouped" if group_size < intermediate else "single"
    read = "single" if weights.group == -1 else "grouped"
    if stored == read:
        return weights
    columns = defective_scale_columns(weights.n, stored=stored, read=read)
    return replace(weights, scales=np.ascontiguousarray(weights.scales[:, :, columns]))


def defective_scale_columns(n: int, *, stored: str, read: str) -> npt.NDArray[np.intp]:
    """Column whose scale is used for each output column when a permutation is the wrong one (1.4).

    Args:
        n: Output columns, a multiple of 64.
        stored: ``grouped`` or ``single``: the permutation that weight processing applied.
        read: The one that the kernel path undoes.
    """
    content = _stored_columns(n, stored)
    position = np.empty(n, dtype=np.intp)
    position[_stored_columns(n, read)] = np.arange(n)
    return content[position]


def _stored_columns(n: int, permutation: str) -> npt.NDArray[np.intp]:
    """Column held at every stored position (1.3)."""
    position: npt.NDArray[np.intp] = np.arange(n)
    if permutation == "grouped":
        return position // 64 * 64 + position % 64 // 8 + 8 * (position % 8)
    offsets = np.array([0, 1, 8, 9, 16, 17, 24, 25], dtype=np.intp)
    columns: npt.NDArray[np.intp] = position // 32 * 32 + 2 * (position % 32 // 8) + offsets[position % 8]
    return columns
