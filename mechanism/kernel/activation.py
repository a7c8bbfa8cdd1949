"""silu_and_mul: gate and up columns to the second GEMM's input (marlin-moe 8.1, A.2)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from mechanism.kernel import versions
from mechanism.kernel.errors import ShapeError
from mechanism.kernel.rounding import U16, Stored, bits16, multiply, narrow, storage, widen
from mechanism.kernel.silu import ambiguous, silu
from mechanism.values import frozen


@frozen(eq=False)
class Activation:
    """The activation surface, and what it rests on.

    Attributes:
        output: (rows, I), same storage as the input.
        ambiguous_gates: Gate patterns met whose silu depends on EX2 (assumption U2), ascending.
    """

    output: Stored
    ambiguous_gates: tuple[int, ...]


def silu_and_mul(
    w13: Stored,
    *,
    dtype: str = "float16",
    kernel: str = versions.DEFAULT,
    measured: Mapping[int, int] | None = None,
) -> Activation:
    """RN16(silu(gate) * up), with silu itself rounded to 16 bits first.

    Args:
        w13: (rows, 2 I): gate columns 0..I-1, up columns I..2I-1.
        dtype: ``float16`` or ``bfloat16`` (bit patterns in uint16).
        kernel: Build, as in ``versions``.
        measured: silu results of one device by gate bits, where they differ from the table (U2).

    Raises:
        ShapeError: Not two equal halves of that dtype.
    """
    if w13.ndim != 2 or w13.shape[1] % 2 or w13.dtype != storage(dtype):
        raise ShapeError(f"w13: expected {storage(dtype)} (rows, 2 I), got {w13.dtype} {w13.shape}")
    half = w13.shape[1] // 2
    gate: U16 = bits16(w13)[:, :half]
    up = widen(w13[:, half:])
    h = widen(silu(gate, dtype, measured).view(storage(dtype)))  # step 4: RN16
    if not versions.version(kernel).positive_zero_up:
        output = multiply(h, up, dtype)  # step 5: one 16-bit multiply
    else:
        with np.errstate(invalid="ignore", over="ignore", under="ignore"):
            output = narrow(h * (up + np.float32(0)), dtype)  # fp32 product: rounds once more if subnormal
    return Activation(output=output, ambiguous_gates=ambiguous(gate, dtype))
