"""The one module that imports torch and vLLM; only the child of a cold process imports it.

It loads the build's own shared libraries, after their digests were compared with the wheel's, and calls their
operators. vLLM's Python package is used for nothing but its repacking functions, where it is whole.
"""

import ctypes
import importlib.util
import math
import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeVar

import torch

from mechanism.engine import vllm_interpose, vllm_repack
from mechanism.engine.protocol import Array
from mechanism.engine.vllm_calls import Call
from mechanism.engine.vllm_pins import MOE, STABLE
from mechanism.engine.vllm_ready import require_libraries, require_torch
from mechanism.errors import EngineError
from mechanism.plugin.stable_construction import stable_alignment

ResultT = TypeVar("ResultT")
#: `cpu` keeps vLLM's Python package out of the process even where it is whole.
REPACK = "MECHANISM_REPACK"


class Operators:
    """The operators of one loaded build, on one device.

    Attributes:
        library: The file that holds alignment, GEMM and final sum.
        device: Where tensors are put; tests aim it at the CPU, and replace `call`.
        repack: `vllm` or `cpu`: who rearranges the weights. Equal bits, by test.
        activation: The operator that computes the activation.
    """

    def __init__(self, *, device: str = "cuda") -> None:
        require_torch()
        folder = require_libraries()
        self.library = folder / MOE
        self.device = torch.device(device)
        _load(self.library)
        self.activation = "torch.silu_and_multiply"
        if (folder / STABLE).exists():
            _load(folder / STABLE)
            self.activation = "_C::silu_and_mul"
        whole = importlib.util.find_spec("vllm.model_executor") is not None
        self.repack = "vllm" if whole and os.environ.get(REPACK) != "cpu" else "cpu"

    def call(self, call: Call) -> Any:
        """Call one operator. Raises EngineError for what the device reports."""
        space, _, name = call.operator.partition("::")
        operator = getattr(getattr(torch.ops, space), name)
        return on_device(lambda: operator(*call.arguments.values()))

    def silu_and_mul(self, result: Any, gate_and_up: Any) -> None:
        """The activation; without the library that holds the operator, torch's with the same roundings.

        torch's silu of float16 is computed in float32 and rounded once, its product rounded once: steps 3 to
        5 of marlin-moe 8.1. The comparison over all 65,536 gate values is part of `make gpu`.
        """
        if self.activation == "_C::silu_and_mul":
            self.call(Call(operator=self.activation, arguments={"result": result, "input": gate_and_up}))
            return
        half = gate_and_up.shape[1] // 2
        gate, up = gate_and_up[:, :half], gate_and_up[:, half:]
        on_device(lambda: torch.mul(torch.nn.functional.silu(gate), up, out=result))

    def stable(self, topk_ids: Array, block_size_m: int, experts: int) -> tuple[Any, Any, Any]:
        """Slots, blocks and padded count by the plugin's stable construction."""
        return on_device(lambda: stable_alignment(self.put(topk_ids), block_size_m, experts))

    def told_multiprocessors(self, count: int) -> AbstractContextManager[None]:
        """Inside the block the operator reads `count` multiprocessors, from the library as shipped."""
        runtime = ctypes.CDLL("libcudart.so.13")  # the one that torch loaded, by its soname
        return vllm_interpose.multiprocessors(self.library, count, runtime.cudaDeviceGetAttribute)

    def versions(self) -> Mapping[str, str]:
        """Versions of torch and of the CUDA runtime it was built for."""
        return {"torch": str(torch.__version__), "cuda": str(torch.version.cuda)}

    def shaped(self, buffer: Any, *shape: int) -> Any:
        """A view of a flat buffer's beginning in another shape."""
        return buffer[: math.prod(shape)].view(*shape)

    def put(self, array: Array) -> Any:
        """A copy of a numpy array on the device."""
        return on_device(lambda: torch.from_numpy(array.copy()).to(self.device))

    def get(self, tensor: Any) -> Array:
        """A copy of a tensor's bytes on the host; waits for the device."""
        array: Array = on_device(lambda: tensor.detach().to("cpu", copy=True).numpy())
        return array

    def empty(self, *shape: int, dtype: str) -> Any:
        """An uninitialised tensor on the device."""
        return on_device(lambda: torch.empty(shape, dtype=getattr(torch, dtype), device=self.device))

    def full(self, *shape: int, value: int, dtype: str) -> Any:
        """A tensor on the device that holds one value."""
        return on_device(lambda: torch.full(shape, value, dtype=getattr(torch, dtype), device=self.device))

    def wait(self) -> None:
        """Wait for the device; its errors surface here."""
        if self.device.type == "cuda":
            on_device(torch.cuda.synchronize)

    def weights(
        self, tensors: Mapping[str, Array], gemm: str, *, intermediate: int, group: int
    ) -> tuple[Any, Any, Any]:
        """Weights, scales and zero points of one GEMM on the device, in the layout that the kernel reads."""
        qweight, scales, zeros = (tensors[f"{gemm}_{part}"] for part in ("qweight", "scales", "qzeros"))
        if self.repack == "cpu":
            return self.repacked(qweight, scales, zeros, intermediate=intermediate, group=group)
        return on_device(
            lambda: _vllm_repacked(
                self.put(qweight), self.put(scales), self.put(zeros), intermediate=intermediate, group=group
            )
        )

    def repacked(
        self, qweight: Array, scales: Array, zeros: Array, *, intermediate: int, group: int
    ) -> tuple[Any, Any, Any]:
        """Weights, scales and zero points by the CPU path, on the device."""
        made = vllm_repack.repacked(qweight, scales, zeros, intermediate=intermediate, group=group)
        weights, permuted, packed = (self.put(array) for array in made)
        return weights, permuted, packed

    def profiled(self, run: Callable[[], None], path: Path) -> None:
        """Run something under the torch profiler and leave its Chrome trace at `path`."""
        activities = [torch.profiler.ProfilerActivity.CUDA]
        with torch.profiler.profile(activities=activities) as profile:
            run()
            self.wait()
        profile.export_chrome_trace(str(path))


