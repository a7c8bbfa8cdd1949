"""The engine against the real torch and the real wheel, without a GPU; see with_wheel.sh.

Operators are CUDA only: a call whose arguments bind to the registered schema gets as far as the dispatcher, which then
finds no kernel for the CPU. What vLLM's own Python code asks of them is recorded in their place.
"""

import base64
import ctypes
import importlib
import inspect
import os
import shutil
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the wheel's environment, see with_wheel.sh")
pytest.importorskip("vllm", reason="needs the wheel's environment, see with_wheel.sh")

from mechanism.engine import (  # noqa: E402
    vllm_calls,
    vllm_interpose,
    vllm_pins,
    vllm_profile,
    vllm_ready,
    vllm_repack,
)
from mechanism.engine.vllm_operators import Operators  # noqa: E402
from mechanism.fixture import packing  # noqa: E402
from mechanism.kernel import alignment  # noqa: E402
from mechanism.kernel.configuration import candidates  # noqa: E402
from mechanism.plugin.stable_construction import SWITCH, patch, stable_alignment  # noqa: E402

pytestmark = pytest.mark.vllm_wheel

ROOT = Path(__file__).parents[2]
MARLIN = "vllm.model_executor.layers.fused_moe.experts.marlin_moe"
TOKENS, TOP_K, EXPERTS, HIDDEN, WIDE, BLOCK = 6, 2, 8, 128, 64, 8


@pytest.fixture(scope="module")
def operators() -> Operators:
    """The real build's operators, loaded by the engine's own code; tensors stay on the CPU."""
    return Operators(device="cpu")


@pytest.fixture
def module() -> Any:
    """VLLM's Marlin experts, fresh: what a test replaces in it is gone afterwards."""
    return importlib.reload(importlib.import_module(MARLIN))


