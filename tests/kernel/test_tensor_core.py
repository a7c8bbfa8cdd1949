"""Laws of one matrix instruction, and numpy against integers (tensor-core 2 to 7)."""

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mechanism.kernel import plain
from mechanism.kernel.errors import ConfigurationError, ShapeError
from mechanism.kernel.tensor_core import RULES, mma, rules
from tests.kernel.kernel_setup import few

ARCHITECTURES = ("sm_75", "sm_80", "sm_90")
U16 = npt.NDArray[np.uint16]
U32 = npt.NDArray[np.uint32]

# the patterns that rules turn on: zeros, subnormals, ones, largest, Inf, NaN
EDGES = (
    0x0000,
    0x8000,
    0x0001,
    0x8001,
    0x03FF,
    0x0400,
    0x3C00,
    0xBC00,
    0x7BFF,
    0xFBFF,
    0x7C00,
    0xFC00,
    0x7E01,
)
halves = st.sampled_from(EDGES) | st.integers(0, 0xFFFF)
finite = st.integers(0, 0x7BFF) | st.integers(0x8000, 0xFBFF)
wide = st.sampled_from((0, 0x8000_0000, 1, 0x7F7F_FFFF, 0x7F80_0000, 0xFF80_0000, 0x7FC0_0001)) | st.integers(
    0, 0xFFFF_FFFF
)
narrow = st.integers(0, 0x4FFF_FFFF)  # finite fp32, not near overflow


def one(a: list[int], b: list[int], c: int, *, arch: str, dtype: str = "float16") -> int:
    """One output element, K = len(a), by the numpy room."""
    got = mma(
        np.array([a], dtype=np.uint16),
        np.array([b], dtype=np.uint16).T.copy(),
        np.array([[c]], dtype=np.uint32),
        arch=arch,
        dtype=dtype,
    )
    return int(got[0, 0])


def rows(elements: st.SearchStrategy[int], length: int = 16) -> st.SearchStrategy[list[int]]:
    """K factors."""
    return st.lists(elements, min_size=length, max_size=length)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@few
@given(a=rows(halves), b=rows(halves), c=wide)
def test_numpy_is_the_plain_reading(dtype: str, arch: str, a: list[int], b: list[int], c: int) -> None:
    """Any bit patterns, specials and NaNs included."""
    want = plain.chain(a, b, c, fmt=plain.FORMATS[dtype], core=plain.CORES[arch])
    assert f"{one(a, b, c, arch=arch, dtype=dtype):08x}" == f"{want:08x}"


@few
@given(a=rows(halves, 8), b=rows(halves, 8), c=wide)
def test_volta_and_turing_are_the_plain_reading(a: list[int], b: list[int], c: int) -> None:
    """Four and eight products per step."""
    for arch, k in (("sm_70", 4), ("sm_75", 8)):
        want = plain.chain(a, b, c, fmt=plain.FORMATS["float16"], core=plain.CORES[arch], k=k)
        assert one(a, b, c, arch=arch) == want


@pytest.mark.parametrize("arch", ARCHITECTURES)
@few
@given(a=rows(halves), b=rows(halves), c=wide, data=st.data())
def test_order_inside_a_step_changes_nothing(
    arch: str, a: list[int], b: list[int], c: int, data: st.DataObject
) -> None:
    """A step is one integer sum."""
    length = rules(arch).step
    order = [low + k for low in range(0, 16, length) for k in data.draw(st.permutations(range(length)))]
    assert one([a[k] for k in order], [b[k] for k in order], c, arch=arch) == one(a, b, c, arch=arch)


def test_order_across_steps_matters() -> None:
    """On Ampere k 0..7 come first: 1 arrives before or after the crumbs that it cuts away."""
    ones, crumbs = [0x3C00] + [0] * 7, [0x0001] * 8  # 1.0; eight times 2^-24
    b = [0x3C00] * 8 + [0x0001] * 8
    assert one(ones + crumbs, b, 0, arch="sm_80") == 0x3F80_0000
    b = [0x0400] * 8 + [0x3C00] * 8  # crumbs of 2^-38 first, then 1.0
    assert one(crumbs + ones, b, 0, arch="sm_80") == 0x3F80_0000
    assert one([0x3C00] + [0] * 15, [0x3C00] * 16, 0x3380_0000, arch="sm_80") == 0x3F80_0000


