"""Roundings against integers only (mechanism.kernel.exact)."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mechanism.kernel import exact, rounding
from mechanism.kernel.errors import ShapeError
from tests.kernel.kernel_setup import few

FORMATS = {"float16": exact.FP16, "bfloat16": exact.BF16}
words = st.integers(0, 0xFFFF_FFFF)


@pytest.mark.parametrize("dtype", FORMATS)
@few
@given(bits=words)
def test_narrow_rounds_to_nearest_even(dtype: str, bits: int) -> None:
    """Any fp32 pattern: subnormals kept, overflow to Inf, NaN canonical, -0 kept."""
    value = np.array([bits], dtype=np.uint32).view(np.float32)
    want = exact.encode(exact.decode(bits, exact.FP32), FORMATS[dtype])
    assert int(rounding.bits16(rounding.narrow(value, dtype))[0]) == want


@pytest.mark.parametrize("dtype", FORMATS)
def test_which_16_bit_values_are_nan(dtype: str) -> None:
    """Every pattern by itself, and none at all."""
    every = np.arange(1 << 16, dtype=np.uint16)
    want = np.isnan(rounding.widen(every.view(rounding.storage(dtype))))
    got = [rounding.has_nan(every[at : at + 1].view(rounding.storage(dtype))) for at in range(1 << 16)]
    assert got == want.tolist()
    assert not rounding.has_nan(every[:0].view(rounding.storage(dtype)))


@pytest.mark.parametrize("dtype", FORMATS)
def test_ties_go_to_even_at_every_16_bit_value(dtype: str) -> None:
    """Half way between neighbours, exhaustively, and one fp32 ulp to either side."""
    low = np.arange(0x7C00 if dtype == "float16" else 0x7F80, dtype=np.uint16)[:-1]
    stored = low.view(np.float16) if dtype == "float16" else low
    above = (low + 1).view(np.float16) if dtype == "float16" else low + np.uint16(1)
    middle = (rounding.widen(stored).astype(np.float64) + rounding.widen(above)) / 2
    got = rounding.bits16(rounding.narrow(middle, dtype))
    assert np.array_equal(got, low + (low & 1))
    nudge = np.float64(2.0**-200)
    assert np.array_equal(rounding.bits16(rounding.narrow(np.nextafter(middle, nudge * 0), dtype)), low)
    assert np.array_equal(rounding.bits16(rounding.narrow(np.nextafter(middle, np.inf), dtype)), low + 1)


@pytest.mark.parametrize("dtype", FORMATS)
@few
@given(a=st.integers(0, 0xFFFF), b=st.integers(0, 0xFFFF))
def test_multiply_rounds_once(dtype: str, a: int, b: int) -> None:
    """Also where an fp32 product would be subnormal first."""
    fmt = FORMATS[dtype]
    stored = np.array([a, b], dtype=np.uint16)
    values = rounding.widen(stored.view(np.float16) if dtype == "float16" else stored)
    want = exact.encode(exact.times(exact.decode(a, fmt), exact.decode(b, fmt)), fmt)
    assert int(rounding.bits16(rounding.multiply(values[:1], values[1:], dtype))[0]) == want


@few
@given(a=words, b=words)
def test_add_is_one_fp32_rounding(a: int, b: int) -> None:
    """NaN comes out canonical."""
    pair = np.array([a, b], dtype=np.uint32).view(np.float32)
    want = exact.encode(exact.plus(exact.decode(a, exact.FP32), exact.decode(b, exact.FP32)), exact.FP32)
    assert int(rounding.add(pair[:1], pair[1:]).view(np.uint32)[0]) == want


@few
@given(a=st.integers(0, 0x7BFF), b=st.integers(1, 0x7BFF))
def test_exact_quotient_rounds_like_the_fraction(a: int, b: int) -> None:
    """The oracle's own division, against fractions."""
    x, y = exact.decode(a, exact.FP16), exact.decode(b, exact.FP16)
    got = exact.decode(exact.encode(exact.over(x, y), exact.FP32), exact.FP32)
    true = _fraction(x) / _fraction(y)
    assert abs(_fraction(got) - true) <= true * Fraction(1, 2**24)


def test_equal_means_equal_bits() -> None:
    """-0.0 is not 0.0; equal NaN patterns are equal, different ones are not (cases Q1, Q2)."""
    got = np.array([0x8000, 0x7E00, 0x7E00], dtype=np.uint16).view(np.float16)
    want = np.array([0x0000, 0x7E00, 0x7FFF], dtype=np.uint16).view(np.float16)
    assert rounding.differing_bits(got, want).tolist() == [0, 2]
    with pytest.raises(ShapeError, match=r"^expected float16 \(2,\), got float16 \(3,\)$"):
        rounding.differing_bits(got, want[:2])


def test_storage_of_other_dtypes_is_refused() -> None:
    """There are two 16-bit formats."""
    with pytest.raises(ShapeError, match=r"^dtype: expected float16 or bfloat16, got float32$"):
        rounding.storage("float32")


def _fraction(value: exact.Value) -> Fraction:
    return Fraction(value.signed) * Fraction(2) ** value.exponent
