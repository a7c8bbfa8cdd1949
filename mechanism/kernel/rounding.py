"""Roundings to fp16, bf16 and fp32, and the bit patterns they are stored in.

An fp16 array has dtype float16; numpy has no bf16, so a bf16 array holds bit patterns in uint16.
A 16-bit value used in arithmetic is held exactly in fp32. Every NaN made here is canonical (assumption
U4): 0x7FFF in 16 bits, 0x7FFFFFFF in fp32.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mechanism.kernel.errors import ShapeError

I32 = npt.NDArray[np.int32]
F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
U8 = npt.NDArray[np.uint8]
U16 = npt.NDArray[np.uint16]
U32 = npt.NDArray[np.uint32]
Stored = npt.NDArray[np.float16 | np.uint16]  # fp16 values, or bf16 bit patterns

DTYPES = ("float16", "bfloat16")
NAN16 = np.uint16(0x7FFF)
NAN32 = np.uint32(0x7FFF_FFFF)

# significand bits with the leading one, smallest normal exponent, first exponent that overflows
_FORMATS = {"float16": (11, -14, 16), "bfloat16": (8, -126, 128)}


def storage(dtype: str) -> np.dtype[np.float16 | np.uint16]:
    """The numpy dtype that stores a 16-bit format: float16 itself, or uint16 for bfloat16.

    Raises:
        ShapeError: Neither of the two.
    """
    if dtype not in DTYPES:
        raise ShapeError(f"dtype: expected float16 or bfloat16, got {dtype}")
    return np.dtype(np.float16) if dtype == "float16" else np.dtype(np.uint16)


def widen(stored: Stored) -> F32:
    """The stored 16-bit values, exactly, in fp32. dtype float16 or uint16 (bf16 bits); any shape."""
    if stored.dtype == np.float16:
        with np.errstate(invalid="ignore"):  # a signalling NaN is quieted; its value was no number before
            return stored.astype(np.float32)
    return (stored.astype(np.uint32) << np.uint32(16)).view(np.float32)


def narrow(values: F32 | F64, dtype: str) -> Stored:
    """RN16 or RNb: nearest even, subnormals kept, overflow to Inf, NaN canonical. One rounding."""
    nan = np.isnan(values)
    if dtype == "float16":
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            half = values.astype(np.float16)  # RNE from fp32 and from fp64, by exhaustive test
        return _canonical16(half.view(np.uint16), nan).view(np.float16)
    with np.errstate(invalid="ignore"):
        rounded = round16(values, dtype).astype(np.float32)
    bits = (rounded.view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    return _canonical16(bits, nan)


def round16(values: F32 | F64, dtype: str) -> F64:
    """The nearest 16-bit value (ties to even), held in fp64; Inf beyond the largest, -0 kept.

    Exact for any fp32 or fp64 input: the quantum is a power of two, so one rint is the one rounding.
    """
    precision, smallest, beyond = _FORMATS[dtype]
    x = np.asarray(values, dtype=np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        exponent = np.frexp(x)[1] - 1  # floor(log2 |x|); 0 for zero, Inf and NaN is harmless below
        step = np.maximum(exponent, smallest) - (precision - 1)
        rounded = np.ldexp(np.rint(np.ldexp(x, -step)), step)
        too_large = np.abs(rounded) >= np.ldexp(1.0, beyond)
        return np.where(too_large, np.copysign(np.inf, x), rounded)


def multiply(a: F32, b: F32, dtype: str) -> Stored:
    """A 16-bit multiply of 16-bit values held in fp32: exact product, one rounding."""
    with np.errstate(invalid="ignore", over="ignore"):
        if dtype == "float16":
            return narrow(a * b, dtype)  # 22 bits between 2^-48 and 2^32: fp32 holds the product
        return narrow(a.astype(np.float64) * b.astype(np.float64), dtype)  # fp32 could underflow


def add(a: F32, b: F32) -> F32:
    """One fp32 add, RNE; NaN canonical."""
    with np.errstate(invalid="ignore", over="ignore"):
        total = a + b
    return canonical32(total)


def canonical32(values: F32) -> F32:
    """The same fp32 values with every NaN as 0x7FFFFFFF; returned as it is when there is none."""
    nan = np.isnan(values)
    if not nan.any():
        return values
    bits = values.view(np.uint32).copy()
    bits[nan] = NAN32
    return bits.view(np.float32)


def bits16(stored: Stored) -> U16:
    """The bit patterns of a 16-bit array."""
    return stored.view(np.uint16)


def has_nan(stored: Stored) -> bool:
    """Whether any of these 16-bit values is a NaN: more than the bits of Inf, of either sign."""
    infinite = 0x7C00 if stored.dtype == np.float16 else 0x7F80
    largest = bits16(stored).view(np.int16).max(initial=0), bits16(stored).max(initial=0)
    return bool(largest[0] > infinite or largest[1] > 0x8000 + infinite)  # positive ones; negative ones


def differing_bits(got: npt.NDArray[np.generic], want: npt.NDArray[np.generic]) -> npt.NDArray[np.intp]:
    """Flat indices whose bit patterns differ: -0.0 is not 0.0, and NaN payloads count.

    Raises:
        ShapeError: Shapes or dtypes differ, so bits cannot be compared.
    """
    if got.shape != want.shape or got.dtype != want.dtype:
        raise ShapeError(f"expected {want.dtype} {want.shape}, got {got.dtype} {got.shape}")
    return np.flatnonzero(_as_bits(got) != _as_bits(want))


def _as_bits(array: npt.NDArray[np.generic]) -> npt.NDArray[np.unsignedinteger]:
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")


def _canonical16(bits: U16, nan: npt.NDArray[np.bool_]) -> U16:
    if nan.any():
        bits = bits.copy()
        bits[nan] = NAN16
    return bits
