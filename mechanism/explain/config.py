"""Reading a Hugging Face config.json: any MoE layer that has the needed fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mechanism.explain import bounds
from mechanism.explain.errors import ExplainError
from mechanism.explain.models import Model, Quantisation

# the names under which families keep the same number, first found first taken
_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts", "num_moe_experts")
_TOP_K = (
    "num_experts_per_tok",
    "num_experts_per_token",
    "moe_topk",
    "moe_k",
    "experts_per_token",
    "top_k_experts",
)
_HIDDEN = ("hidden_size", "d_model")
_INTERMEDIATE = ("moe_intermediate_size", "expert_intermediate_size", "intermediate_size", "ffn_hidden_size")
_NESTED = ("text_config", "llm_config", "language_config")
#: Families with dense layers beside MoE ones: their ``intermediate_size`` is never an expert's.
_OWN_INTERMEDIATE = (
    "qwen2_moe",
    "qwen3",
    "deepseek",
    "glm4_moe",
    "kimi",
    "bailing_moe",
    "ernie4_5_moe",
    "dots",
)
_ACTIVATIONS = ("silu", "swish", "swiglu")


def read_config(config: Mapping[str, Any], *, name: str, awq_file: Mapping[str, Any] | None = None) -> Model:
    """The MoE layer that a config.json describes.

    Args:
        config: The parsed file; sizes may lie in a nested ``text_config``.
        name: What messages and the answer call it.
        awq_file: The parsed ``quant_config.json`` of older AWQ checkpoints, used if config.json has nothing.

    Raises:
        ExplainError: The model is dense, a field is missing, no positive integer or larger than the layer's
            kernels or any layer has it, or the layer is not gated by SiLU.
    """
    inner = next(
        (
            config[key]
            for key in _NESTED
            if isinstance(config.get(key), Mapping) and _first(config[key], _EXPERTS)
        ),
        config,
    )
    where = name
    _require_experts(inner, where)
    _require_silu(inner, where)
    quantisation = config.get("quantization_config") or inner.get("quantization_config") or awq_file
    dtype = str(inner.get("torch_dtype") or inner.get("dtype") or config.get("torch_dtype") or "float16")
    architectures = _names(config.get("architectures")) or _names(inner.get("architectures"))
    family = architectures[0] if architectures else config.get("model_type", "?")
    return Model(
        name=f"{where} ({family})",
        experts=_size(inner, _EXPERTS, "number of routed experts", where, most=bounds.EXPERTS),
        top_k=_size(inner, _TOP_K, "experts per token", where, most=bounds.EXPERTS),
        hidden=_size(inner, _HIDDEN, "hidden size", where),
        intermediate=_size(inner, _intermediate_keys(inner), "intermediate size of an expert", where),
        dtype=dtype.removeprefix("torch.") if dtype.endswith("float16") else "float16",
        quantisation=read_quantisation(quantisation, where=where) if quantisation else None,
        weight_on_input=bool(
            inner.get("apply_router_weight_on_input", "llama4" in str(inner.get("model_type")))
        ),
        source=where,
    )


def read_quantisation(given: Mapping[str, Any], *, where: str) -> Quantisation:
    """A quantization_config of AWQ, GPTQ or compressed-tensors form; others keep their name.

    Raises:
        ExplainError: A field has no usable value.
    """
    where = f"{where}: quantization_config"
    if not isinstance(given, Mapping):
        raise ExplainError(
            f"{where}: expected an object with quant_method, got {given!r}; correct it, or give --group-size"
        )
    method = str(
        given.get("quant_method") or ("awq" if "w_bit" in given or "zero_point" in given else "unknown")
    )
    if method in ("compressed-tensors", "compressed_tensors"):
        return _compressed(given, where)
    symmetric = bool(given.get("sym", method in ("gptq", "gptq_marlin", "auto-round")))
    return Quantisation(
        method="awq" if method == "awq_marlin" else method,
        bits=_whole(given, ("bits", "w_bit"), 16, where),
        group=_whole(given, ("group_size", "q_group_size"), -1, where),
        zero_point=bool(given.get("zero_point", not symmetric)),
        skipped=_names(given.get("modules_to_not_convert")),
        source=where,
        layout=str(given.get("version", "gemm")).lower() if method in ("awq", "awq_marlin") else "",
        reordered=bool(given.get("desc_act")),
    )


def _compressed(given: Mapping[str, Any], where: str) -> Quantisation:
    """compressed-tensors: the weights of the first group; symmetric unless it says otherwise."""
    groups = _object(given, "config_groups", where)
    weights: Mapping[str, Any] = next(
        (
            _object(group, "weights", f"{where}.config_groups.{name}")
            for name, group in groups.items()
            if isinstance(group, Mapping)
        ),
        {},
    )
    strategy = weights.get("strategy", "group")
    group = _whole(weights, ("group_size",), -1, f"{where}.config_groups") if strategy == "group" else -1
    method = f"compressed-tensors {given.get('format', '')}".strip()
    kind = weights.get("type", "int")
    if kind != "int":  # four bits of a float are no uint4
        method = f"{kind} ({method})"
    elif any(isinstance(one, Mapping) and one.get("input_activations") for one in groups.values()):
        method = f"{kind} with quantised activations ({method})"
    return Quantisation(
        method=method,
        bits=_whole(weights, ("num_bits",), 16, f"{where}.config_groups"),
        group=group,
        zero_point=weights.get("symmetric") is False,
        skipped=_names(given.get("ignore")),
        source=where,
    )


def _require_experts(inner: Mapping[str, Any], where: str) -> None:
    """A dense model has layers, and no number of experts in any key that anybody uses."""
    if _first(inner, _EXPERTS) is None and "num_hidden_layers" in inner and _first(inner, _TOP_K) is None:
        kind = inner.get("model_type", "a model without model_type")
        raise ExplainError(
            f"{where}: expected a mixture-of-experts model, got a dense one ({kind}): none of the keys"
            f" {', '.join(_EXPERTS)}; only MoE layers align routes to padded blocks, so route"
            " alignment cannot change its bits"
        )


def _intermediate_keys(inner: Mapping[str, Any]) -> Sequence[str]:
    own = str(inner.get("model_type", "")).startswith(_OWN_INTERMEDIATE)
    return _INTERMEDIATE[:2] if own else _INTERMEDIATE


def _require_silu(inner: Mapping[str, Any], where: str) -> None:
    activation = str(inner.get("hidden_act") or inner.get("hidden_activation") or "silu")
    if activation not in _ACTIVATIONS:
        raise ExplainError(
            f"{where}: hidden_act: expected silu, which is what the specification covers (marlin-moe 8.1),"
            f" got {activation}; this tool has no answer for it"
        )


def _first(given: Mapping[str, Any], keys: Sequence[str]) -> str | None:
    return next((key for key in keys if given.get(key) is not None), None)


def _size(
    given: Mapping[str, Any], keys: Sequence[str], what: str, where: str, *, most: int = bounds.SIZE
) -> int:
    key = _first(given, keys)
    if key is None:
        raise ExplainError(
            f"{where}: {what}: expected one of the keys {', '.join(keys)}, found none; is this a MoE model?"
            " use --model for a known one"
        )
    value = given[key]
    if isinstance(value, list) and len(set(map(str, value))) == 1:  # one number per layer, all alike
        value = value[0]
    if type(value) is not int or value < 1:
        raise ExplainError(f"{where}: {key}: expected a positive integer, got {value!r}")
    why = "no layer is larger; check the file"
    if most == bounds.EXPERTS:
        why = "the alignment kernel takes no more (marlin-moe 2.3)"
    bounds.require(f"{where}: {key}", value, most, why=why)
    return value


def _whole(given: Mapping[str, Any], keys: Sequence[str], missing: int, where: str) -> int:
    key = _first(given, keys)
    value = missing if key is None else given[key]
    if type(value) is not int:
        raise ExplainError(f"{where}: {key}: expected an integer, got {value!r}")
    return value


def _object(given: Mapping[str, Any], key: str, where: str) -> Mapping[str, Any]:
    value = given.get(key) or {}
    if not isinstance(value, Mapping):
        raise ExplainError(f"{where}: {key}: expected an object, got {value!r}")
    return value


def _names(given: Any) -> tuple[str, ...]:
    return tuple(str(item) for item in given) if isinstance(given, list) else ()
