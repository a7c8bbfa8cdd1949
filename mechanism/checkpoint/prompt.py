"""Hidden states of a layer from a prompt: transformers runs the layers before it (extra `hf`).

The model is built from config.json without its quantisation, cut after the layer, in float32 on a CPU, and
filled with dequantised weights by the readers of this room; the input of the layer's MoE block is caught,
rounded once to float16, and nothing after it runs. What the layer would get on a GPU differs in last places:
this makes inputs, and claims nothing about them.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mechanism.checkpoint import autoawq, compressed
from mechanism.checkpoint.errors import InputsError
from mechanism.checkpoint.inputs import F16
from mechanism.checkpoint.settings import Settings, read_settings
from mechanism.checkpoint.shards import Stored, tensors_of
from mechanism.fixture.packing import unpack
from mechanism.fixture.quantise import Quantised, dequantise

_QUANTISED = {"qweight", "weight_packed"}


def hidden_from_prompt(folder: Path, layer: int, prompt: str) -> F16:
    """The input of layer `layer`'s MoE block for a prompt, float16 [tokens, H].

    Raises InputsError without transformers and torch, for an empty prompt, and for a model whose modules are
    not named as its tensors are.
    """
    try:
        import torch  # noqa: PLC0415 - the extra `hf`, and only here
        import transformers  # noqa: PLC0415
    except ImportError as fault:
        raise InputsError(
            f"--prompt-file: expected transformers and torch, got {fault}; install the extra `hf` (in the"
            " project's folder: pip install -e '.[hf]'), or give hidden states by --hidden"
        ) from fault
    settings, stored = read_settings(folder), tensors_of(folder)
    model = _cut_model(torch, transformers, folder, layer)
    weights = {name: torch.from_numpy(array.copy()) for name, array in dense(stored, settings)}
    wanted = model.state_dict()
    missing = sorted(wanted.keys() - weights.keys() - {"lm_head.weight"})
    if missing:
        raise InputsError(
            f"{folder}: {len(missing)} weights of the layers before are missing: {', '.join(missing[:8])};"
            f" this"
            f" transformers ({transformers.__version__}) names them otherwise: use 4.51 to 4.56"
        )
    model.load_state_dict({name: weights[name] for name in wanted if name in weights}, strict=False)
    tokens = transformers.AutoTokenizer.from_pretrained(str(folder))(prompt, return_tensors="pt")["input_ids"]
    if not tokens.shape[1]:
        raise InputsError("--prompt-file: expected a prompt of one token or more, got none")
    return _caught(torch, model, layer, tokens)


def dense(stored: Mapping[str, Stored], settings: Settings) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    """Every weight of a checkpoint under its plain name, float32; quantised ones dequantised, [N, K]."""
    for name, tensor in stored.items():
        stem, _, part = name.rpartition(".")
        if part in _QUANTISED:
            yield f"{stem}.weight", _dequantised(stem, stored, settings)
        elif tensor.dtype == "bfloat16":
            yield name, (tensor.read().astype(np.uint32) << np.uint32(16)).view(np.float32)
        elif tensor.dtype in ("float16", "float32") and part not in ("scales", "weight_scale"):
            yield name, tensor.read().astype(np.float32)


def _dequantised(stem: str, stored: Mapping[str, Stored], settings: Settings) -> np.ndarray[Any, Any]:
    if settings.format == "autoawq-gemm":
        names: tuple[str, ...] = autoawq.PARTS
        read = autoawq.read_projection
        k, words = stored[f"{stem}.qweight"].shape
        n = 8 * words
    else:
        names = compressed.SYMMETRIC if settings.symmetric else compressed.ASYMMETRIC
        read = compressed.read_projection
        n, words = stored[f"{stem}.weight_packed"].shape
        k = 8 * words
    parts = {name: stored[f"{stem}.{name}"] for name in names}
    made = read(parts, k=k, n=n, group=settings.group_size, experts=0)
    quantised = Quantised(codes=unpack(made.qweight), zeros=unpack(made.qzeros), scales=made.scales)
    return dequantise(quantised, group=settings.group_size).astype(np.float32).T


def _cut_model(torch: Any, transformers: Any, folder: Path, layer: int) -> Any:
    """The model up to and with layer `layer`, unquantised, on a CPU; weights are not set."""
    config = transformers.AutoConfig.from_pretrained(str(folder))
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    text = getattr(config, "text_config", config)
    text.num_hidden_layers = layer + 1
    with torch.no_grad():
        return transformers.AutoModelForCausalLM.from_config(config, torch_dtype=torch.float32).eval()


class _Caught(Exception):  # noqa: N818 - not an error: the way out of a forward pass
    """Carries the input of the block."""


def _caught(torch: Any, model: Any, layer: int, tokens: Any) -> F16:
    def catch(_module: Any, given: tuple[Any, ...]) -> None:
        raise _Caught(given[0])

    layers = model.get_submodule("model.layers")
    handle = layers[layer].mlp.register_forward_pre_hook(catch)
    try:
        with torch.no_grad():
            model(input_ids=tokens)
    except _Caught as caught:
        hidden = caught.args[0]
    else:
        raise InputsError(f"layer {layer}: expected a block named mlp that is run, got none")
    finally:
        handle.remove()
    made: F16 = hidden.reshape(-1, hidden.shape[-1]).to(torch.float16).numpy()
    return made