def tensors() -> SimpleNamespace:
    """One small layer in the shapes that the operators take."""
    slots, blocks = alignment.buffer_lengths(TOKENS * TOP_K, EXPERTS, BLOCK)
    return SimpleNamespace(
        hidden=torch.zeros(TOKENS, HIDDEN, dtype=torch.float16),
        w13=torch.zeros(EXPERTS, HIDDEN // 16, 4 * WIDE, dtype=torch.int32),
        w2=torch.zeros(EXPERTS, WIDE // 16, 2 * HIDDEN, dtype=torch.int32),
        scales13=torch.zeros(EXPERTS, HIDDEN // 32, 2 * WIDE, dtype=torch.float16),
        scales2=torch.zeros(EXPERTS, WIDE // 32, HIDDEN, dtype=torch.float16),
        zeros13=torch.zeros(EXPERTS, HIDDEN // 32, WIDE // 4, dtype=torch.int32),
        zeros2=torch.zeros(EXPERTS, WIDE // 32, HIDDEN // 8, dtype=torch.int32),
        topk_weights=torch.zeros(TOKENS, TOP_K, dtype=torch.float32),
        topk_ids=torch.arange(TOKENS * TOP_K, dtype=torch.int32).reshape(TOKENS, TOP_K) % EXPERTS,
        workspace=torch.zeros(64, dtype=torch.int32),
        cache13=torch.zeros(TOKENS * TOP_K, max(2 * WIDE, HIDDEN), dtype=torch.float16),
        cache2=torch.zeros(TOKENS * TOP_K, WIDE, dtype=torch.float16),
        output=torch.zeros(TOKENS, HIDDEN, dtype=torch.float16),
        slots=torch.zeros(slots, dtype=torch.int32),
        blocks=torch.zeros(blocks, dtype=torch.int32),
        padded=torch.zeros(1, dtype=torch.int32),
    )


def gemm_call(which: Any, t: SimpleNamespace, launch: vllm_calls.Explicit) -> vllm_calls.Call:
    first = which == "w13"
    routes = TOKENS * TOP_K
    return vllm_calls.gemm(
        which,
        a=t.hidden if first else t.cache2,
        c=t.cache13,
        weights=(t.w13, t.scales13, t.zeros13) if first else (t.w2, t.scales2, t.zeros2),
        workspace=t.workspace,
        alignment=(t.slots, t.blocks, t.padded),
        topk_weights=t.topk_weights,
        block_size_m=BLOCK,
        top_k=TOP_K if first else 1,
        sizes=(TOKENS, 2 * WIDE, HIDDEN) if first else (routes, HIDDEN, WIDE),
        launch=launch,
    )


def every_call() -> list[vllm_calls.Call]:
    """Every operator call that the engine makes."""
    t = tensors()
    told = vllm_calls.Explicit(thread_k=64, thread_n=128, blocks_per_sm=2)
    outputs = (t.slots, t.blocks, t.padded)
    return [
        vllm_calls.align(t.topk_ids, experts=EXPERTS, block_size_m=BLOCK, outputs=outputs),
        gemm_call("w13", t, vllm_calls.Explicit()),
        gemm_call("w2", t, told),
        vllm_calls.silu_and_mul(t.cache2, torch.zeros(TOKENS * TOP_K, 2 * WIDE, dtype=torch.float16)),
        vllm_calls.moe_sum(torch.zeros(TOKENS, TOP_K, HIDDEN, dtype=torch.float16), t.output),
        vllm_calls.repack(torch.zeros(HIDDEN, WIDE // 8, dtype=torch.int32), size_k=HIDDEN, size_n=WIDE),
    ]


# --- libraries ----------------------------------------------------------------------------------------------------


def test_the_pinned_digests_are_the_wheels_own() -> None:
    """RECORD of the installed distribution, base64 without padding, against our hexadecimal."""
    recorded = {}
    for item in distribution("vllm").files or ():
        if item.name in vllm_pins.LIBRARIES and item.hash is not None:
            recorded[item.name] = base64.urlsafe_b64decode(item.hash.value + "=").hex()
    assert recorded == dict(vllm_pins.LIBRARIES)
    vllm_ready.require_torch()
    vllm_ready.require_libraries()


def test_all_three_libraries_load_and_register(operators: Operators) -> None:
    torch.ops.load_library(str(operators.library.with_name(vllm_pins.CORE)))
    for call in every_call():
        space, _, name = call.operator.partition("::")
        assert hasattr(getattr(torch.ops, space), name), call.operator
    assert operators.activation == "_C::silu_and_mul"


@pytest.mark.parametrize("place", range(6))
def test_every_call_binds_to_the_registered_schema(place: int, operators: Operators) -> None:
    """Names in the schema's order, values of its types; then the dispatcher finds no CPU kernel, and says so."""
    torch.ops.load_library(str(operators.library.with_name(vllm_pins.CORE)))
    call = every_call()[place]
    space, _, name = call.operator.partition("::")
    operator = getattr(getattr(torch.ops, space), name).default
    assert list(call.arguments) == [argument.name for argument in operator._schema.arguments]
    with pytest.raises(NotImplementedError, match="CPU"):
        operator(*call.arguments.values())


@pytest.mark.parametrize("place", [1, 2])
def test_a_value_of_another_type_does_not_bind(place: int, operators: Operators) -> None:
    """The check above would notice: the dispatcher looks at types before it looks for a kernel."""
    arguments = {**every_call()[place].arguments, "size_m": "six"}
    with pytest.raises(RuntimeError, match="size_m"):
        torch.ops._moe_C.moe_wna16_marlin_gemm(*arguments.values())
    assert operators


def test_numbers_of_the_scalar_types() -> None:
    from vllm.scalar_type import scalar_types  # noqa: PLC0415

    assert scalar_types.uint4.id == vllm_pins.UINT4
    assert scalar_types.float16.id == vllm_pins.FLOAT16


@pytest.mark.skipif(shutil.which("nm") is None, reason="needs nm of binutils")
def test_symbols_of_the_library_are_read_as_the_tiles_they_are(operators: Operators) -> None:
    """Every compiled fp16 kernel for AWQ, by its template arguments: the tiles of marlin-moe 4.1 and four groups."""
    listed = subprocess.run(["nm", "-C", str(operators.library)], check=True, capture_output=True, text=True)
    types = f"<{vllm_pins.FLOAT16}l, {vllm_pins.UINT4}l, "
    names = {
        line[19:] for line in listed.stdout.splitlines() if f" void marlin_moe_wna16::Marlin{types}" in line
    }
    found: set[Any] = set()
    for name in names:
        threads = int(name.split(",")[4])
        args = {
            "grid": [1, 1, 1],
            "block": [threads, 1, 1],
            "registers per thread": 0,
            "shared memory": 0,
        }
        trace = {"traceEvents": [{"cat": "kernel", "ts": 0, "name": name, "args": args}]}
        (one,) = vllm_profile.launches(trace)
        found.add((one.tile_k, one.tile_n, one.threads, one.eights, one.group))
    small, large = candidates(8), candidates(64)
    wanted = {
        (*tile, eights, group) for eights in (True, False) for tile in small for group in (-1, 32, 64, 128)
    }
    wanted |= {(*tile, False, group) for tile in large for group in (-1, 32, 64, 128)}
    assert found == wanted


def test_the_real_library_reads_what_it_is_told(operators: Operators) -> None:
    """Its slot for the device attribute, inside the block and after it; called through, as the operator would."""
    kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int), ctypes.c_int, ctypes.c_int)

    def runtime(value: Any, attribute: int, _device: int) -> int:
        value[0] = 1000 + attribute
        return 0

    real = kind(runtime)
    (slot,) = vllm_interpose.slots_of(operators.library, vllm_interpose.FUNCTION)
    before = ctypes.c_void_p.from_address(slot).value
    with vllm_interpose.multiprocessors(operators.library, 100, real):
        address = ctypes.c_void_p.from_address(slot).value or 0
        function = kind(address)
        value = ctypes.c_int(0)
        read = []
        for attribute in (vllm_interpose.MULTIPROCESSORS, 97):
            function(ctypes.byref(value), attribute, 0)
            read.append(value.value)
    assert read == [100, 1097]
    assert ctypes.c_void_p.from_address(slot).value == before


# --- vLLM's own Python code -----------------------------------------------------------------------------------------


def record(module: Any, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    """Put recorders in place of everything that needs a device; returns the calls as they come."""
    calls: list[tuple[str, dict[str, Any]]] = []
    wrapper = inspect.signature(module.ops.moe_wna16_marlin_gemm)

    def gemm(*args: Any, **kwargs: Any) -> Any:
        bound = wrapper.bind(*args, **kwargs)
        bound.apply_defaults()
        calls.append(("gemm", dict(bound.arguments)))
        return bound.arguments["output"]

    def aligned(topk_ids: Any, block_size: int, num_experts: int, *args: Any, **kwargs: Any) -> Any:
        calls.append(
            ("align", {"block_size": block_size, "num_experts": num_experts, "args": args, **kwargs})
        )
        return stable_alignment(topk_ids, block_size, num_experts)

    monkeypatch.setattr(module.ops, "moe_wna16_marlin_gemm", gemm)
    monkeypatch.setattr(module, "moe_align_block_size", aligned)
    monkeypatch.setattr(
        module,
        "marlin_make_workspace_new",
        lambda _device, blocks: torch.zeros(132 * blocks, dtype=torch.int32),
    )
    return calls


def fused(module: Any, t: SimpleNamespace, calls: list[Any], **changes: Any) -> Any:
    return module.fused_marlin_moe(
        **{
            "hidden_states": t.hidden,
            "w1": t.w13,
            "w2": t.w2,
            "bias1": None,
            "bias2": None,
            "w1_scale": t.scales13,
            "w2_scale": t.scales2,
            "topk_weights": t.topk_weights,
            "topk_ids": t.topk_ids,
            "quant_type_id": vllm_pins.UINT4,
            "w1_zeros": t.zeros13,
            "w2_zeros": t.zeros2,
            "activation_func": lambda _kind, out, given: calls.append(("silu", {"out": out, "input": given})),
            "moe_sum": lambda given, out: calls.append(("sum", {"input": given, "output": out})),
            **changes,
        }
    )


def test_the_call_sequence_and_the_flags_are_the_engines(
    module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = record(module, monkeypatch)
    t = tensors()
    fused(module, t, calls)
    assert [name for name, _ in calls] == ["align", "gemm", "silu", "gemm", "sum"]
    assert calls[0][1]["block_size"] == alignment.block_size_m(TOKENS, TOP_K, EXPERTS)
    assert calls[0][1]["ignore_invalid_experts"] is True
    for (_, got), which in zip((calls[1], calls[3]), ("w13", "w2"), strict=True):
        ours = list(gemm_call(which, t, vllm_calls.Explicit()).arguments.values())
        theirs = list(got.values())
        assert len(ours) == len(theirs)
        for mine, other in zip(ours, theirs, strict=True):
            if torch.is_tensor(mine):
                assert mine.dtype == other.dtype
                assert mine.numel() == other.numel() or mine is t.workspace or mine is t.cache13
            elif hasattr(other, "id"):
                assert other.id == mine
            else:
                assert mine == other
    w13, silu, w2, last = (given for _, given in calls[1:])
    assert w13["output"].data_ptr() == w2["output"].data_ptr(), "W13 and routed W2 share one buffer"
    assert silu["out"].data_ptr() == w2["input"].data_ptr()
    assert last["input"].data_ptr() == w2["output"].data_ptr()
    assert tuple(last["input"].shape) == (TOKENS, TOP_K, HIDDEN)
    assert w13["workspace"].numel() == vllm_calls.locks(sms=132, size_n=128, slots=64, block_size_m=8)


def test_the_wrapper_passes_what_the_engine_passes(
    monkeypatch: pytest.MonkeyPatch, operators: Operators
) -> None:
    """VLLM's wrapper of the operator, called with the engine's arguments, hands on exactly those."""
    from vllm import _custom_ops as ops  # noqa: PLC0415
    from vllm.scalar_type import ScalarType  # noqa: PLC0415

    handed: list[tuple[Any, ...]] = []
    space = SimpleNamespace(moe_wna16_marlin_gemm=lambda *args: handed.append(args))
    monkeypatch.setattr(ops.torch.ops, "_moe_C", space, raising=False)
    t = tensors()
    told = vllm_calls.Explicit(thread_k=64, thread_n=128, blocks_per_sm=3)
    ours = gemm_call("w2", t, told).arguments
    values = [ScalarType.from_id(value) if name == "b_type_id" else value for name, value in ours.items()]
    ops.moe_wna16_marlin_gemm(*values)
    assert all(mine is other or mine == other for mine, other in zip(ours.values(), handed[0], strict=True))
    assert operators


@pytest.mark.parametrize(("experts", "top_k"), [(128, 8), (8, 2), (64, 6)])
def test_the_block_size_rule(experts: int, top_k: int, module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """fused_marlin_moe's own choice, at and around every boundary of marlin-moe 2.2."""
    edges = {
        int(0.9 * size * experts / top_k) + step for size in alignment.BLOCK_SIZES for step in (-1, 0, 1, 2)
    }
    t = tensors()
    t.w13 = torch.zeros(experts, HIDDEN // 16, 4 * WIDE, dtype=torch.int32)
    t.w2 = torch.zeros(experts, WIDE // 16, 2 * HIDDEN, dtype=torch.int32)
    for tokens in sorted({1, 2, *edges} - {-1, 0}):
        calls = record(module, monkeypatch)
        t.hidden = torch.zeros(tokens, HIDDEN, dtype=torch.float16)
        t.topk_weights = torch.zeros(tokens, top_k)
        t.topk_ids = torch.zeros(tokens, top_k, dtype=torch.int32)
        fused(module, t, calls)
        assert calls[0][1]["block_size"] == alignment.block_size_m(tokens, top_k, experts), tokens
        monkeypatch.undo()


# --- repacking ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("experts", "k", "n", "group", "wide"),
    [(3, 256, 384, 128, 192), (2, 128, 128, 32, 64), (2, 256, 256, 128, 128), (1, 512, 128, 64, 512)],
    ids=["grouped", "group-32", "defect-of-1.4", "group-64"],
)
def test_the_cpu_path_repacks_as_vllm_does(experts: int, k: int, n: int, group: int, wide: int) -> None:
    """Weights against vLLM's own CPU oracle, scales and zero points against the functions that its loader calls."""
    from vllm.model_executor.layers.quantization.utils import marlin_utils, marlin_utils_test  # noqa: PLC0415

    draw = np.random.default_rng(k + n)
    codes = draw.integers(0, 16, (experts, k, n), dtype=np.uint8)
    zeros = packing.pack(draw.integers(0, 16, (experts, k // group, n), dtype=np.uint8))
    scales = draw.standard_normal((experts, k // group, n)).astype(np.float16)
    weights, permuted, packed = vllm_repack.repacked(
        packing.pack(codes), scales, zeros, intermediate=wide, group=group
    )
    order = marlin_utils_test.get_weight_perm(4)
    for expert in range(experts):
        words = torch.from_numpy(codes[expert].astype(np.int32))
        want = marlin_utils_test.marlin_weights(words, k, n, 4, order).numpy()
        assert (weights[expert] == want).all()
    want_scales = marlin_utils.marlin_moe_permute_scales(torch.from_numpy(scales), wide, n, group)
    assert permuted.tobytes() == want_scales.numpy().tobytes()
    want_zeros = marlin_utils.moe_awq_to_marlin_zero_points(torch.from_numpy(zeros), k // group, n, 4)
    assert (packed == want_zeros.numpy()).all()


# --- the plugin -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("mapped", [False, True], ids=["all-local", "expert-map"])
def test_stable_alignment_is_the_canonical_one(seed: int, mapped: bool) -> None:  # noqa: FBT001 - a parameter
    """Slots, blocks and padded count on torch, against the kernel room's stable order; sentinels and -1 behind."""
    draw = np.random.default_rng(seed)
    experts, tokens = int(draw.integers(65, 130)), int(draw.integers(1, 60))
    top_k, block = int(draw.integers(1, 9)), int(draw.choice(alignment.BLOCK_SIZES))
    ids = np.stack([draw.permutation(experts)[:top_k] for _ in range(tokens)]).astype(np.int32)
    expert_map = None
    if mapped:
        local = draw.permutation(experts)[: experts // 2]
        expert_map = np.full(experts, -1, dtype=np.int32)
        expert_map[local] = np.arange(len(local))
    want = alignment.stable(
        ids.tolist(),
        experts=experts,
        block_size_m=block,
        expert_map=None if expert_map is None else expert_map.tolist(),
    )
    slots, blocks, padded = stable_alignment(
        torch.from_numpy(ids), block, experts, None if expert_map is None else torch.from_numpy(expert_map)
    )
    length = want.num_tokens_post_padded
    assert padded.tolist() == [length]
    assert (len(slots), len(blocks)) == (want.sorted_length, want.expert_length)
    assert tuple(slots[:length].tolist()) == want.sorted_token_ids
    assert tuple(blocks[: length // block].tolist()) == want.expert_ids
    assert set(slots[length:].tolist()) <= {ids.size}
    assert set(blocks[length // block :].tolist()) <= {-1}


def test_the_patch_reaches_awq_and_nothing_else(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.scalar_type import scalar_types  # noqa: PLC0415

    calls = record(module, monkeypatch)
    patch(module)
    patch(module)  # a second load changes nothing
    t = tensors()
    fused(module, t, calls)
    assert [name for name, _ in calls] == ["gemm", "silu", "gemm", "sum"], (
        "no call of the operator's alignment"
    )
    want = alignment.stable(t.topk_ids.tolist(), experts=EXPERTS, block_size_m=BLOCK)
    given = calls[0][1]
    length = want.num_tokens_post_padded
    assert tuple(given["sorted_token_ids"][:length].tolist()) == want.sorted_token_ids
    calls.clear()
    fused(module, t, calls, quant_type_id=scalar_types.uint4b8.id, w1_zeros=None, w2_zeros=None)
    assert [name for name, _ in calls] == ["align", "gemm", "silu", "gemm", "sum"]


LOADED = f"""
import importlib, sys
from vllm.plugins import load_general_plugins
load_general_plugins()
module = importlib.import_module({MARLIN!r})
sys.stdout.write(str(getattr(module.fused_marlin_moe, "stable_construction", False)))
"""


@pytest.mark.parametrize(("value", "patched"), [(None, "False"), ("0", "False"), ("1", "True")])
def test_the_real_plugin_system_loads_it(value: str | None, patched: str) -> None:
    """Found by its entry point in a process of its own; off unless the variable is 1."""
    environment = {name: text for name, text in os.environ.items() if name != SWITCH}
    if value is not None:
        environment[SWITCH] = value
    done = subprocess.run(
        [sys.executable, "-c", LOADED], check=False, capture_output=True, text=True, env=environment, cwd="/"
    )
    assert done.stdout.endswith(patched), done.stderr[-2000:]


# --- the engine -----------------------------------------------------------------------------------------------------


def test_without_a_gpu_it_says_so() -> None:
    from mechanism.engine.open import open_engine  # noqa: PLC0415
    from mechanism.errors import EngineError  # noqa: PLC0415

    with pytest.raises(EngineError, match=r"no GPU: expected"):
        open_engine("vllm")


def test_the_activation_without_its_library_has_the_same_roundings(operators: Operators) -> None:
    """Torch's silu of float16 on a CPU, for all gates that are not open: the simulated kernel's own table."""
    from mechanism.kernel.activation import silu_and_mul  # noqa: PLC0415
    from mechanism.kernel.silu import AMBIGUOUS_FP16  # noqa: PLC0415

    bits = np.arange(65536, dtype=np.uint16).view(np.float16)
    finite = bits[np.isfinite(bits) & ~np.isin(bits.view(np.uint16), list(AMBIGUOUS_FP16))]
    both = np.stack([finite, np.ones_like(finite)], axis=1)
    result = torch.empty(len(finite), 1, dtype=torch.float16)
    kept, operators.activation = operators.activation, "torch.silu_and_multiply"
    try:
        operators.silu_and_mul(result, torch.from_numpy(both))
    finally:
        operators.activation = kept
    want = silu_and_mul(both, dtype="float16").output
    differing = int((result.numpy().view(np.uint16) != want.view(np.uint16)).sum())
    assert differing <= 64, "torch's CPU exp is not the GPU's; the comparison that counts is part of make gpu"
