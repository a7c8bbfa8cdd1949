"""A whole layer of the default plan's fixture, timed: a child of bench.py.

Usage: layer_once.py PLAN numpy|numba COLD|WARM-REPEATS, as in `layer_once.py plans/route_block.yaml numba 10`. With
0 repeats the first call of this process is what is timed; imports, and reading and hashing the fixture, are aside.
Prints one JSON object: `seconds`, and those of sgemms with the same products.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from mechanism.fixture.obtain import obtain
from mechanism.fixture.place import cache_root, folder_of
from mechanism.fixture.store import verify
from mechanism.kernel.dequantize import Weights
from mechanism.kernel.layer import moe_layer
from mechanism.plan import geometry
from mechanism.plan.document import load_plan
from mechanism.reexecute.arithmetic import arithmetic_of


def layer(plan_path: Path, arithmetic: str) -> Callable[[], object]:
    """W13, activation, W2 and sum, under the first history's alignment on the pinned launches."""
    plan = load_plan(plan_path).plan
    lock = obtain(plan.fixture, cache_root())
    tensors = verify(folder_of(lock.recipe, cache_root()), lock.model_dump(mode="json"))
    w13, w2 = (
        Weights(
            qweight=tensors[f"{gemm}_qweight"],
            qzeros=tensors[f"{gemm}_qzeros"],
            scales=tensors[f"{gemm}_scales"],
        )
        for gemm in ("w13", "w2")
    )
    alignment = geometry.native(plan, next(iter(plan.histories)), tensors["topk_ids"].tolist())
    first, second = (geometry.launch(plan, gemm) for gemm in geometry.gemms(plan.fixture))
    by = arithmetic_of(arithmetic)
    return lambda: moe_layer(
        tensors["hidden"],
        w13,
        w2,
        tensors["topk_weights"],
        alignment,
        launch_w13=first,
        launch_w2=second,
        arch=plan.build.device.arch,
        kernel=plan.build.kernel,
        arithmetic=by,
    )


def sgemms(plan_path: Path) -> Callable[[], object]:
    """As many products as the layer has, in two plain float32 matmuls: no experts, no dequantisation."""
    fixture = load_plan(plan_path).plan.fixture
    draw = np.random.default_rng(2)
    pairs = [
        tuple(
            draw.standard_normal(shape).astype(np.float32)
            for shape in ((fixture.routes, gemm.k), (gemm.k, gemm.n))
        )
        for gemm in geometry.gemms(fixture)
    ]
    return lambda: [a @ b for a, b in pairs]


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main() -> None:
    """Cold: the first call. Warm: after two calls, as many as asked for."""
    plan, arithmetic, repeats = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    work = layer(plan, arithmetic)
    if repeats:
        work()
        work()
    seconds = [timed(work) for _ in range(max(repeats, 1))]
    beside = sgemms(plan)
    beside()
    baseline = [timed(lambda: [beside() for _ in range(3)]) / 3 for _ in seconds]
    sys.stdout.write(json.dumps({"seconds": seconds, "baseline_seconds": baseline}))


if __name__ == "__main__":
    main()
