"""Activation and final sum in machine code, beside numpy's: every gate, every kind of number, every build."""

import importlib
import platform
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from mechanism.kernel import activation, combine, versions
from mechanism.kernel.errors import ShapeError
from mechanism.kernel.rounding import Stored, bits16
from mechanism.kernel.silu import AMBIGUOUS_FP16
from tests.kernel.kernel_setup import Problem, launch, problem

compiled: Any = pytest.importorskip(
    "mechanism.kernel.compiled_layer", reason="numba is the extra `fast`", exc_type=ImportError
)
KERNELS = sorted(versions.VERSIONS)
EVERY = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
#: Zeros, subnormals, ones that round, the largest, Inf and NaN.
FACTORS = [0.0, -0.0, 6e-8, -1e-5, 0.33325, 1.0, -3.0, 65504.0, np.inf, -np.inf, np.nan]


def same(got: Stored, want: Stored) -> bool:
    return got.shape == want.shape and bits16(got).tobytes() == bits16(want).tobytes()


@pytest.mark.parametrize("kernel", KERNELS)
def test_every_gate_by_every_kind_of_factor(kernel: str) -> None:
    """And what of it rests on EX2."""
    ups = np.repeat(np.array(FACTORS, dtype=np.float16)[:, np.newaxis], len(EVERY), axis=1)
    both = np.hstack([np.tile(EVERY, (len(FACTORS), 1)), ups])
    got, want = (module.silu_and_mul(both, kernel=kernel) for module in (compiled, activation))
    assert same(got.output, want.output)
    assert got.ambiguous_gates == want.ambiguous_gates == tuple(sorted(AMBIGUOUS_FP16))


def test_no_gate_that_rests_on_the_device() -> None:
    assert compiled.silu_and_mul(np.full((3, 8), 2, dtype=np.float16)).ambiguous_gates == ()


def test_what_a_device_was_measured_to_give() -> None:
    """The table of all others stays as it is."""
    measured = {gate: other for gate, (_, other) in AMBIGUOUS_FP16.items()}
    gates = np.array([*measured, 0x3C00], dtype=np.uint16).view(np.float16)
    both = np.hstack([gates, np.ones_like(gates)])[np.newaxis]
    got, want = (module.silu_and_mul(both, measured=measured) for module in (compiled, activation))
    assert same(got.output, want.output)
    assert bits16(got.output)[0, :-1].tolist() == list(measured.values())
    again = compiled.silu_and_mul(both).output
    assert bits16(again)[0, :-1].tolist() == [first for first, _ in AMBIGUOUS_FP16.values()]


def test_gates_that_are_no_gates_are_refused_alike() -> None:
    both = np.ones((1, 4), dtype=np.float16)
    for module in (compiled, activation):
        with pytest.raises(OverflowError):
            module.silu_and_mul(both, measured={-1: 3})


def terms(draw: np.random.Generator, rows: int, width: int) -> npt.NDArray[np.float16]:
    """Of all sizes, with some of every special kind, and sums that overflow or cancel."""
    made = (draw.standard_normal((rows, width)) * 2.0 ** draw.integers(-26, 17, (rows, width))).clip(
        -65504, 65504
    )
    drawn = made.astype(np.float16)
    special = draw.integers(0, 12, (rows, width))
    for kind, value in enumerate((0.0, -0.0, 6e-8, 65504.0, -65504.0)):
        drawn[special == kind] = value
    drawn[draw.integers(0, 400, (rows, width)) == 0] = np.inf
    drawn[draw.integers(0, 400, (rows, width)) == 1] = -np.inf
    drawn[draw.integers(0, 400, (rows, width)) == 2] = np.nan
    return drawn


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("top_k", [1, 2, 3, 4, 5, 6, 7, 8, 9, 64])
def test_sums_of_so_many_routes(top_k: int, kernel: str) -> None:
    """Widths below, at and above what is summed at a time."""
    draw = np.random.default_rng(top_k)
    for width in (8, 512, 1032):
        routed = terms(draw, 3 * top_k, width)
        got, want = (module.moe_sum(routed, top_k=top_k, kernel=kernel) for module in (compiled, combine))
        assert same(got, want), width
    zeros = np.full((top_k, 8), -0.0, dtype=np.float16)
    got, want = (module.moe_sum(zeros, top_k=top_k, kernel=kernel) for module in (compiled, combine))
    assert same(got, want)


