"""Whether packed bytes mean what they should: dequantised values against a digest.

Shapes and round trips cannot tell a wrong nibble order or zero points that are stored minus one: the bytes
look the same. A digest of the values can, and if a known mistake explains the difference it is named.
"""

import hashlib
from collections.abc import Callable, Mapping

import numpy as np

from mechanism.checkpoint.errors import LayoutError
from mechanism.checkpoint.shards import Array
from mechanism.fixture.layout import GEMMS
from mechanism.fixture.packing import NIBBLE_COLUMN, U8, unpack
from mechanism.fixture.quantise import Quantised, dequantise

_Reading = tuple[Callable[[U8], U8], int]  # how codes and zeros are reordered, what is added to zeros


def _as_packed(values: U8) -> U8:
    return values


def _linear(values: U8) -> U8:
    """What the words hold if nibble j is column 8c + j."""
    words = values.reshape(*values.shape[:-1], -1, len(NIBBLE_COLUMN))
    return words[..., list(NIBBLE_COLUMN)].reshape(values.shape)


#: Known mistakes, by what to call them.
_MISTAKES: Mapping[str, _Reading] = {
    "nibbles in linear order, where AutoAWQ has 0, 2, 4, 6, 1, 3, 5, 7": (_linear, 0),
    "zero points stored minus one, the GPTQ way": (_as_packed, 1),
    "nibbles in linear order and zero points stored minus one, as GPTQ has both": (_linear, 1),
}


def values_digest(weights: Mapping[str, Array]) -> str:
    """The sha256 of RN16((q - z) * s): float16 [K, N] little-endian, all experts of w13, then of w2."""
    return _digest(weights, (_as_packed, 0))


def require_values(weights: Mapping[str, Array], expected: str) -> None:
    """Raise LayoutError unless the dequantised values have the digest; a known mistake is named."""
    got = values_digest(weights)
    if got == expected:
        return
    reason = next(
        (name for name, reading in _MISTAKES.items() if _digest(weights, reading) == expected), None
    )
    raise LayoutError(
        f"dequantised values: expected sha256 {expected}, got {got}: "
        + (
            f"the bytes hold {reason}; pack them as quant_method says, or correct quant_method"
            if reason
            else "neither another nibble order nor zero points stored minus one explains it: other weights"
        )
    )


def _digest(weights: Mapping[str, Array], reading: _Reading) -> str:
    order, added = reading
    made = hashlib.sha256()
    for gemm in GEMMS:
        qweight, qzeros, scales = (weights[f"{gemm}_{part}"] for part in ("qweight", "qzeros", "scales"))
        group = qweight.shape[1] // scales.shape[1]
        for expert in range(qweight.shape[0]):
            quantised = Quantised(
                codes=order(unpack(qweight[expert])),
                zeros=order(unpack(qzeros[expert])) + np.uint8(added),
                scales=scales[expert],
            )
            made.update(dequantise(quantised, group=group).astype("<f2", copy=False).tobytes())
    return made.hexdigest()
