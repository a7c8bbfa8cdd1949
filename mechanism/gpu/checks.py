"""What a GPU settles and a CPU only assumes, one function each: operators in, plain facts out.

Every result holds `settles`, the assumption of the specification, and `holds`: true, false, or null if the
check could not be made.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ledger.canonical import sha256
from mechanism.engine import vllm_calls
from mechanism.engine.gpu_identity import Gpu
from mechanism.engine.vllm_engine import read_back
from mechanism.engine.vllm_history import align_once
from mechanism.errors import EngineError
from mechanism.fixture.draws import Stream
from mechanism.gpu import geometry_plan
from mechanism.gpu.multiply import GpuGemm, device_of
from mechanism.kernel import alignment as aligning
from mechanism.kernel import vectors
from mechanism.kernel.activation import silu_and_mul
from mechanism.kernel.arithmetic import Arithmetic
from mechanism.kernel.configuration import choose
from mechanism.kernel.dequantize import Weights
from mechanism.kernel.errors import KernelError
from mechanism.kernel.silu import AMBIGUOUS_FP16

Facts = dict[str, Any]
_ONE = np.float16(1.0)


def silu(operators: Any) -> Facts:
    """All 65,536 fp16 gates with an up value of 1: the operator's table, and the 15 open entries (U2)."""
    gates = np.arange(65536, dtype=np.uint16).view(np.float16)
    both = np.stack([gates, np.full_like(gates, _ONE)], axis=1)
    result = operators.empty(len(gates), 1, dtype="float16")
    operators.silu_and_mul(result, operators.put(both))
    table = np.ascontiguousarray(operators.get(result)).view(np.uint16).ravel()
    predicted = silu_and_mul(both, dtype="float16").output.view(np.uint16).ravel()
    number = ~np.isnan(gates) & ~np.isnan(predicted.view(np.float16))
    differing = np.flatnonzero((table != predicted) & number).tolist()
    unexplained = [bits for bits in differing if bits not in AMBIGUOUS_FP16]
    return {
        "settles": "U2",
        "holds": not differing,
        "operator": operators.activation,
        "table_sha256": sha256(table.astype("<u2").tobytes()),
        "open": {f"0x{bits:04X}": f"0x{int(table[bits]):04X}" for bits in sorted(AMBIGUOUS_FP16)},
        "differing": [f"0x{bits:04X}" for bits in differing[:64]],
        "unexplained": len(unexplained),
    }


def row_positions(operators: Any, gpu: Gpu, *, turns: int = 50) -> Facts:
    """The same rows in other slots of their padded block, `turns` times: any bit that moves refutes U3."""
    gemm, layer = GpuGemm(operators, gpu), drawn_layer(seed=3, tokens=12)
    base = aligning.stable(layer.ids.tolist(), experts=layer.experts, block_size_m=8)
    want = gemm.run(layer.a, layer.weights, base, vllm_calls.Explicit(), top_k=layer.top_k)
    moved = 0
    for turn in range(turns):
        shuffled = _shuffled(base, seed=turn)
        got = gemm.run(layer.a, layer.weights, shuffled, vllm_calls.Explicit(), top_k=layer.top_k)
        moved += int((got.view(np.uint16) != want.view(np.uint16)).sum())
    return {"settles": "U3", "holds": moved == 0, "turns": turns, "elements_that_moved": moved}


def launches(operators: Any, gpu: Gpu) -> Facts:
    """Tile, grid and registers that the kernel chooses by itself, for every block size, against ours (U1)."""
    gemm, rows = GpuGemm(operators, gpu), []
    for tokens in (12, 24, 40, 56, 80):
        layer = drawn_layer(seed=5, tokens=tokens)
        block = aligning.block_size_m(tokens, layer.top_k, layer.experts)
        aligned = aligning.stable(layer.ids.tolist(), experts=layer.experts, block_size_m=block)
        gemm.run(layer.a, layer.weights, aligned, vllm_calls.Explicit(), top_k=layer.top_k)
        (got,) = gemm.launched
        try:
            mine = choose(
                device_of(gpu),
                n=layer.weights.n,
                k=layer.weights.k,
                group=layer.weights.group,
                block_size_m=block,
                routes=tokens * layer.top_k,
            )
            predicted: list[int] | None = [mine.tile_k, mine.tile_n, mine.threads, mine.grid]
        except KernelError:
            predicted = None  # counts nobody has read
        rows.append(
            {
                "block_size_m": block,
                "predicted": predicted,
                "launched": [got.tile_k, got.tile_n, got.threads, got.grid],
                "registers": got.registers,
                "shared_memory": got.shared_memory,
                "symbol": got.symbol,
            }
        )
    known = [row for row in rows if row["predicted"] is not None]
    holds = all(row["predicted"] == row["launched"] for row in known) if known else None
    return {"settles": "U1", "holds": holds, "launches": rows}


