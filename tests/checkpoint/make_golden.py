"""Makes `golden/`: a tiny Qwen3-MoE, quantised and saved by AutoAWQ itself and packed by compressed-tensors itself.

Run by hand in an environment of its own (extra `awq`, on a CPU, with compressed-tensors and `datasets<5`):
`python tests/checkpoint/make_golden.py FOLDER`. The tests read what it left, and need none of these packages.
"""

import hashlib
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3MoeConfig, Qwen3MoeForCausalLM

WORDS = ["<unk>", *(f"w{number}" for number in range(63))]
QUANTISATION = {
    "zero_point": True,
    "q_group_size": 32,
    "w_bit": 4,
    "version": "GEMM",
    "modules_to_not_convert": ["mlp.gate"],
}


def plain(folder: Path) -> None:
    """The unquantised model with a tokenizer of 64 words."""
    torch.manual_seed(7)
    config = Qwen3MoeConfig(
        vocab_size=64,
        hidden_size=128,
        intermediate_size=128,
        moe_intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        num_experts=4,
        num_experts_per_tok=2,
        decoder_sparse_step=1,
        norm_topk_prob=True,
        max_position_embeddings=64,
    )
    model = Qwen3MoeForCausalLM(config).half()
    model.save_pretrained(folder)
    tokenizer = Tokenizer(
        models.WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token="<unk>")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>").save_pretrained(folder)


def autoawq(source: Path, folder: Path) -> None:
    """AutoAWQ's whole way: calibrate, scale, clip, quantise, pack, save."""
    from awq import AutoAWQForCausalLM  # noqa: PLC0415
    from transformers import AutoTokenizer  # noqa: PLC0415

    model = AutoAWQForCausalLM.from_pretrained(str(source), device_map="cpu", safetensors=True)
    tokenizer = AutoTokenizer.from_pretrained(str(source))
    draw = np.random.default_rng(3)
    texts = [" ".join(WORDS[word] for word in draw.integers(1, 64, 32)) for _ in range(8)]
    model.quantize(
        tokenizer,
        quant_config=QUANTISATION,
        calib_data=texts,
        max_calib_samples=8,
        max_calib_seq_len=32,
        apply_clip=False,
    )
    model.save_quantized(str(folder), safetensors=True)
    tokenizer.save_pretrained(folder)


def packed(source: Path, folder: Path, *, symmetric: bool) -> None:
    """The AutoAWQ model's codes, packed by compressed-tensors' own function under its own names."""
    from compressed_tensors.compressors.quantized_compressors.pack_quantized import pack_to_int32  # noqa: PLC0415

    tensors = load_file(str(source / "model.safetensors"))
    found: dict[str, torch.Tensor] = {}
    for name, tensor in tensors.items():
        stem, _, part = name.rpartition(".")
        if part not in ("qweight", "qzeros", "scales"):
            found[name] = tensor.contiguous()
        if part != "qweight":
            continue
        codes, zeros = _columns(tensor, tensors[f"{stem}.qzeros"])
        found[f"{stem}.weight_packed"] = pack_to_int32((codes.T - 8).to(torch.int8).contiguous(), 4)
        found[f"{stem}.weight_scale"] = tensors[f"{stem}.scales"].T.contiguous()
        found[f"{stem}.weight_shape"] = torch.tensor([codes.shape[1], codes.shape[0]])
        if not symmetric:
            signed = (zeros.T - 8).to(torch.int8).contiguous()
            found[f"{stem}.weight_zero_point"] = pack_to_int32(signed, 4, packed_dim=0).contiguous()
    folder.mkdir()
    save_file(found, str(folder / "model.safetensors"), metadata={"format": "pt"})
    config = json.loads((source / "config.json").read_text())
    weights: dict[str, Any] = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32}
    group = {"targets": ["Linear"], "weights": {**weights, "symmetric": symmetric}, "input_activations": None}
    config["quantization_config"] = {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "config_groups": {"group_0": group},
    }
    (folder / "config.json").write_text(json.dumps(config, indent=1))


def _columns(qweight: torch.Tensor, qzeros: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes [K, N] and zero points [K/group, N] by AutoAWQ's own unpacking."""
    from awq.utils.packing_utils import reverse_awq_order, unpack_awq  # noqa: PLC0415

    codes, zeros = reverse_awq_order(*unpack_awq(qweight, qzeros, 4), 4)
    return torch.bitwise_and(codes, 15).to(torch.int32), torch.bitwise_and(zeros, 15).to(torch.int32)


def values(source: Path) -> str:
    """sha256 of the dequantised experts of layer 1 by AutoAWQ's own rule, in the order of `values_digest`."""
    from awq.utils.packing_utils import dequantize_gemm  # noqa: PLC0415

    tensors = load_file(str(source / "model.safetensors"))

    def dense(expert: int, projection: str) -> torch.Tensor:
        stem = f"model.layers.1.mlp.experts.{expert}.{projection}"
        return dequantize_gemm(
            *(tensors[f"{stem}.{part}"] for part in ("qweight", "qzeros", "scales")), 4, 32
        )

    made = hashlib.sha256()
    for expert in range(4):
        both = torch.cat([dense(expert, "gate_proj"), dense(expert, "up_proj")], dim=1)
        made.update(both.contiguous().numpy().tobytes())
    for expert in range(4):
        made.update(dense(expert, "down_proj").contiguous().numpy().tobytes())
    return made.hexdigest()


def main() -> None:
    """Write every format below the folder given."""
    root = Path(sys.argv[1])
    root.mkdir(parents=True)
    plain(root / "plain")
    autoawq(root / "plain", root / "autoawq")
    packed(root / "autoawq", root / "pack-quantized", symmetric=False)
    packed(root / "autoawq", root / "pack-quantized-symmetric", symmetric=True)
    (root / "values.sha256").write_text(values(root / "autoawq") + "\n")
    shutil.rmtree(root / "plain")


if __name__ == "__main__":
    main()
