"""silu_and_mul and its table (marlin-moe 8.1)."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mechanism.kernel import plain
from mechanism.kernel.activation import silu_and_mul
from mechanism.kernel.errors import ShapeError
from mechanism.kernel.rounding import bits16
from mechanism.kernel.silu import AMBIGUOUS_BF16, AMBIGUOUS_FP16, ambiguous, table
from tests.kernel.kernel_setup import few

FORMATS = plain.FORMATS


@pytest.mark.slow
@pytest.mark.parametrize("dtype", FORMATS)
def test_all_entries_by_integers(dtype: str) -> None:
    """All 65,536 gate values against exact integer arithmetic."""
    got = table(dtype)
    want = [plain.silu_bits(gate, FORMATS[dtype]) for gate in range(1 << 16)]
    assert np.flatnonzero(got != np.array(want, dtype=np.uint16)).tolist() == []


@few
@given(gate=st.integers(0, 0xFFFF))
def test_an_entry_by_integers(gate: int) -> None:
    """The same, sampled, in the short run."""
    for dtype, fmt in FORMATS.items():
        assert int(table(dtype)[gate]) == plain.silu_bits(gate, fmt)


def test_ambiguous_inputs_have_the_default_candidate() -> None:
    """E = RN32(2^r) for the fifteen; two bf16 inputs of normal size and 128 of the smallest binade."""
    assert len(AMBIGUOUS_FP16) == 15
    for gate, (default, other) in AMBIGUOUS_FP16.items():
        assert int(table("float16")[gate]) == default
        assert abs(default - other) == 1
    assert len(AMBIGUOUS_BF16) == 130
    assert (int(table("bfloat16")[0x3C00]), int(table("bfloat16")[0xBB80])) == (0x3B80, 0xBB00)


def test_specials() -> None:
    """Zeros keep their sign, -inf and NaN give NaN, very negative gates give -0."""
    got = table("float16")[[0x0000, 0x8000, 0x7C00, 0xFC00, 0x7E00, 0xFBFF]]
    assert [hex(bits) for bits in got.tolist()] == ["0x0", "0x8000", "0x7c00", "0x7fff", "0x7fff", "0x8000"]


def test_rounding_between_silu_and_product() -> None:
    """H is an fp16 value before it meets the up column."""
    gate = np.array([[1.5, -0.25, 3.0]], dtype=np.float16)
    up = np.array([[1.1, 2.7, -0.3]], dtype=np.float16)
    got = silu_and_mul(np.concatenate([gate, up], axis=1))
    h = table("float16")[bits16(gate)].view(np.float16)
    assert np.array_equal(bits16(got.output), bits16(h * up))
    assert got.ambiguous_gates == ()


def test_ambiguous_gates_are_reported_and_can_be_measured() -> None:
    """U2: which patterns were met, and one device's own results in their place."""
    w13 = np.array([[0x1400, 0xC173, 0x3C00, 0x3C00]], dtype=np.uint16).view(np.float16)
    got = silu_and_mul(w13)
    assert got.ambiguous_gates == (0x1400, 0xC173)
    measured = silu_and_mul(w13, measured={0x1400: 0x1001})
    assert bits16(got.output).tolist() == [[0x1000, 0xB15D]]
    assert bits16(measured.output).tolist() == [[0x1001, 0xB15D]]
    assert ambiguous(np.array([0x3C00], dtype=np.uint16), "bfloat16") == (0x3C00,)


def test_0_29_0_loses_the_sign_of_a_zero_up() -> None:
    """float(u) + 0.0 (A.2)."""
    w13 = np.array([[0x3C00, 0x8000]], dtype=np.uint16).view(np.float16)
    assert int(bits16(silu_and_mul(w13).output)[0, 0]) == 0x8000
    assert int(bits16(silu_and_mul(w13, kernel="vllm==0.29.0").output)[0, 0]) == 0x0000


def test_table_cannot_be_written() -> None:
    """It is shared by all calls of a process."""
    with pytest.raises(ValueError, match=r"read-only"):
        table("float16")[0] = 1


def test_shape_is_checked() -> None:
    """Two equal halves."""
    with pytest.raises(ShapeError, match=r"^w13: expected float16 \(rows, 2 I\), got float16 \(1, 3\)$"):
        silu_and_mul(np.zeros((1, 3), np.float16))


def test_an_activation_loads_no_more_of_numpy() -> None:
    """Masked arrays, which numpy's `unique` imports, take a cold process as long as its silu."""
    code = (
        "import sys, numpy as np\n"
        "from mechanism.kernel.activation import silu_and_mul\n"
        "before = set(sys.modules)\n"
        "assert silu_and_mul(np.full((1, 2), 2.0**-10, np.float16)).ambiguous_gates == (0x1400,)\n"
        "print(sorted(set(sys.modules) - before))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"
