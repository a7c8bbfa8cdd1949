"""Small checkpoints in every format, written from one layer of canonical tensors."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save_file

from mechanism.fixture.packing import unpack

Array = npt.NDArray[Any]
PREFIX = "model.layers.1.mlp."
SIZES = {"hidden_size": 128, "moe_intermediate_size": 64, "num_experts": 4, "num_experts_per_tok": 2}
AWQ = {"quant_method": "awq", "version": "gemm", "bits": 4, "group_size": 32, "zero_point": True}


def compressed(*, symmetric: bool) -> dict[str, Any]:
    """quantization_config as llm-compressor writes it."""
    weights = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32, "symmetric": symmetric}
    group = {"targets": ["Linear"], "weights": {**weights, "actorder": None}, "input_activations": None}
    return {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "config_groups": {"group_0": group},
    }


def config(folder: Path, quantisation: Mapping[str, Any] | None, **changes: Any) -> None:
    value = {"model_type": "qwen3_moe", "num_hidden_layers": 2, "norm_topk_prob": True, **SIZES, **changes}
    if quantisation is not None:
        value["quantization_config"] = quantisation
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(value))


def save(folder: Path, tensors: Mapping[str, Array]) -> None:
    """One file, with metadata of one key as transformers writes."""
    folder.mkdir(parents=True, exist_ok=True)
    data = {name: np.ascontiguousarray(array) for name, array in tensors.items()}
    save_file(data, folder / "model.safetensors", metadata={"format": "pt"})


def shards(folder: Path, tensors: Mapping[str, Array], *, count: int = 3) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    placed = {}
    for place in range(count):
        file = f"model-{place + 1:05}-of-{count:05}.safetensors"
        part = {name: tensors[name] for name in list(tensors)[place::count]}
        save_file({name: np.ascontiguousarray(array) for name, array in part.items()}, folder / file)
        placed.update(dict.fromkeys(part, file))
    index = {"metadata": {"total_size": 0}, "weight_map": placed}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def halves(layer: Mapping[str, Array], expert: int) -> dict[str, dict[str, Array]]:
    """Projection name to AutoAWQ's three arrays, gate and up apart."""
    found: dict[str, dict[str, Array]] = {"gate_proj": {}, "up_proj": {}, "down_proj": {}}
    for part in ("qweight", "qzeros", "scales"):
        wide = layer[f"w13_{part}"][expert]
        middle = wide.shape[-1] // 2
        found["gate_proj"][part], found["up_proj"][part] = wide[..., :middle], wide[..., middle:]
        found["down_proj"][part] = layer[f"w2_{part}"][expert]
    return found


def autoawq(layer: Mapping[str, Array], *, prefix: str = PREFIX) -> dict[str, Array]:
    """Per-expert names, as AutoAWQ saves a Qwen3-MoE."""
    return {
        f"{prefix}experts.{expert}.{projection}.{part}": array
        for expert in range(layer["w13_qweight"].shape[0])
        for projection, parts in halves(layer, expert).items()
        for part, array in parts.items()
    }


def renamed(layer: Mapping[str, Array], names: Mapping[str, str], *, prefix: str) -> dict[str, Array]:
    return {
        f"{prefix}experts.{expert}.{names[projection]}.{part}": array
        for expert in range(layer["w13_qweight"].shape[0])
        for projection, parts in halves(layer, expert).items()
        for part, array in parts.items()
    }


def projection_first(layer: Mapping[str, Array]) -> dict[str, Array]:
    return {
        f"{PREFIX}experts.{projection}.{expert}.{part}": array
        for expert in range(layer["w13_qweight"].shape[0])
        for projection, parts in halves(layer, expert).items()
        for part, array in parts.items()
    }


def joined(layer: Mapping[str, Array]) -> dict[str, Array]:
    """Gate and up in one tensor per expert."""
    return {
        f"{PREFIX}experts.{expert}.{name}.{part}": layer[f"{gemm}_{part}"][expert]
        for expert in range(layer["w13_qweight"].shape[0])
        for name, gemm in (("gate_up_proj", "w13"), ("down_proj", "w2"))
        for part in ("qweight", "qzeros", "scales")
    }


def stacked(layer: Mapping[str, Array], *, names: tuple[str, str], joint: str) -> dict[str, Array]:
    """All experts in one tensor per projection."""
    return {
        f"{PREFIX}experts.{name}{joint}{part}": layer[f"{gemm}_{part}"]
        for name, gemm in zip(names, ("w13", "w2"), strict=True)
        for part in ("qweight", "qzeros", "scales")
    }


def pack_linear(values: Array) -> Array:
    """Eight 4-bit values to a word, first in the lowest nibble: compressed-tensors' and GPTQ's order."""
    grouped = values.reshape(*values.shape[:-1], -1, 8).astype(np.uint32)
    words = np.zeros(grouped.shape[:-1], dtype=np.uint32)
    for nibble in range(8):
        words |= grouped[..., nibble] << np.uint32(4 * nibble)
    return words.view(np.int32)


def pack_quantized(layer: Mapping[str, Array], *, symmetric: bool, prefix: str = PREFIX) -> dict[str, Array]:
    """compressed-tensors' arrays, written by the rule: packed along K, zero points packed along N."""
    found: dict[str, Array] = {}
    for expert in range(layer["w13_qweight"].shape[0]):
        for projection, parts in halves(layer, expert).items():
            name = f"{prefix}experts.{expert}.{projection}"
            codes, zeros = (
                unpack(np.ascontiguousarray(parts["qweight"])),
                unpack(np.ascontiguousarray(parts["qzeros"])),
            )
            found[f"{name}.weight_packed"] = pack_linear(np.ascontiguousarray(codes.T))
            found[f"{name}.weight_scale"] = np.ascontiguousarray(parts["scales"].T)
            found[f"{name}.weight_shape"] = np.array([codes.shape[1], codes.shape[0]], dtype=np.int64)
            if not symmetric:
                # packed along N: word [r, g] holds columns 8r..8r+7 of group g
                along = pack_linear(np.ascontiguousarray(zeros))
                found[f"{name}.weight_zero_point"] = np.ascontiguousarray(along.T)
    return found
