"""The final sum over routes (marlin-moe 8.2)."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mechanism.kernel import exact
from mechanism.kernel.combine import moe_sum
from mechanism.kernel.errors import ShapeError
from mechanism.kernel.exact import FP16, FP32, Value
from mechanism.kernel.rounding import bits16
from tests.kernel.kernel_setup import few

VERSIONS = ("vllm==0.11.0", "vllm==0.22.0", "vllm==0.29.0")


def by_integers(terms: list[int], kernel: str) -> int:
    """The specification's order, in exact arithmetic with its roundings."""
    values = [exact.decode(bits, FP16) for bits in terms]
    if kernel == "vllm==0.29.0":
        return exact.encode(_running(values, FP32), FP16)
    if len(terms) in (2, 3, 4) and kernel == "vllm==0.22.0":
        return exact.encode(_running(values, FP16), FP16)
    sums = [_running(values[lane::4], FP32) for lane in range(4)]
    total = sums[0]
    for part in sums[1:]:
        total = exact.rounded(exact.plus(total, part), FP32)
    return exact.encode(total, FP16)


def _running(values: list[Value], fmt: exact.Format) -> Value:
    total = Value()
    for value in values:
        total = exact.rounded(exact.plus(total, value), fmt)
    return total


@few
@given(
    terms=st.lists(st.integers(0, 0x7BFF) | st.integers(0x8000, 0xFBFF), min_size=1, max_size=10),
    kernel=st.sampled_from(VERSIONS),
)
def test_sum_by_integers(terms: list[int], kernel: str) -> None:
    """Any number of routes, any finite values, all builds."""
    rows = np.array([terms], dtype=np.uint16).T.copy().view(np.float16)
    got = int(bits16(moe_sum(rows, top_k=len(terms), kernel=kernel))[0, 0])
    assert f"{got:04x}" == f"{by_integers(terms, kernel):04x}"


@pytest.mark.parametrize("kernel", VERSIONS)
def test_a_sum_of_minus_zeros_is_plus_zero(kernel: str) -> None:
    """Accumulators start at +0; so does the sum of one route (assumption U7)."""
    for top_k in (1, 2, 8):
        rows = np.full((top_k, 4), -0.0, dtype=np.float16)
        assert not bits16(moe_sum(rows, top_k=top_k, kernel=kernel)).any()


def test_shape_is_checked() -> None:
    """Rows are tokens times routes."""
    with pytest.raises(
        ShapeError, match=r"^routed: expected float16 \(tokens \* 4, H\), got float16 \(6, 8\)$"
    ):
        moe_sum(np.zeros((6, 8), np.float16), top_k=4)
