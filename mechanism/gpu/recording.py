"""GEMM vectors recorded on a GPU, in the published format: `mechanism vectors check` recomputes them."""

import io
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from mechanism.engine import vllm_calls
from mechanism.engine.gpu_identity import Gpu
from mechanism.engine.vllm_pins import VLLM
from mechanism.gpu.checks import drawn_layer
from mechanism.gpu.multiply import GpuGemm
from mechanism.kernel import alignment as aligning
from mechanism.process import files

_TOKENS = (6, 12, 24, 40)  # block sizes 8, 8, 16 and 32 for 8 experts and 4 routes a token
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the same file from run to run


def record(operators: Any, gpu: Gpu) -> Iterator[tuple[str, bytes]]:
    """(file name, bytes) of one vector per block size, on the kernel's own launches. Raises EngineError."""
    gemm = GpuGemm(operators, gpu)
    model = "hopper" if gpu.arch == "sm_90" else "ampere"
    for tokens in _TOKENS:
        layer = drawn_layer(seed=tokens, tokens=tokens)
        block = aligning.block_size_m(tokens, layer.top_k, layer.experts)
        made = aligning.stable(layer.ids.tolist(), experts=layer.experts, block_size_m=block)
        c = gemm.run(layer.a, layer.weights, made, vllm_calls.Explicit(), top_k=layer.top_k)
        (launched,) = gemm.launched
        meta = {
            "recorded_on": gpu.name,
            "vllm": VLLM,
            "arch": gpu.arch,
            "mma_model": model,
            "size_m": tokens,
            "top_k": layer.top_k,
            "moe_block_size": block,
            "group_size": layer.weights.group,
            "thread_k": launched.tile_k,
            "thread_n": launched.tile_n,
            "num_threads": launched.threads,
            "num_ctas": launched.grid,
            "registers": launched.registers,
            "mul_topk_weights": False,
            "use_atomic_add": False,
            "use_fp32_reduce": True,
        }
        arrays = {
            "a": layer.a,
            "qweight": layer.weights.qweight,
            "qzeros": layer.weights.qzeros,
            "scales": layer.weights.scales,
            "topk_ids": layer.ids,
            "topk_weights": np.ones(layer.ids.shape, dtype=np.float32),
            "sorted_token_ids": np.array(made.sorted_token_ids, dtype=np.int32),
            "expert_ids": np.array(made.expert_ids, dtype=np.int32),
            "num_tokens_post_padded": np.array([made.num_tokens_post_padded], dtype=np.int32),
            "c": c,
            "meta": np.array(json.dumps(meta, sort_keys=True)),
        }
        yield f"recorded_{gpu.arch}_b{block}_m{tokens}.npz", _npz(arrays)


def write(folder: Path, operators: Any, gpu: Gpu) -> Iterator[Path]:
    """The files of `record` in a folder that is there, one after the other.

    Raises EngineError, and FileExistsError for a file that is there: a measurement is never overwritten.
    """
    for name, data in record(operators, gpu):
        files.write_once(folder / name, data)
        yield folder / name


def _npz(arrays: dict[str, Any]) -> bytes:
    """An .npz without times."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in arrays.items():
            member = io.BytesIO()
            np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)
            archive.writestr(zipfile.ZipInfo(f"{name}.npy", _EPOCH), member.getvalue())
    return out.getvalue()