def atomics(operators: Any, topk_ids: npt.NDArray[np.int32], *, repeats: int = 1000) -> Facts:
    """The alignment of one routing, over and over: which orders and which memberships occur (U5)."""
    experts = geometry_plan.EXPERTS
    tokens, top_k = topk_ids.shape
    block = aligning.block_size_m(tokens, top_k, experts)
    orders: Counter[tuple[int, ...]] = Counter()
    memberships: set[Any] = set()
    descending = 0
    for _ in range(repeats):
        slots, blocks, padded = (operators.get(tensor) for tensor in align_once(topk_ids, experts, operators))
        made = read_back(slots, blocks, int(padded[0]), routes=topk_ids.size, block_size_m=block)
        orders[hot_order(made)] += 1
        memberships.add(aligning.membership(made))
        descending += any(_lanes_descend(made, number) for number in range(len(made.expert_ids)))
    return {
        "settles": "U5",
        "holds": descending > 0,
        "repeats": repeats,
        "orders": [{"routes": list(order), "times": times} for order, times in orders.most_common(20)],
        "distinct_orders": len(orders),
        "distinct_memberships": len(memberships),
        "times_lanes_were_served_out_of_order": descending,
    }


def hot_order(made: aligning.Alignment) -> tuple[int, ...]:
    """The crowded expert's routes in slot order."""
    hot = set(geometry_plan.HOT_ROUTES)
    return tuple(route for route in made.sorted_token_ids if route in hot)


def _lanes_descend(made: aligning.Alignment, block: int) -> bool:
    held = aligning.block_routes(made, block)
    return any(a > b and a // 32 == b // 32 for a, b in itertools.pairwise(held))


def check_vectors(
    operators: Any,
    gpu: Gpu,
    files: Sequence[tuple[str, Path]],
    load: Callable[[Path], Mapping[str, Any]],
) -> Facts:
    """Every GEMM vector of the device's architecture, bit for bit; what cannot be delivered is told."""
    arithmetic = Arithmetic(name="device", multiply=GpuGemm(operators, gpu))
    equal, differing, left_out = 0, [], []
    for name, path in files:
        arrays = load(path)
        if "meta" not in arrays:
            continue  # instructions and sums: no GEMM
        try:
            check = vectors.recompute(name, arrays, arithmetic=arithmetic)
        except (EngineError, KernelError) as reason:
            left_out.append({"file": name, "reason": str(reason)[:200]})
            continue
        if check.differing:
            differing.append({"file": name, "elements": check.differing, "first": check.first})
        equal += check.differing == 0
    holds = not differing if equal or differing else None
    return {
        "settles": "the vectors",
        "holds": holds,
        "equal": equal,
        "differing": differing,
        "left_out": left_out,
    }


class _Drawn:
    """A small layer for the checks: one GEMM, weights and rows by seed."""

    def __init__(self, seed: int, tokens: int) -> None:
        self.experts, self.top_k, k, n, group = 8, 4, 512, 1536, 128
        groups = k // group
        word = Stream(seed, "gpu.weights").words(self.experts * k * n // 16)
        zero = Stream(seed, "gpu.zeros").words(self.experts * groups * n // 16)
        scale = Stream(seed, "gpu.scales").uniform_bits(6, self.experts * groups * n) + 1
        self.weights = Weights(
            qweight=word.view("<i4").reshape(self.experts, k, n // 8).astype(np.int32),
            qzeros=zero.view("<i4").reshape(self.experts, groups, n // 8).astype(np.int32),
            scales=(scale * 2.0**-12).astype(np.float16).reshape(self.experts, groups, n),
        )
        bell = Stream(seed, "gpu.rows").bell(tokens * k)
        self.a = (bell.astype(np.float32) * np.float32(2.0**-7)).astype(np.float16).reshape(tokens, k)
        rows = [Stream(seed, f"gpu.{token}").order(self.experts)[: self.top_k] for token in range(tokens)]
        self.ids = np.array(rows, dtype=np.int32)


def drawn_layer(*, seed: int, tokens: int) -> _Drawn:
    """One GEMM of 8 experts, top-4, K 512, N 1536, group 128: weights and rows by seed."""
    return _Drawn(seed, tokens)


def _shuffled(base: aligning.Alignment, *, seed: int) -> aligning.Alignment:
    """The same memberships, valid slots of every block in a drawn order."""
    made = base
    for block in range(len(base.expert_ids)):
        held = aligning.block_routes(base, block)
        order = Stream(seed, f"gpu.block.{block}").order(len(held))
        for place, other in _exchanges(order):
            now = aligning.block_routes(made, block)
            made = aligning.exchange(made, now[place], now[other])
    return made


def _exchanges(order: Sequence[int]) -> Iterator[tuple[int, int]]:
    yield from ((place, other) for place, other in enumerate(order) if place < other)
