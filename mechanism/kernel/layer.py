"""A whole MoE layer: W13, activation, W2, sum; four surfaces (marlin-moe 3, appendix B)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from mechanism.kernel import versions
from mechanism.kernel.alignment import Alignment
from mechanism.kernel.arithmetic import NUMPY, Arithmetic
from mechanism.kernel.configuration import Launch
from mechanism.kernel.dequantize import Weights, as_loaded
from mechanism.kernel.devices import rests_on_driver_counts
from mechanism.kernel.errors import AlignmentError, ShapeError
from mechanism.kernel.gemm import Executed
from mechanism.kernel.rounding import Stored, has_nan
from mechanism.kernel.shapes import require_layer
from mechanism.values import frozen


@frozen(eq=False)
class LayerRun:
    """What one forward pass of the layer left behind.

    Attributes:
        w13: (routes, 2 I), first GEMM.
        activation: (routes, I).
        w2: (routes, H), second GEMM after the routing weight.
        output: (tokens, H).
        executed_w13: Slices that the first GEMM summed.
        executed_w2: Slices that the second GEMM summed.
        ambiguous_gates: Gate patterns met whose silu depends on EX2.
        assumptions: Ids of the assumptions these bits rest on, in numeric order.
        scale_defect: Whether a scale permutation of the build was the wrong one (1.4).
    """

    w13: Stored
    activation: Stored
    w2: Stored
    output: Stored
    executed_w13: Executed
    executed_w2: Executed
    ambiguous_gates: tuple[int, ...]
    assumptions: tuple[str, ...]
    scale_defect: bool


def moe_layer(  # noqa: PLR0913 - one forward pass and where it runs, named at every call
    hidden: Stored,
    w13: Weights,
    w2: Weights,
    topk_weights: npt.NDArray[np.float32],
    alignment: Alignment,
    *,
    launch_w13: Launch,
    launch_w2: Launch,
    arch: str,
    kernel: str = versions.DEFAULT,
    expert_map: bool = False,
    measured_silu: Mapping[int, int] | None = None,
    arithmetic: Arithmetic = NUMPY,
) -> LayerRun:
    """One forward pass, bit for bit.

    Args:
        hidden: (tokens, H), float16, or uint16 bf16 bits.
        w13: Gate and up weights, K = H, N = 2 I.
        w2: Down weights, K = I, N = H.
        topk_weights: fp32 (tokens, top_k).
        alignment: Slots and blocks of both GEMMs.
        launch_w13: Tile and grid of the first GEMM.
        launch_w2: Tile and grid of the second.
        arch: Architecture whose tensor core computes.
        kernel: Build, as in ``versions``.
        expert_map: Whether the call has one: dropped routes then contribute +0.
        measured_silu: silu results of one device by gate bits (U2).
        arithmetic: Who computes.

    Raises:
        ShapeError: Sizes that do not fit together, or that do not take the Marlin path.
        AlignmentError: A route without a slot, which leaves its rows undefined, and no expert map.
    """
    _require(hidden, w13, w2, topk_weights)
    top_k, group_size = topk_weights.shape[1], w13.k // w13.scales.shape[1]
    loaded13 = as_loaded(w13, group_size=group_size, intermediate=w2.k)
    loaded2 = as_loaded(w2, group_size=group_size, intermediate=w2.k)
    first = arithmetic.multiply(
        hidden, loaded13, alignment, launch_w13, top_k=top_k, arch=arch, kernel=kernel
    )
    _require_slots(first.unwritten, expert_map=expert_map)
    middle = arithmetic.activate(first.output, dtype=w13.dtype, kernel=kernel, measured=measured_silu)
    weights = np.ascontiguousarray(topk_weights).reshape(-1)
    second = arithmetic.multiply(
        middle.output, loaded2, alignment, launch_w2, top_k=1, arch=arch, kernel=kernel, topk_weights=weights
    )
    output = arithmetic.combine(second.output, top_k=top_k, dtype=w13.dtype, kernel=kernel)
    surfaces = (first.output, middle.output, second.output, output)
    return LayerRun(
        w13=first.output,
        activation=middle.output,
        w2=second.output,
        output=output,
        executed_w13=first.executed,
        executed_w2=second.executed,
        ambiguous_gates=middle.ambiguous_gates,
        assumptions=_assumptions(surfaces, middle.ambiguous_gates, top_k=top_k, arch=arch, kernel=kernel),
        scale_defect=loaded13 is not w13 or loaded2 is not w2,
    )


def _assumptions(
    surfaces: tuple[Stored, ...], ambiguous_gates: tuple[int, ...], *, top_k: int, arch: str, kernel: str
) -> tuple[str, ...]:
    """U5 is not decided here: it rests on the arrival order, see ``arrival.relies_on_lane_order``."""
    build = versions.version(kernel)
    relied = {
        "U1": rests_on_driver_counts(arch),
        "U2": bool(ambiguous_gates),
        "U3": True,  # only valid rows are computed, wherever they sit in their block
        "U4": any(has_nan(surface) for surface in surfaces),
        "U7": top_k == 1 or top_k >= 64,
        "U8": build.name == "vllm==0.11.0",
        "U9": build.name == "vllm==0.29.0",
        "U10": True,  # only the listed gates are taken to depend on EX2
    }
    return tuple(name for name, holds in relied.items() if holds)


def _require_slots(unwritten: tuple[int, ...], *, expert_map: bool) -> None:
    if unwritten and not expert_map:
        raise AlignmentError(
            f"routes {list(unwritten)} have no slot: without an expert map their rows are stale memory"
        )


def _require(hidden: Stored, w13: Weights, w2: Weights, topk_weights: npt.NDArray[np.float32]) -> None:
    if w13.n != 2 * w2.k or w13.k != w2.n or w13.experts != w2.experts or w13.dtype != w2.dtype:
        raise ShapeError(
            f"w13 and w2: expected (E, H, 2 I) and (E, I, H), got ({w13.experts}, {w13.k}, {w13.n})"
            f" {w13.dtype} and ({w2.experts}, {w2.k}, {w2.n}) {w2.dtype}"
        )
    require_layer(hidden=w13.k, intermediate=w2.k, group=w13.k // w13.scales.shape[1])
    if topk_weights.ndim != 2 or topk_weights.shape[0] != hidden.shape[0]:
        raise ShapeError(f"topk_weights: expected ({hidden.shape[0]}, top_k), got {topk_weights.shape}")