@pytest.mark.parametrize("arch", ARCHITECTURES)
@few
@given(a=rows(finite), b=rows(finite), c=narrow)
def test_negation(arch: str, a: list[int], b: list[int], c: int) -> None:
    """Truncation is symmetric: -A and -C give -D, zero apart."""
    plus = one(a, b, c, arch=arch)
    minus = one([x ^ 0x8000 for x in a], b, c ^ 0x8000_0000, arch=arch)
    assert minus == (plus ^ 0x8000_0000 if plus & 0x7FFF_FFFF else 0)


@pytest.mark.parametrize("arch", ARCHITECTURES)
@few
@given(a=rows(st.integers(0x2000, 0x4FFF)), b=rows(finite), c=st.integers(0x2000_0000, 0x4FFF_FFFF))
def test_scaling_by_two(arch: str, a: list[int], b: list[int], c: int) -> None:
    """Twice A and twice C give twice D, inside the range."""
    once = one(a, b, c, arch=arch)
    assume(0x0100_0000 < once & 0x7FFF_FFFF < 0x7E00_0000)
    assert one([x + 0x400 for x in a], b, c + 0x80_0000, arch=arch) == once + 0x80_0000


@few
@given(a=rows(halves), b=rows(halves), c=wide)
def test_factors_commute(a: list[int], b: list[int], c: int) -> None:
    """A kernel that swaps operands to fit small m computes the same bits."""
    for arch in ARCHITECTURES:
        assert one(a, b, c, arch=arch) == one(b, a, c, arch=arch)


@few
@given(a=rows(finite), b=rows(finite), c=narrow)
def test_padding_with_zeros_changes_nothing(a: list[int], b: list[int], c: int) -> None:
    """After a first step the accumulator is not -0, so zero products pass it through."""
    for arch in ARCHITECTURES:
        assert one(a + [0] * 16, b + [0x7BFF] * 16, c, arch=arch) == one(a, b, c, arch=arch)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_minus_zero_is_never_produced(arch: str) -> None:
    """All products -0 and C = -0."""
    assert one([0x8000] * 16, [0x3C00] * 16, 0x8000_0000, arch=arch) == 0


@few
@given(a=rows(halves), b=rows(halves), c=wide)
def test_architectures_of_a_family_agree(a: list[int], b: list[int], c: int) -> None:
    """sm_86 and sm_89 are sm_80; sm_100 and sm_120 are sm_90; Turing chained equals Ampere."""
    ampere = one(a, b, c, arch="sm_80")
    assert {one(a, b, c, arch=arch) for arch in ("sm_75", "sm_86", "sm_87", "sm_89")} == {ampere}
    hopper = one(a, b, c, arch="sm_90")
    assert {one(a, b, c, arch=arch) for arch in ("sm_100", "sm_120")} == {hopper}


def test_sums_that_leave_int32_are_right() -> None:
    """Sixteen products of (2 - 2^-10)^2 and C beside them: 2,212,495,868 quanta on Hopper."""
    largest = [0x3FFF] * 16
    want = plain.chain(largest, largest, 0x3FFF_FFFF, fmt=plain.FORMATS["float16"], core=plain.CORES["sm_90"])
    assert one(largest, largest, 0x3FFF_FFFF, arch="sm_90") == want == 0x4283_E001


def test_refusals_name_the_way_out() -> None:
    """Architecture, input type, instruction, shapes."""
    a, b = np.zeros((1, 8), np.uint16), np.zeros((8, 1), np.uint16)
    c = np.zeros((1, 1), np.uint32)
    with pytest.raises(
        ConfigurationError, match=r"^tensor core of sm_60: not known; known are sm_70, sm_75,"
    ):
        mma(a, b, c, arch="sm_60")
    with pytest.raises(
        ConfigurationError, match=r"^tensor core of sm_75: no instruction with bfloat16 inputs$"
    ):
        mma(a, b, c, arch="sm_75", dtype="bfloat16")
    with pytest.raises(
        ConfigurationError, match=r"^tensor core of sm_75: no instruction with k=16; use one of \(8,\)$"
    ):
        mma(a, b, c, arch="sm_75", k=16)
    with pytest.raises(ShapeError, match=r"^expected A .* with K a multiple of 16, got"):
        mma(a, b, c, arch="sm_80")


def test_rules_table() -> None:
    """tensor-core 1."""
    assert {arch: (rule.step, rule.fraction, rule.floor) for arch, rule in RULES.items()} == {
        "sm_70": (4, 23, -131),
        "sm_75": (8, 24, -132),
        "sm_80": (8, 24, -132),
        "sm_86": (8, 24, -132),
        "sm_87": (8, 24, -132),
        "sm_89": (8, 24, -132),
        "sm_90": (16, 25, -133),
        "sm_100": (16, 25, -133),
        "sm_120": (16, 25, -133),
    }
