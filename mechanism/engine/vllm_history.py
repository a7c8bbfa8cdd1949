"""A history on a GPU: what is done on the device before the layer's alignment is constructed.

Steps are composite on purpose: which of their effects (allocator state, clocks, which CTAs are resident)
moves the atomics is not claimed. What they allocate and keep lives until construction is over.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from mechanism.engine import vllm_calls
from mechanism.engine.protocol import Layer
from mechanism.errors import EngineError
from mechanism.fixture.draws import Stream
from mechanism.kernel.alignment import block_size_m, buffer_lengths


class Device(Protocol):
    """What steps need of the operators."""

    def call(self, call: vllm_calls.Call) -> Any:
        """Call one operator."""

    def put(self, array: npt.NDArray[Any]) -> Any:
        """A copy on the device."""

    def empty(self, *shape: int, dtype: str) -> Any:
        """An uninitialised tensor."""

    def wait(self) -> None:
        """Wait for the device."""


class Forward(Protocol):
    """One pass of the layer's GEMMs under a routing of its own; what it computes is thrown away."""

    def __call__(self, topk_ids: npt.NDArray[np.int32]) -> None:
        """Run it."""


def apply_steps(
    steps: Sequence[Mapping[str, Any]], layer: Layer, device: Device, forward: Forward
) -> list[Any]:
    """Do the steps in order; returns what is to stay allocated. Raises EngineError for an unknown step."""
    kept: list[Any] = []
    for step in steps:
        match step:
            case {"kind": "allocate", "bytes": size, "count": count, "keep": keep}:
                made = [device.empty(size, dtype="uint8") for _ in range(count)]
                kept += {"none": [], "alternate": made[::2], "all": made}[keep]
                del made  # what is not kept is freed here
            case {"kind": "align", "tokens": tokens, "top_k": top_k, "experts": experts}:
                for turn in range(step["repeats"]):
                    align_once(draw_routing(step["seed"] + turn, tokens, top_k, experts), experts, device)
            case {"kind": "gemm", "repeats": repeats, "seed": seed}:
                for turn in range(repeats):
                    shape = layer.shape
                    forward(draw_routing(seed + turn, shape.tokens, shape.top_k, shape.experts))
            case {"kind": "prewarm", "repeats": repeats}:
                for _ in range(repeats):
                    forward(np.asarray(layer.topk_ids, dtype=np.int32))
            case _:
                raise EngineError(
                    f"history: expected allocate, align, gemm or prewarm, got {step.get('kind')}"
                )
        device.wait()
    return kept


def align_once(topk_ids: npt.NDArray[np.int32], experts: int, device: Device) -> tuple[Any, Any, Any]:
    """One call of the alignment operator on fresh buffers; returns slots, blocks and the padded count."""
    tokens, top_k = topk_ids.shape
    block = block_size_m(tokens, top_k, experts)
    slots, blocks = buffer_lengths(topk_ids.size, experts, block)
    outputs = (
        device.empty(slots, dtype="int32"),
        device.empty(blocks, dtype="int32"),
        device.empty(1, dtype="int32"),
    )
    device.call(vllm_calls.align(device.put(topk_ids), experts=experts, block_size_m=block, outputs=outputs))
    return outputs


def draw_routing(seed: int, tokens: int, top_k: int, experts: int) -> npt.NDArray[np.int32]:
    """A routing of distinct experts per token, int32 [tokens, top_k], from named streams."""
    rows = [Stream(seed, f"history.routing.{token}").order(experts)[:top_k] for token in range(tokens)]
    return np.array(rows, dtype=np.int32)
