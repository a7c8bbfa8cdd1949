"""The engine `vllm`: the pinned build's own operators on a CUDA GPU, one layer, one pass.

Nothing of vLLM is copied: the calls are in `vllm_calls`, who makes them in `vllm_operators`, and what was
launched is read back from the profiler (`vllm_profile`). Executed slices cannot be seen on a GPU: they are
those of the schedule (marlin-moe 5) of the tile and the grid that were read back and of the padded count on
the device.
"""

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from mechanism.engine import gpu_identity, vllm_calls, vllm_grid, vllm_profile
from mechanism.engine.asked import LaunchRequest
from mechanism.engine.protocol import (
    Array,
    Constructed,
    ExecutedGemm,
    Identity,
    Layer,
    Result,
    Slices,
    Treatment,
)
from mechanism.engine.vllm_history import align_once, apply_steps
from mechanism.engine.vllm_pass import LayerPass
from mechanism.engine.vllm_pins import KERNEL, VLLM
from mechanism.errors import EngineError
from mechanism.fixture.layout import GEMMS, Gemm
from mechanism.kernel import alignment as aligning
from mechanism.kernel.alignment import Alignment
from mechanism.kernel.devices import Device
from mechanism.kernel.schedule import Schedule
from mechanism.kernel.silu import AMBIGUOUS_FP16
from mechanism.plugin.stable_construction import enabled

if TYPE_CHECKING:
    from mechanism.engine.vllm_operators import Operators


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Pass:
    """One forward pass: surfaces as captured before their buffers were reused (marlin-moe appendix B)."""

    surfaces: Mapping[str, Array]
    launched: tuple[vllm_profile.Launched, ...]


class VllmEngine:
    """The engine named `vllm`. Holds the loaded operators, and no state of a treatment."""

    def __init__(self, operators: "Operators | None" = None, gpu: gpu_identity.Gpu | None = None) -> None:
        self._given = operators
        self._gpu = gpu_identity.find_gpu() if gpu is None else gpu

    @property
    def name(self) -> str:
        """The name that plans give it."""
        return "vllm"

    @cached_property
    def _operators(self) -> "Operators":
        if self._given is not None:
            return self._given
        from mechanism.engine.vllm_operators import Operators  # noqa: PLC0415 - torch, when it is needed

        return Operators()

    def identity(self) -> Identity:
        """What computed: versions, the device as found, every loaded library by digest."""
        gpu, operators = self._gpu, self._operators
        return Identity(
            evidence="gpu",
            arithmetic=f"{operators.library.name} of vllm {VLLM}",
            driver=gpu_identity.driver_version(),
            versions={
                **operators.versions(),
                "numpy": np.__version__,
                "vllm": VLLM,
                "driver-cuda": gpu.driver,
                "activation": operators.activation,
                "repack": operators.repack,
                "construction": "stable" if enabled() else "atomics",
                "jit-cache": _jit_cache(gpu.arch),
            },
            device={
                "gpu": gpu.name,
                "uuid_sha256": gpu.uuid_sha256,
                "clock_khz": gpu.clock_khz,
                "memory_clock_khz": gpu.memory_clock_khz,
            },
            libraries=dict(gpu_identity.loaded_libraries()),
        )

    def apply(self, arrival: Mapping[str, Any], layer: Layer) -> Any:
        """Do a history's steps on the device; what they keep allocated is the history's state."""
        if arrival.get("kind") != "steps":
            raise EngineError(
                f"history: expected steps to do on a GPU, got an arrival order, {arrival.get('kind')}:"
                f" atomics take"
                " none; give the history steps, or use engine: simulated"
            )
        _require_pinned(layer, self._gpu)
        return apply_steps(arrival["steps"], layer, self._operators, lambda ids: self._warm(ids, layer))

    def construct(self, history: Any, layer: Layer) -> Constructed:
        """The alignment that the operator makes now, read back; `history` stays allocated meanwhile."""
        experts = layer.shape.experts
        ids = np.asarray(layer.topk_ids, dtype=np.int32)
        operators = self._operators
        if enabled():
            made = operators.stable(ids, layer.shape.block_size_m, experts)
        else:
            made = align_once(ids, experts, operators)
        slots, blocks, padded = (operators.get(tensor) for tensor in made)
        del history
        return Constructed(
            alignment=read_back(
                slots, blocks, int(padded[0]), routes=ids.size, block_size_m=layer.shape.block_size_m
            ),
            assumptions=(),
        )

    def execute(self, treatment: Treatment, layer: Layer) -> Result:
        """One forward pass under the treatment. Raises EngineError for a launch that cannot be delivered."""
        _require_pinned(layer, self._gpu)
        done = self._forward(treatment.alignment, layer, launches=treatment.launches)
        if len(done.launched) != 2:
            raise EngineError(f"expected two launches of the Marlin kernel, got {len(done.launched)}")
        gate = np.ascontiguousarray(done.surfaces["w13"][:, : layer.shape.intermediate]).view(np.uint16)
        w13, w2 = (
            self._executed(launch, asked, treatment.alignment, layer)
            for launch, asked in zip(done.launched, treatment.launches, strict=True)
        )
        return Result(
            surfaces=done.surfaces,
            alignment=treatment.alignment,
            gemms=(w13, w2),
            assumptions=(),
            candidate="device",
            ambiguous_elements=int(np.isin(gate, np.array(sorted(AMBIGUOUS_FP16), np.uint16)).sum()),
        )

    def _warm(self, topk_ids: npt.NDArray[np.int32], layer: Layer) -> None:
        """A pass whose result is thrown away, on the operator's own launches."""
        shape = layer.shape
        made = aligning.stable(
            topk_ids.tolist(), experts=shape.experts, block_size_m=shape.block_size_m, kernel=KERNEL
        )
        self._forward(made, layer, launches=None)

    def _forward(
        self, alignment: Alignment, layer: Layer, *, launches: Sequence[LaunchRequest] | None
    ) -> _Pass:
        """W13, activation, W2, sum, in the build's buffers: W13 and routed W2 share one (marlin-moe 3)."""
        run = LayerPass(self._operators, layer, alignment)
        told = [self._told(alignment, layer, launch) for launch in launches or ()]
        with tempfile.TemporaryDirectory() as folder:
            trace = Path(folder) / "trace.json"
            launched: list[vllm_profile.Launched] = []
            for place, gemm in enumerate(GEMMS):
                if not told:
                    run.gemm(gemm, vllm_calls.Explicit())
                else:
                    self._operators.profiled(lambda: self._launch(run, gemm, *told[place]), trace)  # noqa: B023
                    launched += vllm_profile.launches(json.loads(trace.read_bytes()))
                run.after(gemm)
        return _Pass(surfaces=run.captured, launched=tuple(launched))

    def _launch(self, run: "LayerPass", gemm: Gemm, explicit: vllm_calls.Explicit, sms: int | None) -> None:
        if sms is None:
            run.gemm(gemm, explicit)
            return
        with self._operators.told_multiprocessors(sms):
            run.gemm(gemm, explicit)
            self._operators.wait()

    def _told(
        self, alignment: Alignment, layer: Layer, launch: LaunchRequest
    ) -> tuple[vllm_calls.Explicit, int | None]:
        """What the operator is told for a launch: nothing where the kernel chooses, else all of it."""
        if launch.chosen_by == "kernel":
            return vllm_calls.Explicit(), None
        gpu = self._gpu
        device = Device(name=gpu.name, arch=gpu.arch, sms=gpu.sms, shared_memory=gpu.shared_memory)
        schedule = schedule_of(launch.name, launch, alignment, layer)
        told = vllm_grid.told(schedule, device, threads=launch.threads, block_size_m=layer.shape.block_size_m)
        explicit = vllm_calls.Explicit(
            thread_k=launch.tile_k, thread_n=launch.tile_n, blocks_per_sm=told.blocks_per_sm
        )
        return explicit, told.sms

    def _executed(
        self, launched: vllm_profile.Launched, asked: LaunchRequest, alignment: Alignment, layer: Layer
    ) -> ExecutedGemm:
        """The launch as it was read back."""
        name: Literal["w13", "w2"] = "w13" if asked.name == "w13" else "w2"
        _, sms = self._told(alignment, layer, asked)
        words = launched.words() + ("" if sms is None else f" multiprocessors_told={sms}")
        return ExecutedGemm(
            name=name,
            tile_k=launched.tile_k,
            tile_n=launched.tile_n,
            threads=launched.threads,
            grid=launched.grid,
            symbol=words,
            slices=_slices(schedule_of(name, launched, alignment, layer)),
        )


