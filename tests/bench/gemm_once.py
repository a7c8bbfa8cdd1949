"""One GEMM, timed beside numpy's sgemm of the same shape: a child of bench.py, in whichever environment has the code.

Usage: gemm_once.py numpy|numba|mmasim REPEATS. Prints one JSON object: `macs` of one turn, `seconds` of each, and
the same of the baseline. The parent sets how many threads each may use, before anything is imported.
"""

import importlib
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

ROWS, K, N, GROUP, BLOCK = 96, 2048, 1536, 128, 8
COLUMNS = 8  # of N, that MMA-Sim computes: it takes its time


def ours(name: str) -> Callable[[], object]:
    """96 rows in 12 full blocks, one expert, one slice for every tile, sm_80; dequantisation is part of it."""
    from mechanism.kernel.alignment import stable  # noqa: PLC0415 - not in the environment of MMA-Sim
    from mechanism.kernel.configuration import Launch  # noqa: PLC0415
    from mechanism.kernel.dequantize import Weights  # noqa: PLC0415
    from mechanism.reexecute.arithmetic import arithmetic_of  # noqa: PLC0415

    draw = np.random.default_rng(1)
    weights = Weights(
        qweight=draw.integers(-(2**31), 2**31, (1, K, N // 8), dtype=np.int64).astype(np.int32),
        qzeros=draw.integers(-(2**31), 2**31, (1, K // GROUP, N // 8), dtype=np.int64).astype(np.int32),
        scales=draw.uniform(0.001, 0.05, (1, K // GROUP, N)).astype(np.float16),
    )
    rows = draw.standard_normal((ROWS, K)).astype(np.float16)
    alignment = stable([[0]] * ROWS, experts=1, block_size_m=BLOCK)
    tiles = ROWS // BLOCK * N // 128
    launch = Launch(tile_k=64, tile_n=128, threads=128, ctas_per_sm=0, grid=tiles)
    multiply = arithmetic_of(name).multiply

    def once() -> object:
        return multiply(rows, weights, alignment, launch, top_k=1, arch="sm_80")

    made: Any = once()  # compiled, and looked at
    slices = {len(parts) for _, _, parts in made.executed}
    if slices != {1} or len(made.executed) != tiles:
        raise SystemExit(f"expected {tiles} tiles of one slice, got {len(made.executed)} of {sorted(slices)}")
    return once


def mmasim() -> Callable[[], object]:
    """The same products by MMA-Sim's own call of m16n8k16, tile by tile, on operands already dequantised."""
    torch = importlib.import_module("torch")
    torch.set_num_threads(1)
    operation = importlib.import_module("mmasim.nv_ptx.sim").MMA("Ampere", "m16n8k16.f32.f16.f16.f32")
    draw = np.random.default_rng(1)
    rows = torch.from_numpy(draw.standard_normal((ROWS, K)).astype(np.float16))
    weights = torch.from_numpy((draw.standard_normal((K, COLUMNS)) / 32).astype(np.float16))

    def once() -> object:
        tiles = []
        for top in range(0, ROWS, 16):
            c = torch.zeros(16, 8, dtype=torch.float32)
            for k in range(0, K, 16):
                c = operation(rows[top : top + 16, k : k + 16], weights[k : k + 16], c)
            tiles.append(c)
        return tiles

    once()
    return once


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main() -> None:
    """In turn, ours and three sgemms, which take about as long: a machine that slows down slows both."""
    name, repeats = sys.argv[1], int(sys.argv[2])
    work = mmasim() if name == "mmasim" else ours(name)
    draw = np.random.default_rng(2)
    a, b = (draw.standard_normal(shape).astype(np.float32) for shape in ((ROWS, K), (K, N)))
    out = np.empty((ROWS, N), dtype=np.float32)
    np.matmul(a, b, out=out)
    seconds, baseline = [], []
    for _ in range(repeats):
        seconds.append(timed(work))
        baseline.append(timed(lambda: [np.matmul(a, b, out=out) for _ in range(3)]) / 3)
    macs = ROWS * K * (COLUMNS if name == "mmasim" else N)
    told = {"macs": macs, "seconds": seconds, "baseline_macs": ROWS * K * N, "baseline_seconds": baseline}
    sys.stdout.write(json.dumps(told))


if __name__ == "__main__":
    main()