def test_surfaces_of_all_layouts() -> None:
    """What is no block of memory of its own, and what may not be written to."""
    draw = np.random.default_rng(3)
    wide = terms(draw, 8, 64)
    wide.flags.writeable = False
    for made in (wide[:, ::2], wide[::2], np.asfortranarray(wide)):
        assert same(compiled.silu_and_mul(made).output, activation.silu_and_mul(made).output)
        assert same(compiled.moe_sum(made, top_k=2), combine.moe_sum(made, top_k=2))


def test_bfloat16_goes_the_other_way() -> None:
    draw = np.random.default_rng(4)
    bits = draw.integers(0, 1 << 16, (6, 64)).astype(np.uint16)
    got, want = (module.silu_and_mul(bits, dtype="bfloat16") for module in (compiled, activation))
    assert same(got.output, want.output)
    assert got.ambiguous_gates == want.ambiguous_gates
    sums = (module.moe_sum(bits, top_k=3, dtype="bfloat16") for module in (compiled, combine))
    assert same(*sums)


@pytest.mark.parametrize("shape", [(4,), (4, 7)])
def test_what_is_refused_is_refused_alike(shape: tuple[int, ...]) -> None:
    with pytest.raises(ShapeError) as refused:
        compiled.silu_and_mul(np.zeros(shape, dtype=np.float16))
    assert str(refused.value) == f"w13: expected float16 (rows, 2 I), got float16 {shape}"
    with pytest.raises(ShapeError) as refused:
        compiled.moe_sum(np.zeros(shape, dtype=np.float16), top_k=3)
    assert str(refused.value) == f"routed: expected float16 (tokens * 3, H), got float16 {shape}"


@pytest.mark.skipif(platform.machine() not in {"x86_64", "AMD64"}, reason="bits of MXCSR")
@pytest.mark.parametrize("asked", [0x8040, 3 << 13, 2 << 13, 0])
def test_what_was_asked_of_the_thread_neither_matters_nor_changes(asked: int) -> None:
    """Subnormals as zeros, or another rounding: no bit differs, and it is as it was afterwards."""
    words: Any = importlib.import_module("mechanism.kernel.compiled_words")

    @words.part  # type: ignore[untyped-decorator]
    def state() -> Any:
        return words.roundings()[2]

    @words.part  # type: ignore[untyped-decorator]
    def ask(word: Any) -> Any:
        words.round_by(np.int32(word))

    draw = np.random.default_rng(5)
    both, routed = draw.integers(0, 1 << 16, (2, 8, 64)).astype(np.uint16).view(np.float16)
    made = problem(6, n=256)
    made = replace(made, a=(made.a * np.float16(2e-6)).astype(np.float16))
    want = _everything(both, routed, made)
    before = state()
    ask(before | asked)
    try:
        got = _everything(both, routed, made)
        after = state()
    finally:
        ask(before)
    assert got == want
    assert (before | asked) & ~0x3F == after & ~0x3F  # but for the flags of what has happened


def _everything(both: Stored, routed: Stored, made: Problem) -> list[bytes]:
    gemm: Any = importlib.import_module("mechanism.kernel.compiled")
    product = gemm.marlin_gemm(
        made.a, made.weights, made.alignment, launch(64, 128, 7), top_k=made.top_k, arch="sm_86"
    )
    surfaces = product.output, compiled.silu_and_mul(both).output, compiled.moe_sum(routed, top_k=8)
    return [bits16(surface).tobytes() for surface in surfaces]


def test_every_half_is_widened_exactly() -> None:
    """NaN stays NaN."""
    ends = importlib.import_module("mechanism.kernel.compiled_ends")
    got = np.array([ends.wide(bits) for bits in EVERY.view(np.uint16)], dtype=np.float32)
    number = ~np.isnan(EVERY)
    assert got[number].tobytes() == EVERY[number].astype(np.float32).tobytes()
    assert np.isnan(got[~number]).all()