def _vllm_repacked(
    qweight: Any, scales: Any, zeros: Any, *, intermediate: int, group: int
) -> tuple[Any, Any, Any]:
    """The post-processing of AWQ weights as vLLM does it, argument for argument."""
    from vllm import _custom_ops as ops  # noqa: PLC0415 - costs seconds; only here
    from vllm.model_executor.layers.quantization.utils import marlin_utils  # noqa: PLC0415

    experts, size_k, words = qweight.shape
    no_order = torch.empty((experts, 0), dtype=torch.int32, device=qweight.device)
    return (
        ops.awq_marlin_moe_repack(qweight, no_order, size_k=size_k, size_n=8 * words, num_bits=4),
        marlin_utils.marlin_moe_permute_scales(
            s=scales, size_k=intermediate, size_n=scales.shape[2], group_size=group
        ),
        marlin_utils.moe_awq_to_marlin_zero_points(
            zeros, size_k=zeros.shape[1], size_n=8 * zeros.shape[2], num_bits=4
        ),
    )


def _load(path: Path) -> None:
    try:
        torch.ops.load_library(str(path))
    except OSError as fault:
        raise EngineError(
            f"{path.name}: cannot be loaded: {fault}; it needs torch 2.11.0 and the CUDA driver's"
            f" libcuda.so.1"
        ) from fault


def on_device(run: Callable[[], ResultT]) -> ResultT:
    """Run something that may end in a device error; it becomes one message of the cell.

    Raises EngineError. After an illegal access the CUDA context is lost: the process has nothing more to do.
    """
    try:
        return run()
    except torch.cuda.OutOfMemoryError as fault:
        raise EngineError(
            f"out of GPU memory: {_first_line(fault)}; fewer jobs at a time, or a smaller fixture"
        ) from fault
    except RuntimeError as fault:
        words = _first_line(fault)
        if "illegal memory access" in words:
            raise EngineError(
                f"the kernel made an illegal memory access: {words}; the outcome of this cell is that it"
                f" failed"
            ) from fault
        raise EngineError(f"the build's operator failed: {words}") from fault


def _first_line(fault: BaseException) -> str:
    return str(fault).strip().split("\n", 1)[0][:500]
