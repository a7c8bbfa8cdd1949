"""A device that is none: the operators' interface in numpy, on the simulated kernel, with a profiler's trace.

It holds to what a GPU holds to: buffers are reused, launches follow from what the operator is told and from the
multiprocessors it reads, and what was launched is known from the trace alone.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt

from mechanism.engine.gpu_identity import Gpu
from mechanism.engine.vllm_calls import AUTO, Call
from mechanism.kernel import activation, alignment, combine, configuration, gemm
from mechanism.kernel.alignment import Alignment
from mechanism.kernel.configuration import Launch
from mechanism.kernel.dequantize import Weights, as_loaded
from mechanism.kernel.devices import Device

Array = npt.NDArray[Any]


def gpu(device: Device) -> Gpu:
    """The fake's description, as the driver would give it."""
    return Gpu(
        name="Fake GPU",
        arch=device.arch,
        sms=device.sms,
        shared_memory=device.shared_memory,
        clock_khz=1_000_000,
        memory_clock_khz=1_000_000,
        uuid_sha256="0" * 64,
        driver="13.0",
    )


class FakeOperators:
    """Stands for `vllm_operators.Operators`; `order` is how the device's atomics happen to resolve."""

    def __init__(self, device: Device, order: Callable[[int], tuple[int, ...]]) -> None:
        self.device = device
        self.order = order
        self.library = Path("_moe_C.abi3.so")
        self.activation = "_C::silu_and_mul"
        self.repack = "cpu"
        self.calls: list[Call] = []
        self.sms = device.sms
        self.events: list[dict[str, Any]] = []

    def versions(self) -> Mapping[str, str]:
        """What a record says."""
        return {"torch": "2.11.0"}

    def put(self, array: Array) -> Array:
        """A copy."""
        return np.array(array)

    def get(self, tensor: Array) -> Array:
        """A copy."""
        return np.array(tensor)

    def empty(self, *shape: int, dtype: str) -> Array:
        """Stale memory."""
        return np.full(shape, 99, dtype=dtype)  # stale memory

    def full(self, *shape: int, value: int, dtype: str) -> Array:
        """Filled memory."""
        return np.full(shape, value, dtype=dtype)

    def shaped(self, buffer: Array, *shape: int) -> Array:
        """A view."""
        return buffer[: math.prod(shape)].reshape(shape)

    def wait(self) -> None:
        """Nothing to wait for."""

    def weights(self, tensors: Mapping[str, Array], name: str, *, intermediate: int, group: int) -> Any:
        """As the build would read them, defect included."""
        weights = Weights(
            qweight=tensors[f"{name}_qweight"],
            qzeros=tensors[f"{name}_qzeros"],
            scales=tensors[f"{name}_scales"],
        )
        return as_loaded(weights, group_size=group, intermediate=intermediate), None, None

    def repacked(self, qweight: Array, scales: Array, zeros: Array, **_sizes: int) -> Any:
        """Weights that are read as they are: the caller chose the permutation that the kernel expects."""
        return Weights(qweight=qweight, qzeros=zeros, scales=scales), None, None

    def stable(self, topk_ids: Array, block_size_m: int, experts: int) -> tuple[Array, Array, Array]:
        """As the plugin makes it."""
        made = alignment.stable(topk_ids.tolist(), experts=experts, block_size_m=block_size_m)
        return _buffers(made)

    @contextmanager
    def told_multiprocessors(self, count: int) -> Iterator[None]:
        """Another count, inside the block."""
        self.sms = count
        try:
            yield
        finally:
            self.sms = self.device.sms

    def profiled(self, run: Callable[[], None], path: Path) -> None:
        """Leave a trace as torch's profiler does."""
        self.events = []
        run()
        path.write_text(json.dumps({"traceEvents": self.events}))

    def silu_and_mul(self, result: Array, gate_and_up: Array) -> None:
        """The activation."""
        self.calls.append(Call(operator=self.activation, arguments={"result": result, "input": gate_and_up}))
        result[...] = activation.silu_and_mul(np.array(gate_and_up), dtype="float16").output

    def call(self, call: Call) -> None:
        """Do what the operator of that name does."""
        self.calls.append(call)
        given = SimpleNamespace(**call.arguments)
        name = call.operator.partition("::")[2]
        {"moe_align_block_size": self._align, "moe_wna16_marlin_gemm": self._gemm, "moe_sum": self._sum}[
            name
        ](given)

    def _align(self, given: Any) -> None:
        ids = given.topk_ids
        large = alignment.variant(ids.size, given.num_experts) == "large"
        made = alignment.align(
            ids.tolist(),
            experts=given.num_experts,
            block_size_m=given.block_size,
            arrival=self.order(ids.size) if large else None,
        )
        for out, data in zip(
            (given.sorted_token_ids, given.experts_ids, given.num_tokens_post_pad),
            _buffers(made),
            strict=True,
        ):
            out[...] = data

    def _gemm(self, given: Any) -> None:
        launch = self._launch(given)
        padded = int(given.num_tokens_past_padded[0])
        aligned = Alignment(
            block_size_m=given.moe_block_size,
            routes=given.size_m * given.top_k,
            sorted_token_ids=tuple(given.sorted_token_ids[:padded].tolist()),
            expert_ids=tuple(given.expert_ids[: padded // given.moe_block_size].tolist()),
            num_tokens_post_padded=padded,
            sorted_length=len(given.sorted_token_ids),
            expert_length=len(given.expert_ids),
        )
        done = gemm.marlin_gemm(
            np.array(given.a),
            given.b_q_weight,
            aligned,
            launch,
            top_k=given.top_k,
            arch=self.device.arch,
            topk_weights=given.topk_weights.reshape(-1) if given.mul_topk_weights else None,
        )
        given.c_or_none[...] = done.output
        self.events.append(_event(len(self.events), launch, given.b_q_weight.group))

    def _launch(self, given: Any) -> Launch:
        device = Device(
            name="fake",
            arch=self.device.arch,
            sms=self.sms,
            shared_memory=self.device.shared_memory,
        )
        sizes = {
            "n": given.size_n,
            "k": given.size_k,
            "group": given.b_q_weight.group,
            "block_size_m": given.moe_block_size,
        }
        if given.thread_k == AUTO:
            return configuration.choose(device, routes=given.size_m * given.top_k, **sizes)
        return configuration.explicit(
            device,
            tile_k=given.thread_k,
            tile_n=given.thread_n,
            ctas_per_sm=given.blocks_per_sm,
            **sizes,
        )

    def _sum(self, given: Any) -> None:
        tokens, top_k, hidden = given.input.shape
        given.output[...] = combine.moe_sum(
            np.array(given.input).reshape(tokens * top_k, hidden), top_k=top_k, dtype="float16"
        )


def _buffers(made: Alignment) -> tuple[Array, Array, Array]:
    slots = np.full(made.sorted_length, made.routes, dtype=np.int32)
    slots[: made.num_tokens_post_padded] = made.sorted_token_ids
    blocks = np.full(made.expert_length, -1, dtype=np.int32)
    blocks[: len(made.expert_ids)] = made.expert_ids
    return slots, blocks, np.array([made.num_tokens_post_padded], dtype=np.int32)


def _event(place: int, launch: Launch, group: int) -> dict[str, Any]:
    """A kernel event as torch's profiler writes it."""
    blocks = group if group < 0 else group // 16
    arguments = (
        f"1125899906910725l, 1125899906843648l, 1125899906910725l, 1125899906910725l, {launch.threads}, 1,"
        f" {launch.tile_n // 16}, {launch.tile_k // 16}, true, 4, {blocks}, false"
    )
    return {
        "ph": "X",
        "cat": "kernel",
        "name": f"void marlin_moe_wna16::Marlin<{arguments}>(int4 const*, int4 const*, int4*)",
        "ts": 10.5 + place,
        "args": {
            "grid": [launch.grid, 1, 1],
            "block": [launch.threads, 1, 1],
            "registers per thread": 127,
            "shared memory": 57088,
        },
    }
