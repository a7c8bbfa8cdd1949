"""The simulated GEMM beside torch: a float64 matmul of weights that AutoAWQ's own function dequantised.

The bound. Let v be the fp32 sum that the kernel rounds to 16 bits and r the exact sum of the same products. One
step of the tensor core adds L products to the accumulator; it cuts each of the L + 1 terms to a multiple of
2^(Emax - F) and then truncates the sum to fp32 (tensor-core 2, 4). Every term and every partial sum is at most
S = sum |a| |w|, operands below the normal range counted as the smallest normal number because their exponents
are not renormalised. So a step is wrong by less than ((L + 1) 2^-F + 2^-23) S; there are K / L steps, and the
warp rows and slices are joined by fewer than T fp32 additions, each wrong by at most 2^-24 S:

    |v - r| < d = S (K / L ((L + 1) 2^-F + 2^-23) + T 2^-24) (1 + 2^-8)

The last factor covers that partial sums already carry such errors. Rounding is monotone, so the output must lie
between RN16(r - d) and RN16(r + d). The float64 sum's own error, below K 2^-53 S, drowns in the last factor.
"""

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the oracles' environment, see with_oracles.sh")
pytest.importorskip("awq", reason="needs the oracles' environment, see with_oracles.sh")

from awq.utils import packing_utils  # noqa: E402

from mechanism.kernel.alignment import stable  # noqa: E402
from mechanism.kernel.dequantize import Weights  # noqa: E402
from mechanism.kernel.gemm import marlin_gemm  # noqa: E402
from mechanism.kernel.rounding import narrow, widen  # noqa: E402
from mechanism.kernel.tensor_core import rules  # noqa: E402
from tests.kernel.kernel_setup import Problem, launch, problem  # noqa: E402

pytestmark = pytest.mark.cross

SMALLEST = {"float16": 2.0**-14, "bfloat16": 2.0**-126}
ROUNDING = {"float16": torch.float16, "bfloat16": torch.bfloat16}
CASES = [
    # arch, dtype, group, tile, grid, spread of the exponents
    ("sm_80", "float16", 128, (64, 128), 7, 0),
    ("sm_80", "float16", 32, (128, 128), 3, 3),
    ("sm_86", "float16", 64, (64, 256), 5, 6),
    ("sm_90", "float16", 128, (128, 128), 11, 0),
    ("sm_90", "float16", 128, (64, 128), 2, 9),
    ("sm_75", "float16", 64, (64, 128), 7, 3),
    ("sm_80", "bfloat16", 128, (64, 128), 7, 0),
    ("sm_90", "bfloat16", 64, (128, 128), 5, 12),
]


def dequantised(weights: Weights, expert: int) -> Any:
    """(q - z) * s by AutoAWQ and torch, one rounding to 16 bits, then widened exactly to float64."""
    assert weights.qzeros is not None
    scales = torch.from_numpy(widen(weights.scales[expert])).to(ROUNDING[weights.dtype])  # exact
    dense = packing_utils.dequantize_gemm(
        torch.from_numpy(weights.qweight[expert]),
        torch.from_numpy(weights.qzeros[expert]),
        scales,
        4,
        weights.group,
    )
    return dense.to(torch.float64)


