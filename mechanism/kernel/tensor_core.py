"""What one matrix instruction does to the bits (tensor-core 1 to 7): rules as data, one exact step.

``step`` is sections 7.2 and 7.3, for any input; ``chain.FastChain`` is 7.1, for the GEMM's fp16 operands.
``plain.py`` reads the same rules with integers only and is the tests' oracle.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

import numpy as np
import numpy.typing as npt

from mechanism.kernel.errors import ConfigurationError, ShapeError
from mechanism.kernel.rounding import F32, F64, NAN32, U16, U32
from mechanism.values import frozen

I64 = npt.NDArray[np.int64]


@frozen
class Rules:
    """One architecture's arithmetic (tensor-core 1).

    Attributes:
        step: L, products summed in one step.
        fraction: F, fraction bits kept below the largest exponent.
        floor: E0, lower limit of the largest exponent.
        instructions: (m, n, k) shapes with fp32 accumulators.
        bfloat16: Whether bf16 inputs exist.
    """

    step: int
    fraction: int
    floor: int
    instructions: tuple[tuple[int, int, int], ...]
    bfloat16: bool = True


_K4, _K8, _K16 = (8, 8, 4), (16, 8, 8), (16, 8, 16)
_AMPERE: Final = Rules(step=8, fraction=24, floor=-132, instructions=(_K8, _K16))
_HOPPER: Final = Rules(step=16, fraction=25, floor=-133, instructions=(_K8, _K16))

RULES: Final = MappingProxyType(
    {
        "sm_70": Rules(step=4, fraction=23, floor=-131, instructions=(_K4,), bfloat16=False),
        "sm_75": Rules(step=8, fraction=24, floor=-132, instructions=(_K8,), bfloat16=False),
        "sm_80": _AMPERE,
        "sm_86": _AMPERE,
        "sm_87": _AMPERE,
        "sm_89": _AMPERE,
        "sm_90": _HOPPER,
        "sm_100": _HOPPER,
        "sm_120": _HOPPER,
    }
)
"""Rules by compute architecture."""

# stored mantissa bits, exponent bias, smallest normal exponent (tensor-core 2)
_FORMATS: Final = MappingProxyType({"float16": (10, 15, -14), "bfloat16": (7, 127, -126)})
NO_TERM: Final = -(1 << 12)  # exponent of a zero: below every real one, also after adding two of them


def rules(arch: str, dtype: str = "float16") -> Rules:
    """The rules of ``arch``.

    Raises:
        ConfigurationError: Unknown architecture, or one without that input type.
    """
    if arch not in RULES:
        raise ConfigurationError(f"tensor core of {arch}: not known; known are {', '.join(RULES)}")
    found = RULES[arch]
    if dtype not in _FORMATS or (dtype == "bfloat16" and not found.bfloat16):
        raise ConfigurationError(f"tensor core of {arch}: no instruction with {dtype} inputs")
    return found


def decode(bits: U16, dtype: str) -> tuple[F32, I64]:
    """Values in fp32 (exact) and un-normalised exponents of 16-bit patterns (tensor-core 2).

    A subnormal has the format's smallest exponent, a zero has ``NO_TERM``; Inf and NaN keep their value
    and get an exponent that nobody may use.
    """
    mantissa, bias, smallest = _FORMATS[dtype]
    if dtype == "float16":
        with np.errstate(invalid="ignore"):
            values = bits.view(np.float16).astype(np.float32)
    else:
        values = (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
    field = (bits.astype(np.int64) & 0x7FFF) >> mantissa
    exponents = np.maximum(field - bias, smallest)
    return values, np.where(values == 0, NO_TERM, exponents)


def step(a: F32, ea: I64, b: F32, eb: I64, c: F32, rule: Rules) -> F32:
    """One step: ``c`` plus at most L products, cut and truncated (tensor-core 2, 4).

    Args:
        a: Factors, the step's products along axis 0; broadcasts with ``b``.
        ea: Their exponents, from ``decode``.
        b: The other factors.
        eb: Their exponents.
        c: Accumulators, shape of the products without axis 0.
        rule: The architecture's rules.
    """
    with np.errstate(all="ignore"):
        products = a.astype(np.float64) * b.astype(np.float64)  # exact: 22 (16) significant bits
        exponents = np.broadcast_to(ea + eb, products.shape)
        total = c.astype(np.float64) + products.sum(axis=0)  # only its finiteness is used (7.3)
        special = ~np.isfinite(total)
        if special.any():
            products = np.where(special, 0.0, products)
            c = np.where(special, np.float32(0), c)
        result = _general64(products, exponents, c, rule)
        if special.any():
            infinite = np.where(np.isnan(total), NAN32.view(np.float32), total.astype(np.float32))
            result = np.where(special, infinite, result)
    return result


def _general64(products: F64, exponents: I64, c: F32, rule: Rules) -> F32:
    """Section 7.2: any finite input, with E0 and absent terms as in section 2."""
    ec = np.maximum(((c.view(np.uint32) >> np.uint32(23)) & np.uint32(255)).astype(np.int64) - 127, -126)
    ec = np.where(c == 0, NO_TERM, ec)
    emax = np.maximum(np.maximum(exponents.max(axis=0), ec), rule.floor)
    scale = np.ldexp(1.0, rule.fraction - emax)
    cut = np.trunc(c.astype(np.float64) * scale)  # RZ to the quantum
    total = cut + np.trunc(products * scale).sum(axis=0)  # exact: below 2^33
    value = np.ldexp(total, emax - rule.fraction)
    return _truncate32(value)


def _truncate32(value: F64) -> F32:
    """fp64 to fp32 toward zero; 2^128 and more is Inf, a crumb below 2^-149 is +0 (tensor-core 2, 6)."""
    magnitude = np.abs(value)
    clear = np.int64(-1 << 29)
    normal = (value.view(np.int64) & clear).view(np.float64)
    small = np.ldexp(np.trunc(np.ldexp(value, 149)), -149)
    result = np.where(magnitude < 2.0**-126, small, normal)
    result = np.where(magnitude >= 2.0**128, np.copysign(np.inf, value), result)
    return (result + 0.0).astype(np.float32)  # + 0.0 turns -0 into +0


def mma(a: U16, b: U16, c: U32, *, arch: str, dtype: str = "float16", k: int | None = None) -> U32:
    """D = A B + C as a chain of matrix instructions, bits in, bits out.

    Args:
        a: Bit patterns, shape (..., m, K).
        b: Bit patterns, shape (..., K, n).
        c: fp32 bit patterns, shape (..., m, n).
        arch: Architecture, e.g. ``sm_86``.
        dtype: ``float16`` or ``bfloat16``.
        k: K of one instruction; the longest the architecture has by default. K is cut into these, each
            into steps of at most L products, in ascending k.

    Returns:
        fp32 bit patterns, shape (..., m, n).

    Raises:
        ConfigurationError: Unknown architecture, input type or instruction.
        ShapeError: Shapes that do not fit together, or K that is no multiple of ``k``.
    """
    rule = rules(arch, dtype)
    lengths = tuple(shape[2] for shape in rule.instructions)
    length = lengths[-1] if k is None else k
    if length not in lengths:
        raise ConfigurationError(
            f"tensor core of {arch}: no instruction with k={length}; use one of {lengths}"
        )
    total = a.shape[-1]
    if b.shape[-2] != total or c.shape[-2:] != (a.shape[-2], b.shape[-1]) or total % length:
        raise ShapeError(
            f"expected A (m, K), B (K, n), C (m, n) with K a multiple of {length},"
            f" got {a.shape}, {b.shape}, {c.shape}"
        )
    av, ae = decode(np.moveaxis(a, -1, 0)[..., np.newaxis], dtype)  # (K, ..., m, 1)
    bv, be = decode(np.moveaxis(b, -2, 0)[..., np.newaxis, :], dtype)  # (K, ..., 1, n)
    acc = c.view(np.float32)
    for start in range(0, total, length):
        for low in range(start, start + length, rule.step):
            ks = slice(low, min(low + rule.step, start + length))
            acc = step(av[ks], ae[ks], bv[ks], be[ks], acc, rule)
    return np.ascontiguousarray(acc).view(np.uint32)
