"""compressed-tensors' `pack-quantized` with 4 bits, brought into the canonical layout; exact, integers only.

Per projection K x N: weight_packed int32 [N, K/8], nibble j of word c holds k = 8c + j; weight_scale [N,
K/group]; weight_zero_point int32 [N/8, K/group], packed along N, nibble j of row r holds column 8r + j;
weight_shape holds (N, K). Codes and zero points are signed -8..7 and stored plus 8, so both come out as
0..15 and their difference is what it was. A symmetric checkpoint stores no zero points: they are 0, stored
as 8.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from mechanism.checkpoint.autoawq import wrong_scales
from mechanism.checkpoint.errors import LayoutError
from mechanism.checkpoint.shards import Stored
from mechanism.fixture.layout import PER_WORD
from mechanism.fixture.packing import U8, pack
from mechanism.fixture.recipe import Projection

SYMMETRIC = ("weight_packed", "weight_scale", "weight_shape")
ASYMMETRIC = (*SYMMETRIC, "weight_zero_point")
_ZERO = 8


def read_projection(parts: Mapping[str, Stored], *, k: int, n: int, group: int, experts: int) -> Projection:
    """One projection as canonical arrays; `experts` > 0 if all are stacked in it. Raises LayoutError."""
    lead = (experts,) if experts else ()
    packed, scale = parts["weight_packed"], parts["weight_scale"]
    _require(packed, "int32", (*lead, n, k // PER_WORD))
    if scale.dtype != "float16":
        raise LayoutError(wrong_scales(scale))
    _require(scale, "float16", (*lead, n, k // group))
    _require_shape(parts["weight_shape"], n, k)
    scales = np.ascontiguousarray(np.swapaxes(scale.read(), -1, -2))
    if not np.isfinite(scales).all():
        raise LayoutError(f"{scale.name}: expected finite scales, got an infinity or a NaN")
    zeros = np.full(scales.shape, _ZERO, dtype=np.uint8)
    if "weight_zero_point" in parts:
        zeros = _zeros(parts["weight_zero_point"], lead=lead, n=n, groups=k // group)
    codes = np.swapaxes(_unpack_last(packed.read()), -1, -2)
    return Projection(qweight=pack(codes), qzeros=pack(zeros), scales=scales)


def _zeros(stored: Stored, *, lead: tuple[int, ...], n: int, groups: int) -> U8:
    """Zero points uint8 [..., K/group, N]."""
    if stored.shape == (*lead, n, groups):
        raise LayoutError(
            f"{stored.name}: expected 8 zero points packed in each int32 word, shape"
            f" {[*lead, n // PER_WORD, groups]},"
            f" got {stored.dtype} {list(stored.shape)}, the shape of the scales: they are not packed"
        )
    _require(stored, "int32", (*lead, n // PER_WORD, groups))
    return _unpack_last(np.swapaxes(stored.read(), -1, -2))


def _unpack_last(words: npt.NDArray[Any]) -> U8:
    """Nibbles in linear order along the last axis: int32 [..., m] to uint8 [..., 8m]."""
    bits = np.ascontiguousarray(words).view(np.uint32)
    values = np.empty((*bits.shape, PER_WORD), dtype=np.uint8)
    for nibble in range(PER_WORD):
        values[..., nibble] = (bits >> np.uint32(4 * nibble)) & np.uint32(15)
    return values.reshape(*words.shape[:-1], words.shape[-1] * PER_WORD)


def _require(stored: Stored, dtype: str, shape: tuple[int, ...]) -> None:
    if stored.shape != shape or stored.dtype != dtype:
        raise LayoutError(
            f"{stored.name}: expected {dtype} {list(shape)}, got {stored.dtype} {list(stored.shape)}"
        )


def _require_shape(stored: Stored, n: int, k: int) -> None:
    if not stored.dtype.startswith("int") or not stored.shape or stored.shape[-1] not in (2, 3):
        raise LayoutError(
            f"{stored.name}: expected two integers, N and K, got {stored.dtype} {list(stored.shape)}"
        )
    told = stored.read().reshape(-1, stored.shape[-1])[:, -2:]
    if (told != (n, k)).any():
        raise LayoutError(f"{stored.name}: expected (N, K) = ({n}, {k}), got {told[0].tolist()}")