def read_back(slots: Array, blocks: Array, padded: int, *, routes: int, block_size_m: int) -> Alignment:
    """The active prefix of the operator's outputs, and the lengths of its buffers."""
    return Alignment(
        block_size_m=block_size_m,
        routes=routes,
        sorted_token_ids=tuple(slots[:padded].tolist()),
        expert_ids=tuple(blocks[: padded // block_size_m].tolist()),
        num_tokens_post_padded=padded,
        sorted_length=len(slots),
        expert_length=len(blocks),
    )


def schedule_of(
    name: str, launch: LaunchRequest | vllm_profile.Launched, alignment: Alignment, layer: Layer
) -> Schedule:
    """The schedule of one GEMM of the layer on a launch."""
    shape = layer.shape
    n, k = (2 * shape.intermediate, shape.hidden) if name == "w13" else (shape.hidden, shape.intermediate)
    return Schedule(
        n=n,
        k=k,
        tile_k=launch.tile_k,
        tile_n=launch.tile_n,
        grid=launch.grid,
        padded_blocks=len(alignment.expert_ids),
        group=shape.group_size if k > shape.group_size else -1,
        kernel=layer.kernel,
    )


def _slices(schedule: Schedule) -> Slices:
    return tuple(
        (tile.block, tile.column_tile, tuple((part.cta, part.begin, part.end) for part in tile.slices))
        for tile in schedule
    )


def _require_pinned(layer: Layer, gpu: gpu_identity.Gpu) -> None:
    if layer.kernel != KERNEL:
        raise EngineError(f"engine vllm: expected a plan with kernel {KERNEL}, got {layer.kernel}")
    if layer.arch != gpu.arch:
        raise EngineError(f"wrong GPU: expected {layer.arch}, got {gpu.name}, {gpu.arch}")


def _jit_cache(arch: str) -> str:
    """Where the driver keeps what it compiles: from sm_90 on it compiles the wheel's sm_80 PTX (U1)."""
    if int(arch.removeprefix("sm_")) < 90:
        return "not used: the wheel's own sm_80 code runs"
    return "of the run" if "CUDA_CACHE_PATH" in os.environ else "of the user"
