"""The build's GEMM on a GPU behind the signature of the simulated one: vectors are checked against either."""

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mechanism.engine import vllm_calls, vllm_grid, vllm_profile
from mechanism.engine.gpu_identity import Gpu
from mechanism.engine.vllm_pass import buffers
from mechanism.engine.vllm_pins import KERNEL
from mechanism.errors import EngineError
from mechanism.kernel.alignment import Alignment
from mechanism.kernel.configuration import Launch
from mechanism.kernel.dequantize import Weights
from mechanism.kernel.devices import Device
from mechanism.kernel.gemm import Gemm
from mechanism.kernel.rounding import Stored
from mechanism.kernel.sums import schedule_of


class GpuGemm:
    """Called like `mechanism.kernel.gemm.marlin_gemm`; `launched` holds what the last call read back.

    Refuses, by EngineError, what the engine does not run: bfloat16, weights without zero points, other
    builds, the running sum in 16 bits, and grids that the device cannot be told.
    """

    def __init__(self, operators: Any, gpu: Gpu) -> None:
        self._operators, self._gpu = operators, gpu
        self.launched: tuple[vllm_profile.Launched, ...] = ()

    def __call__(  # noqa: PLR0913 - the signature of `marlin_gemm`
        self,
        a: Stored,
        weights: Weights,
        alignment: Alignment,
        launch: Launch,
        *,
        top_k: int,
        arch: str,
        kernel: str = KERNEL,
        topk_weights: npt.NDArray[np.float32] | None = None,
        fp32_reduce: bool = True,
    ) -> Gemm:
        """One grouped GEMM on the GPU, with the launch asked for; no slices can be told."""
        self._require(weights, arch, kernel, fp32_reduce=fp32_reduce)
        told = vllm_grid.told(
            schedule_of(weights, alignment, launch, kernel=kernel),
            device_of(self._gpu),
            threads=launch.threads,
            block_size_m=alignment.block_size_m,
        )
        explicit = vllm_calls.Explicit(
            thread_k=launch.tile_k, thread_n=launch.tile_n, blocks_per_sm=told.blocks_per_sm
        )
        output = self.run(
            a, weights, alignment, explicit, top_k=top_k, topk_weights=topk_weights, sms=told.sms
        )
        got = [(one.tile_k, one.tile_n, one.threads, one.grid) for one in self.launched]
        wanted = [(launch.tile_k, launch.tile_n, launch.threads, launch.grid)]
        if got != wanted:
            raise EngineError(f"launch: expected {wanted}, got {got}")
        return Gemm(output=output, executed=(), unwritten=())

    def run(
        self,
        a: Stored,
        weights: Weights,
        alignment: Alignment,
        explicit: vllm_calls.Explicit,
        *,
        top_k: int,
        topk_weights: npt.NDArray[np.float32] | None = None,
        sms: int | None = None,
    ) -> Stored:
        """One call of the operator under the profiler; `sms` multiprocessors are told if given."""
        operators, rows = self._operators, a.shape[0]
        zeros = weights.qzeros
        if zeros is None:
            raise EngineError("weights: expected zero points, got none")
        packed = operators.repacked(
            weights.qweight, weights.scales, zeros, intermediate=weights.k, group=weights.group
        )
        c = operators.empty(rows * top_k, weights.n, dtype="float16")
        routed = np.ones(rows * top_k, np.float32) if topk_weights is None else topk_weights
        call = vllm_calls.gemm(
            "w13" if topk_weights is None else "w2",
            a=operators.put(a),
            c=c,
            weights=packed,
            workspace=operators.full(4 * 4096, value=0, dtype="int32"),
            alignment=buffers(alignment, operators),
            topk_weights=operators.put(routed),
            block_size_m=alignment.block_size_m,
            top_k=top_k,
            sizes=(rows, weights.n, weights.k),
            launch=explicit,
        )

        def once() -> None:
            if sms is None:
                operators.call(call)
                return
            with operators.told_multiprocessors(sms):
                operators.call(call)
                operators.wait()

        with tempfile.TemporaryDirectory() as folder:
            trace = Path(folder) / "trace.json"
            operators.profiled(once, trace)
            self.launched = vllm_profile.launches(json.loads(trace.read_bytes()))
        output: Stored = operators.get(c)
        return output

    def _require(self, weights: Weights, arch: str, kernel: str, *, fp32_reduce: bool) -> None:
        family = {"sm_80": "sm_8x", "sm_86": "sm_8x", "sm_89": "sm_8x"}
        mine, theirs = (family.get(name, name) for name in (self._gpu.arch, arch))
        for what, expected, got in (
            ("architecture", mine, theirs),
            ("build", KERNEL, kernel),
            ("dtype", "float16", weights.dtype),
            ("fp32 reduction", True, fp32_reduce),
        ):
            if expected != got:
                raise EngineError(f"{what}: expected {expected}, got {got}")


def device_of(gpu: Gpu) -> Device:
    """A found GPU as the kernel's host code sees it."""
    return Device(name=gpu.name, arch=gpu.arch, sms=gpu.sms, shared_memory=gpu.shared_memory)
