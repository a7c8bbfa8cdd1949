"""How a checkpoint was quantised and how large its layer is: config.json, read by `quant_method`.

Never by a name of model or folder. Two formats become fixtures: AutoAWQ's `gemm` packing and
compressed-tensors' `pack-quantized` with 4 bits. Every other one is refused by its name, with the reason.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from mechanism.checkpoint.errors import SettingsError

Format = Literal["autoawq-gemm", "pack-quantized"]
Group = Literal[32, 64, 128]
CONFIG = "config.json"
#: AutoAWQ before it wrote quantization_config: same facts, other keys, and no quant_method.
OLD_AWQ = "quant_config.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """What a checkpoint's configuration says.

    Attributes:
        format: How weights are packed.
        symmetric: No zero points are stored; all are 8.
        group_size: Rows of K that share a scale.
        hidden: Model width H.
        intermediate: Width I of one expert.
        experts: Routed experts E.
        top_k: Experts per token.
        renormalise: Whether the chosen weights are divided by their sum.
        layers: Layers of the model.
    """

    format: Format
    symmetric: bool
    group_size: Group
    hidden: int
    intermediate: int
    experts: int
    top_k: int
    renormalise: bool
    layers: int


def read_settings(folder: Path) -> Settings:
    """The settings of a checkpoint. Raises SettingsError: the key, what was expected, what is there."""
    config = _json(folder / CONFIG)
    quantisation = config.get("quantization_config") or config.get("compression_config")
    if quantisation is None and (folder / OLD_AWQ).is_file():
        quantisation = {"quant_method": "awq", **_json(folder / OLD_AWQ)}
    if not isinstance(quantisation, dict):
        raise SettingsError(
            f"{folder / CONFIG}: expected quantization_config, found none: the weights are not quantised;"
            " quantise them with AutoAWQ or llm-compressor first"
        )
    form, symmetric, group = _quantisation(quantisation)
    text = _text_config(config)
    return Settings(
        format=form,
        symmetric=symmetric,
        group_size=group,
        hidden=_size(text, "hidden_size"),
        intermediate=_size(text, "moe_intermediate_size", "intermediate_size"),
        experts=_size(text, "num_experts", "num_local_experts", "n_routed_experts"),
        top_k=_size(text, "num_experts_per_tok", "num_experts_per_token"),
        renormalise=_renormalise(text),
        layers=_size(text, "num_hidden_layers"),
    )


def _quantisation(given: Mapping[str, Any]) -> tuple[Format, bool, Group]:
    method = given.get("quant_method")
    if method == "awq":
        return _autoawq(given)
    if method == "compressed-tensors":
        return _compressed(given)
    if method == "gptq":
        raise SettingsError(
            "quant_method: expected awq or compressed-tensors, got gptq: its zero points are stored minus"
            " one and"
            " its weights packed along K, with another kernel path; use an AWQ checkpoint"
        )
    raise SettingsError(f"quant_method: expected awq or compressed-tensors, got {method!r:.60}")


def _autoawq(given: Mapping[str, Any]) -> tuple[Format, bool, Group]:
    """The keys of AutoAWQ of all ages and of transformers' AwqConfig: two names for each, GEMM or gemm."""
    _expect("version", str(given.get("version", "gemm")).lower(), "gemm", "its packing is another one")
    _expect("bits", _either(given, "w_bit", "bits", default=None), 4, "kernels for 4 bits only")
    _expect("zero_point", given.get("zero_point", True), True, "AWQ without zero points is packed otherwise")
    return "autoawq-gemm", False, _group(_either(given, "q_group_size", "group_size", default=128))


def _compressed(given: Mapping[str, Any]) -> tuple[Format, bool, Group]:
    _expect("format", given.get("format"), "pack-quantized", "4-bit weights in int32 words are needed")
    groups = given.get("config_groups")
    if not isinstance(groups, dict) or len(groups) != 1:
        count = len(groups) if isinstance(groups, dict) else 0
        raise SettingsError(
            f"config_groups: expected one group of layers, got {count}: which one the experts are in is"
            f" not guessed"
        )
    (group,) = groups.values()
    weights = (group.get("weights") if isinstance(group, dict) else None) or {}
    _expect("weights.num_bits", weights.get("num_bits"), 4, "kernels for 4 bits only")
    _expect("weights.type", weights.get("type", "int"), "int", "codes are integers")
    _expect("weights.strategy", weights.get("strategy"), "group", "one scale per group of rows")
    _expect("weights.actorder", weights.get("actorder") or None, None, "order of activations is another path")
    _expect("input_activations", group.get("input_activations"), None, "activations stay float16")
    symmetric = weights.get("symmetric", True)
    if not isinstance(symmetric, bool):
        raise SettingsError(f"weights.symmetric: expected true or false, got {symmetric!r:.60}")
    return "pack-quantized", symmetric, _group(weights.get("group_size"))


def _group(size: Any) -> Group:
    sizes: tuple[Group, ...] = (32, 64, 128)
    for known in sizes:
        if size == known:
            return known
    raise SettingsError(
        f"group_size: expected 32, 64 or 128, got {size!r:.60}: no kernel takes a layer with another one;"
        " quantise again"
    )


def _expect(key: str, got: Any, wanted: Any, why: str) -> None:
    if got != wanted:
        raise SettingsError(f"{key}: expected {wanted}, got {got!r:.60}: {why}")


def _either(given: Mapping[str, Any], first: str, second: str, *, default: Any) -> Any:
    """The value under one of two keys; both must agree if both are there."""
    if first in given and second in given and given[first] != given[second]:
        raise SettingsError(
            f"{first} and {second}: expected one value, got {given[first]} and {given[second]}"
        )
    return given.get(first, given.get(second, default))


def _text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """A multimodal model keeps its language model's sizes one level down."""
    for key in ("text_config", "llm_config", "language_config"):
        if isinstance(config.get(key), dict):
            return {**config, **config[key]}
    return config


def _size(config: Mapping[str, Any], *keys: str) -> int:
    for key in keys:
        if key in config:
            value = config[key]
            if type(value) is not int or value < 1:
                raise SettingsError(f"{CONFIG}: {key}: expected an integer of 1 or more, got {value!r:.60}")
            return value
    raise SettingsError(f"{CONFIG}: expected {' or '.join(keys)}, found none: is this a mixture of experts?")


def _renormalise(config: Mapping[str, Any]) -> bool:
    """Whether chosen weights are divided by their sum. Mixtral has no key for it and always does."""
    for key in ("scoring_func", "topk_method"):
        value = config.get(key)
        if value not in (None, "softmax", "greedy"):
            raise SettingsError(
                f"{CONFIG}: {key}: expected softmax routing over all experts, got {value!r:.60}; give"
                f" topk_ids and"
                " topk_weights in the hidden file"
            )
    if "norm_topk_prob" in config:
        return bool(config["norm_topk_prob"])
    return "num_local_experts" in config


def _json(path: Path) -> Mapping[str, Any]:
    try:
        value = json.loads(path.read_bytes())
    except OSError as fault:
        raise SettingsError(
            f"{path}: cannot be read: {fault.strerror}; --checkpoint must name a checkpoint's folder"
        ) from fault
    except ValueError as fault:
        raise SettingsError(f"{path}: expected JSON, got: {fault}; download it again") from fault
    if not isinstance(value, dict):
        raise SettingsError(f"{path}: expected a JSON object, got {type(value).__name__}")
    return value
