"""The compiled GEMM against the numpy one: equal bits, the same slices."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mechanism.kernel.gemm import marlin_gemm
from mechanism.kernel.rounding import bits16
from tests.kernel.kernel_setup import SHAPED, Problem, launch, problem

compiled = pytest.importorskip(
    "mechanism.kernel.compiled", reason="numba is the extra `fast`", exc_type=ImportError
)

pytestmark = pytest.mark.slow  # compiling alone takes some ten seconds in a fresh environment

TILES = ((64, 128), (128, 128), (128, 64), (64, 256))


def compare(given_: Problem, tile: tuple[int, int], grid: int, **options: Any) -> int:
    """Elements compared; fails where any bit, slice or unwritten row differs."""
    arguments = (given_.a, given_.weights, given_.alignment, launch(*tile, grid))
    want = marlin_gemm(*arguments, top_k=given_.top_k, **options)
    got = compiled.marlin_gemm(*arguments, top_k=given_.top_k, **options)
    assert np.flatnonzero(bits16(got.output) != bits16(want.output)).tolist() == []
    assert (got.executed, got.unwritten) == (want.executed, want.unwritten)
    return want.output.size


def drawn(seed: int, shaped: Callable[..., Any], **sizes: Any) -> Problem:
    """A problem with activations of some kind; scales from subnormal to large by ``spread``."""
    made = problem(seed, **sizes)
    rng = np.random.default_rng([seed, 1])
    values = shaped(rng, rng.standard_normal(made.a.shape))
    with np.errstate(over="ignore"):
        return replace(made, a=values.astype(np.float16))


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1),
    shaped=st.sampled_from(SHAPED),
    tile=st.sampled_from(TILES),
    grid=st.integers(1, 40),
    group=st.sampled_from((-1, 32, 64, 128)),
    arch=st.sampled_from(("sm_75", "sm_80", "sm_90")),
    spread=st.sampled_from((0, 4, 12)),
    kernel=st.sampled_from(("vllm==0.22.0", "vllm==0.11.0")),
    tokens=st.integers(1, 30),
)
def test_equal_bits(  # noqa: PLR0917 - drawn, by name
    seed: int,
    shaped: Callable[..., Any],
    tile: tuple[int, int],
    grid: int,
    group: int,
    arch: str,
    spread: int,
    kernel: str,
    tokens: int,
) -> None:
    """Any tile, grid, group, rules and build; activations of every kind."""
    compare(
        drawn(seed, shaped, tokens=tokens, k=256, n=256, group=group, spread=spread),
        tile,
        grid,
        arch=arch,
        kernel=kernel,
    )


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("shaped", SHAPED, ids=lambda shaped: shaped.__name__)
def test_a_million_elements(shaped: Callable[..., Any], arch: str) -> None:
    """Of every kind and both steps."""
    made = drawn(5, shaped, tokens=512, top_k=2, experts=8, k=256, n=1024, spread=4)
    assert compare(made, (64, 128), 82, arch=arch) >= 1_000_000


@pytest.mark.parametrize(
    "changes",
    [
        {"dtype": "bfloat16"},
        {"block": 48, "tokens": 60},
        {"n": 192 + 64 * 3, "tokens": 9},
        {"spread": 20},
    ],
)
def test_what_is_left_to_numpy_and_odd_sizes(changes: dict[str, Any]) -> None:
    """bf16, large blocks, a last piece that is narrower, scales that are Inf."""
    with np.errstate(over="ignore"):
        compare(problem(3, **changes), (64, 128), 7, arch="sm_86")


def test_weights_without_zero_points() -> None:
    """uint4b8: zero point 8."""
    made = problem(4, n=256)
    compare(replace(made, weights=replace(made.weights, qzeros=None)), (64, 128), 7, arch="sm_86")


@pytest.mark.parametrize("count", ["1", "3"])
def test_threads_change_no_bit(count: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as NUMBA_NUM_THREADS says."""
    monkeypatch.setenv("NUMBA_NUM_THREADS", count)
    assert compiled.compiled_threads() == int(count)
    compare(problem(6, tokens=40, n=512), (64, 128), 9, arch="sm_86")