def by_torch(p: Problem, arch: str, additions: int) -> tuple[Any, Any]:
    """R and d of every output element, float64 (routes, N)."""
    dtype, rule = p.weights.dtype, rules(arch, p.weights.dtype)
    rows = torch.from_numpy(widen(p.a).astype(np.float64))
    k, step = p.weights.k, rule.step
    unit = k / step * ((step + 1) * 2.0**-rule.fraction + 2.0**-23) + additions * 2.0**-24
    exact = torch.empty(p.alignment.routes, p.weights.n, dtype=torch.float64)
    bound = torch.empty_like(exact)
    dense = [dequantised(p.weights, expert) for expert in range(p.weights.experts)]
    for route in range(p.alignment.routes):
        row = rows[route // p.top_k]
        weights = dense[p.topk_ids[route // p.top_k][route % p.top_k]]
        exact[route] = row @ weights
        floor = SMALLEST[dtype]
        sizes = torch.where(row == 0, 0.0, row.abs().clamp(min=floor)) @ torch.where(
            weights == 0, 0.0, weights.abs().clamp(min=floor)
        )
        bound[route] = sizes * unit * (1 + 2.0**-8)
    return exact, bound


def rounded(values: Any, dtype: str) -> Any:
    """To 16 bits by torch, by way of fp32: still monotone, and fp32 numbers stay where they are."""
    return values.to(torch.float32).to(ROUNDING[dtype]).to(torch.float64)


@pytest.mark.parametrize(("arch", "dtype", "group", "tile", "grid", "spread"), CASES)
@pytest.mark.parametrize("seed", range(3))
def test_the_gemm_is_within_its_rounding(
    seed: int, arch: str, dtype: str, group: int, tile: tuple[int, int], grid: int, spread: int
) -> None:
    p = problem(seed, tokens=9, experts=4, top_k=2, k=1024, n=256, group=group, dtype=dtype, spread=spread)
    made = marlin_gemm(p.a, p.weights, p.alignment, launch(*tile, grid), top_k=p.top_k, arch=arch)
    most = max(len(slices) for _, _, slices in made.executed)
    exact, bound = by_torch(p, arch, additions=tile[0] // 32 + most)
    output = torch.from_numpy(widen(made.output).astype(np.float64))
    low, high = rounded(exact - bound, dtype), rounded(exact + bound, dtype)
    outside = torch.nonzero((output < low) | (output > high))
    for place in outside[:1].tolist():
        at = tuple(place)
        pytest.fail(
            f"{at}: expected {low[at]!r}..{high[at]!r}, got {output[at]!r}; {len(outside)} are outside"
        )


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_ordinary_outputs_are_nearly_all_the_nearest_fp16(arch: str) -> None:
    """Of a layer-sized K, 95 of 100 elements are the fp16 number nearest to the exact sum: no term is missing."""
    p = problem(5, tokens=12, experts=3, k=2048, n=256)
    made = marlin_gemm(p.a, p.weights, p.alignment, launch(64, 128, 9), top_k=p.top_k, arch=arch)
    exact, _ = by_torch(p, arch, additions=0)
    equal = torch.from_numpy(widen(made.output).astype(np.float64)) == rounded(exact, "float16")
    assert float(equal.double().mean()) > 0.95


@pytest.mark.parametrize("place", [0, 17, 255])
def test_one_wrong_code_is_seen(place: int) -> None:
    """The bound is narrow enough: a code that is off by one in a single row of K leaves it."""
    p = problem(3, tokens=4, experts=2, k=256, n=128)
    ids = tuple((0, 1) for _ in range(4))
    aligned = stable(ids, experts=2, block_size_m=8)
    rows = narrow(np.ones((4, 256)) * 4, "float16")
    words = p.weights.qweight.copy()
    words[:, place] ^= 0x11111111  # the lowest bit of all eight codes
    bent = Weights(qweight=words, scales=p.weights.scales, qzeros=p.weights.qzeros)
    made = marlin_gemm(rows, bent, aligned, launch(64, 128, 3), top_k=2, arch="sm_80")
    q = Problem(
        a=rows,
        codes=p.codes,
        zeros=p.zeros,
        weights=p.weights,
        alignment=aligned,
        topk_ids=ids,
        topk_weights=p.topk_weights,
        top_k=2,
    )
    exact, bound = by_torch(q, "sm_80", additions=4)
    output = torch.from_numpy(widen(made.output).astype(np.float64))
    inside = (output >= rounded(exact - bound, "float16")) & (output <= rounded(exact + bound, "float16"))
    assert float(inside.double().mean()) < 0.5
