"""The parts of a layer that an implementation of the arithmetic brings: all of them give equal bits."""

from __future__ import annotations

from collections.abc import Callable

from mechanism.kernel.activation import Activation, silu_and_mul
from mechanism.kernel.combine import moe_sum
from mechanism.kernel.gemm import Multiply, marlin_gemm
from mechanism.kernel.rounding import Stored
from mechanism.values import frozen

Activate = Callable[..., Activation]
Combine = Callable[..., Stored]


@frozen(eq=False)
class Arithmetic:
    """Who computes a layer.

    Attributes:
        name: As records have it.
        multiply: The GEMM, called as ``gemm.marlin_gemm`` is.
        activate: Called as ``activation.silu_and_mul`` is.
        combine: Called as ``combine.moe_sum`` is.
    """

    name: str = "numpy"
    multiply: Multiply = marlin_gemm
    activate: Activate = silu_and_mul
    combine: Combine = moe_sum


NUMPY = Arithmetic()
