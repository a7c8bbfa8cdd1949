"""The simulated engine: the kernel's arithmetic on a CPU, bit for bit (mechanism.kernel).

Nothing here touches a GPU, and every name it reports says so.
"""

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from mechanism.engine.asked import LaunchRequest
from mechanism.engine.protocol import Constructed, ExecutedGemm, Identity, Layer, Result, Treatment
from mechanism.errors import EngineError
from mechanism.kernel import alignment, arrival
from mechanism.kernel.arithmetic import NUMPY, Arithmetic
from mechanism.kernel.configuration import Launch
from mechanism.kernel.dequantize import Weights
from mechanism.kernel.layer import LayerRun, moe_layer
from mechanism.plugin import stable_construction
from mechanism.values import frozen

SYMBOL = "simulated:moe_wna16_marlin_gemm"


@frozen
class SimulatedEngine:
    """The engine named `simulated`.

    Cold processes compute by numpy, which starts at once; re-execution may take another arithmetic, with
    equal bits.
    """

    name: str = "simulated"
    arithmetic: Arithmetic = NUMPY

    def identity(self) -> Identity:
        """Which arithmetic it was is told; bits do not depend on it, nor on the version of numpy."""
        patched = {"construction": "stable"} if stable_construction.enabled() else {}
        versions = {"numpy": np.__version__, **patched}
        return Identity(evidence="simulated", arithmetic=self.arithmetic.name, driver=None, versions=versions)

    def apply(self, arrival: Mapping[str, Any], layer: Layer) -> tuple[int, ...]:
        """The order in which the alignment's atomics are served. Raises AlignmentError if it is none."""
        return arrival_order(arrival, layer.shape.tokens * layer.shape.top_k)

    def construct(self, history: tuple[int, ...], layer: Layer) -> Constructed:
        """The alignment of the layer's routing under that order; U5 where it needs descending lanes."""
        experts = layer.shape.experts
        if stable_construction.enabled():
            built = alignment.stable(
                layer.topk_ids, experts=experts, block_size_m=layer.shape.block_size_m, kernel=layer.kernel
            )
            return Constructed(alignment=built, assumptions=())
        large = alignment.variant(len(history), experts) == "large"
        built = alignment.align(
            layer.topk_ids,
            experts=experts,
            block_size_m=layer.shape.block_size_m,
            arrival=history if large else None,  # the small-batch variant has no atomics (marlin-moe 2.4)
            kernel=layer.kernel,
        )
        relies = large and arrival.relies_on_lane_order(history, layer.topk_ids)
        return Constructed(alignment=built, assumptions=("U5",) if relies else ())

    def execute(self, treatment: Treatment, layer: Layer) -> Result:
        """One forward pass. Raises KernelError for sizes that the operator refuses."""
        tensors = layer.tensors
        w13, w2 = (
            Weights(
                qweight=tensors[f"{gemm}_qweight"],
                qzeros=tensors[f"{gemm}_qzeros"],
                scales=tensors[f"{gemm}_scales"],
            )
            for gemm in ("w13", "w2")
        )
        first, second = (_launch(launch) for launch in treatment.launches)
        run = moe_layer(
            tensors["hidden"],
            w13,
            w2,
            tensors["topk_weights"],
            treatment.alignment,
            launch_w13=first,
            launch_w2=second,
            arch=layer.arch,
            kernel=layer.kernel,
            arithmetic=self.arithmetic,
        )
        return Result(
            surfaces={"w13": run.w13, "activation": run.activation, "w2": run.w2, "output": run.output},
            alignment=treatment.alignment,
            gemms=(
                _executed("w13", first, run.executed_w13),
                _executed("w2", second, run.executed_w2),
            ),
            assumptions=run.assumptions,
            candidate="rn32",
            ambiguous_elements=_ambiguous_elements(run),
        )


def arrival_order(given: Mapping[str, Any], routes: int) -> tuple[int, ...]:
    """The permutation of all routes that a plan's arrival stands for (`ledger.plan.Arrival` as JSON)."""
    match given:
        case {"kind": "index"}:
            return arrival.index_order(routes)
        case {"kind": "warps", "warps": warps}:
            return arrival.warp_order(routes, warps)
        case {"kind": "explicit", "routes": order}:
            return arrival.explicit(routes, order)
        case {"kind": "seeded", "seed": seed}:
            return arrival.seeded(routes, seed)
    raise EngineError(f"arrival: expected index, warps, explicit or seeded, got {given.get('kind')}")


def _launch(asked: LaunchRequest) -> Launch:
    # CTAs per SM only decide the grid, which is given
    return Launch(
        tile_k=asked.tile_k, tile_n=asked.tile_n, threads=asked.threads, ctas_per_sm=0, grid=asked.grid
    )


def _executed(name: Literal["w13", "w2"], launch: Launch, slices: Any) -> ExecutedGemm:
    """The launch as it was used, with the slices that were recorded while they were summed."""
    return ExecutedGemm(
        name=name,
        tile_k=launch.tile_k,
        tile_n=launch.tile_n,
        threads=launch.threads,
        grid=launch.grid,
        symbol=SYMBOL,
        slices=slices,
    )


def _ambiguous_elements(run: LayerRun) -> int:
    """Gate values, the left half of w13, whose silu depends on EX2 (marlin-moe 8.1)."""
    gate = run.w13[:, : run.w13.shape[1] // 2].view(np.uint16)
    return int(np.isin(gate, np.asarray(run.ambiguous_gates, dtype=np.uint16)).sum())
