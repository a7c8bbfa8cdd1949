"""One pass of the layer on a device: the build's buffers, each captured before it is reused.

W13 and routed W2 share one buffer, as in `fused_marlin_moe` (marlin-moe 3 and appendix B).
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from mechanism.engine import vllm_calls
from mechanism.engine.protocol import Array, Layer
from mechanism.fixture.layout import GEMMS, Gemm
from mechanism.kernel.alignment import Alignment

if TYPE_CHECKING:
    from mechanism.engine.vllm_operators import Operators

#: Lock words: more than any multiprocessor count that the operator is told could need.
_LOCKS = vllm_calls.locks(sms=4096, size_n=64, slots=8, block_size_m=8)


class LayerPass:
    """The buffers and tensors of one pass, and what was captured of them."""

    def __init__(self, operators: "Operators", layer: Layer, alignment: Alignment) -> None:
        shape = layer.shape
        self._operators, self._shape, self._block = operators, shape, alignment.block_size_m
        self._routes = routes = shape.tokens * shape.top_k
        self._weights = {
            gemm: operators.weights(
                layer.tensors, gemm, intermediate=shape.intermediate, group=shape.group_size
            )
            for gemm in GEMMS
        }
        self._hidden = operators.put(layer.tensors["hidden"])
        self._topk_weights = operators.put(layer.tensors["topk_weights"])
        wide = max(2 * shape.intermediate, shape.hidden)
        self._cache13 = operators.empty(routes * wide, dtype=shape.dtype)
        self._cache2 = operators.empty(routes, shape.intermediate, dtype=shape.dtype)
        self._output = operators.empty(shape.tokens, shape.hidden, dtype=shape.dtype)
        self._aligned = buffers(alignment, operators)
        self._workspace = operators.full(_LOCKS, value=0, dtype="int32")
        self.captured: dict[str, Array] = {}

    def gemm(self, which: Gemm, launch: vllm_calls.Explicit) -> None:
        """Run one GEMM into its view of the shared buffer."""
        shape, first = self._shape, which == "w13"
        self._operators.call(
            vllm_calls.gemm(
                which,
                a=self._hidden if first else self._cache2,
                c=self._view(which),
                weights=self._weights[which],
                workspace=self._workspace,
                alignment=self._aligned,
                topk_weights=self._topk_weights,
                block_size_m=self._block,
                top_k=shape.top_k if first else 1,
                sizes=(
                    (shape.tokens, 2 * shape.intermediate, shape.hidden)
                    if first
                    else (self._routes, shape.hidden, shape.intermediate)
                ),
                launch=launch,
            )
        )

    def after(self, which: str) -> None:
        """Capture what the GEMM left, and run what follows it, before its buffer is reused."""
        operators, shape = self._operators, self._shape
        self.captured[which] = operators.get(self._view(which))
        if which == "w13":
            operators.silu_and_mul(self._cache2, self._view("w13"))
            self.captured["activation"] = operators.get(self._cache2)
        else:
            routed = operators.shaped(self._cache13, shape.tokens, shape.top_k, shape.hidden)
            operators.call(vllm_calls.moe_sum(routed, self._output))
            self.captured["output"] = operators.get(self._output)

    def _view(self, which: str) -> Any:
        width = 2 * self._shape.intermediate if which == "w13" else self._shape.hidden
        return self._operators.shaped(self._cache13, self._routes, width)


def buffers(alignment: Alignment, operators: "Operators") -> tuple[Any, Any, Any]:
    """An alignment in buffers as the operator allocates them: sentinels and -1 behind the active prefix."""
    slots = np.full(alignment.sorted_length, alignment.routes, dtype=np.int32)
    slots[: len(alignment.sorted_token_ids)] = alignment.sorted_token_ids
    blocks = np.full(alignment.expert_length, -1, dtype=np.int32)
    blocks[: len(alignment.expert_ids)] = alignment.expert_ids
    padded = np.array([alignment.num_tokens_post_padded], dtype=np.int32)
    return operators.put(slots), operators.put(blocks), operators.put(padded)
