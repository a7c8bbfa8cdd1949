"""The whole layer: surfaces, what they rest on, and the known defect (marlin-moe 3, appendix B)."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mechanism.kernel import alignment as al
from mechanism.kernel.activation import silu_and_mul
from mechanism.kernel.assumptions import ASSUMPTIONS
from mechanism.kernel.combine import moe_sum
from mechanism.kernel.dequantize import as_loaded
from mechanism.kernel.errors import AlignmentError, ShapeError
from mechanism.kernel.gemm import marlin_gemm
from mechanism.kernel.layer import LayerRun, moe_layer
from mechanism.kernel.rounding import bits16
from tests.kernel.kernel_setup import Problem, launch, problem

LAUNCH = launch(64, 128, 7)


def pair(intermediate: int = 256, **options: Any) -> tuple[Problem, Problem]:
    """W13 and W2 of one layer, hidden size 256."""
    first = problem(1, k=256, n=2 * intermediate, **options)
    return first, problem(2, k=intermediate, n=256, **options)


def run(first: Problem, second: Problem, **options: Any) -> LayerRun:
    """One forward pass of the small layer."""
    return moe_layer(
        options.pop("hidden", first.a),
        first.weights,
        second.weights,
        options.pop("topk_weights", first.topk_weights.reshape(-1, first.top_k)),
        options.pop("alignment", first.alignment),
        launch_w13=LAUNCH,
        launch_w2=LAUNCH,
        arch=options.pop("arch", "sm_86"),
        **options,
    )


@pytest.mark.parametrize("kernel", ["vllm==0.11.0", "vllm==0.22.0", "vllm==0.29.0"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_layer_is_its_four_steps(kernel: str, dtype: str) -> None:
    """GEMM, activation, GEMM with routing weights, sum: surface by surface."""
    first, second = pair(group=64, dtype=dtype)
    got = run(first, second, kernel=kernel)
    common = {"arch": "sm_86", "kernel": kernel}
    w13 = marlin_gemm(first.a, first.weights, first.alignment, LAUNCH, top_k=2, **common)  # type: ignore[arg-type]
    middle = silu_and_mul(w13.output, dtype=dtype, kernel=kernel)
    w2 = marlin_gemm(
        middle.output,
        second.weights,
        first.alignment,
        LAUNCH,
        top_k=1,
        topk_weights=first.topk_weights,
        **common,  # type: ignore[arg-type]
    )
    output = moe_sum(w2.output, top_k=2, dtype=dtype, kernel=kernel)
    for surface, want in (
        (got.w13, w13.output),
        (got.activation, middle.output),
        (got.w2, w2.output),
        (got.output, output),
    ):
        assert np.array_equal(bits16(surface), bits16(want))
    assert (got.executed_w13, got.executed_w2) == (w13.executed, w2.executed)
    assert not got.scale_defect


@pytest.mark.parametrize(
    ("options", "assumptions"),
    [
        ({}, ("U3", "U10")),
        ({"arch": "sm_90"}, ("U1", "U3", "U10")),
        ({"kernel": "vllm==0.11.0"}, ("U3", "U8", "U10")),
        ({"kernel": "vllm==0.29.0"}, ("U3", "U9", "U10")),
    ],
)
def test_assumptions_are_listed(options: dict[str, Any], assumptions: tuple[str, ...]) -> None:
    """Only those that the bits rest on, and each is known."""
    got = run(*pair(group=64), **options)
    assert got.ambiguous_gates == ()
    assert got.assumptions == assumptions
    assert set(got.assumptions) <= set(ASSUMPTIONS)


def test_a_captured_nan_relies_on_u4() -> None:
    """And it is the canonical one."""
    first, second = pair(group=64)
    hidden = first.a.copy()
    hidden[0, 0] = np.nan
    got = run(first, second, hidden=hidden)
    assert got.assumptions == ("U3", "U4", "U10")
    assert set(bits16(got.output)[0].tolist()) == {0x7FFF}


def test_one_route_per_token_relies_on_u7() -> None:
    """A reduction over one value."""
    first, second = pair(group=64, top_k=1)
    assert run(first, second).assumptions == ("U3", "U7", "U10")


def test_dropped_routes_need_an_expert_map() -> None:
    """Without one their rows are stale memory; with one they contribute +0."""
    first, second = pair(group=64, tokens=2, top_k=1, experts=3)
    aligned = al.align(((1,), (90,)), experts=70, block_size_m=8, arrival=(0, 1))
    with pytest.raises(AlignmentError, match=r"^routes \[1\] have no slot: without an expert map"):
        run(first, second, alignment=aligned)
    got = run(first, second, alignment=aligned, expert_map=True)
    assert not bits16(got.output)[1].any()
    assert bits16(got.output)[0].any()


def test_group_equal_to_the_intermediate_size_has_the_wrong_scales() -> None:
    """Case S9 in small: I = 128, group 128: W13 scales permuted wrongly, W2 channelwise and right."""
    first, second = pair(128, group=128)
    got = run(first, second)
    assert got.scale_defect
    wrong = as_loaded(first.weights, group_size=128, intermediate=128)
    assert second.weights.group == -1
    right = marlin_gemm(first.a, first.weights, first.alignment, LAUNCH, top_k=2, arch="sm_86")
    reproduced = marlin_gemm(first.a, wrong, first.alignment, LAUNCH, top_k=2, arch="sm_86")
    assert np.array_equal(bits16(got.w13), bits16(reproduced.output))
    assert not np.array_equal(bits16(got.w13), bits16(right.output))


def test_shapes_are_checked() -> None:
    """w13 and w2 of two layers; a layer that would not take the Marlin path; weights of other tokens."""
    first, second = pair(group=64)
    with pytest.raises(
        ShapeError, match=r"^w13 and w2: expected \(E, H, 2 I\) and \(E, I, H\), got \(3, 256, 512\)"
    ):
        run(first, first)
    narrow = problem(3, k=192, n=512, group=64), problem(4, k=256, n=192, group=64)
    with pytest.raises(ShapeError, match=r"^hidden % 128 must be 0: 192 leaves 64; pad hidden to 256$"):
        run(*narrow)
    with pytest.raises(ShapeError, match=r"^topk_weights: expected \(5, top_k\), got \(4, 2\)$"):
        run(first, second, topk_weights=np.zeros((4, 2), np.float32))


def test_weights_are_not_changed() -> None:
    """Arrays in, arrays out."""
    first, second = pair(128, group=128)
    before = [array.copy() for array in (first.a, first.weights.qweight, first.weights.scales)]
    run(first, second)
    run(replace(first), replace(second))
    after = (first.a, first.weights.qweight, first.weights.scales)
    assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))
