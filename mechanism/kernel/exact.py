"""Floating-point formats and single operations on bit patterns, with integers only.

Slow on purpose: the arithmetic that ``plain`` reads the specifications with. No numpy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, kw_only=True, slots=True)
class Format:
    """A binary floating-point format: stored mantissa bits, exponent bias, all its bits."""

    mantissa: int
    bias: int
    bits: int

    @property
    def sign_bit(self) -> int:
        """The sign's bit."""
        return 1 << (self.bits - 1)

    @property
    def infinity(self) -> int:
        """Bits of +Inf."""
        return self.sign_bit - (1 << self.mantissa)

    @property
    def nan(self) -> int:
        """Bits of the canonical NaN (assumption U4)."""
        return self.sign_bit - 1

    @property
    def smallest(self) -> int:
        """Exponent of the smallest normal number."""
        return 1 - self.bias


FP16: Final = Format(mantissa=10, bias=15, bits=16)
BF16: Final = Format(mantissa=7, bias=127, bits=16)
FP32: Final = Format(mantissa=23, bias=127, bits=32)


@dataclass(frozen=True, kw_only=True, slots=True)
class Value:
    """A decoded number: ``(-1)^sign * significand * 2^exponent``, or a kind without one.

    ``kind`` is ``finite`` (zero included), ``inf`` or ``nan``.
    """

    kind: str = "finite"
    sign: int = 0
    significand: int = 0
    exponent: int = 0

    @property
    def signed(self) -> int:
        """The significand with its sign."""
        return -self.significand if self.sign else self.significand


NAN: Final = Value(kind="nan")


def decode(bits: int, fmt: Format) -> Value:
    """The value of a bit pattern. A subnormal keeps the format's smallest exponent."""
    sign = bits >> (fmt.bits - 1)
    field = (bits & (fmt.sign_bit - 1)) >> fmt.mantissa
    mantissa = bits & ((1 << fmt.mantissa) - 1)
    if field == (1 << (fmt.bits - 1 - fmt.mantissa)) - 1:
        return NAN if mantissa else Value(kind="inf", sign=sign)
    significand = mantissa if field == 0 else mantissa | 1 << fmt.mantissa
    exponent = max(field, 1) - fmt.bias - fmt.mantissa
    return Value(sign=sign, significand=significand, exponent=exponent)


def encode(value: Value, fmt: Format) -> int:
    """Round to nearest, ties to even; subnormals kept, overflow to Inf, NaN canonical."""
    if value.kind == "nan":
        return fmt.nan
    sign = fmt.sign_bit if value.sign else 0
    if value.kind == "inf":
        return sign | fmt.infinity
    m = value.significand
    if m == 0:
        return sign
    last = max(m.bit_length() - 1 + value.exponent, fmt.smallest) - fmt.mantissa  # exponent of the last bit
    shift = last - value.exponent
    if shift <= 0:
        kept = m << -shift
    else:
        kept, rest = m >> shift, m & ((1 << shift) - 1)
        half = 1 << (shift - 1)
        kept += rest > half or (rest == half and kept & 1)  # RNE
    # a carry out of the significand moves into the exponent field by itself
    field = last + fmt.mantissa + fmt.bias if kept >> fmt.mantissa else 0
    bits = (max(field, 1) - 1 << fmt.mantissa) + kept if field else kept
    return sign | min(bits, fmt.infinity)


def plus(a: Value, b: Value) -> Value:
    """The exact sum."""
    if "nan" in (a.kind, b.kind) or (a.kind == b.kind == "inf" and a.sign != b.sign):
        return NAN
    if a.kind == "inf" or b.kind == "inf":
        return a if a.kind == "inf" else b
    exponent = min(a.exponent, b.exponent)
    total = (a.signed << a.exponent - exponent) + (b.signed << b.exponent - exponent)
    # an exact zero is +0 unless both terms are -0
    sign = int(total < 0) if total else a.sign & b.sign & (a.significand == b.significand == 0)
    return Value(sign=sign, significand=abs(total), exponent=exponent)


def times(a: Value, b: Value) -> Value:
    """The exact product."""
    sign = a.sign ^ b.sign
    kinds = (a.kind, b.kind)
    if "nan" in kinds:
        return NAN
    if "inf" in kinds:
        zero = any(x.kind == "finite" and x.significand == 0 for x in (a, b))
        return NAN if zero else Value(kind="inf", sign=sign)
    return Value(sign=sign, significand=a.significand * b.significand, exponent=a.exponent + b.exponent)


def over(a: Value, b: Value, *, digits: int = 64) -> Value:
    """The quotient to more bits than any format has, its last bit sticky: rounding it once is right."""
    sign = a.sign ^ b.sign
    zero_a = a.kind == "finite" and a.significand == 0
    zero_b = b.kind == "finite" and b.significand == 0
    if "nan" in (a.kind, b.kind) or (a.kind == b.kind == "inf") or (zero_a and zero_b):
        return NAN
    if a.kind == "inf" or zero_b:
        return Value(kind="inf", sign=sign)
    if zero_a or b.kind == "inf":
        return Value(sign=sign)
    shift = max(0, digits + b.significand.bit_length() - a.significand.bit_length())
    quotient, rest = divmod(a.significand << shift, b.significand)
    return Value(
        sign=sign, significand=quotient << 1 | (rest != 0), exponent=a.exponent - b.exponent - shift - 1
    )


def rounded(value: Value, fmt: Format) -> Value:
    """The value after one rounding to a format."""
    return decode(encode(value, fmt), fmt)
