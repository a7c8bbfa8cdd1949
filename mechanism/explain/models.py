"""What a layer looks like to the kernel, and the published sizes of some models by name."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from mechanism.explain.errors import ExplainError


@dataclass(frozen=True, kw_only=True, slots=True)
class Quantisation:
    """How the experts' weights are stored.

    Attributes:
        method: As the checkpoint names it, e.g. ``awq``, ``gptq``, ``compressed-tensors``.
        bits: Bits of one weight.
        group: Rows of K that share a scale; -1 for one row of scales.
        zero_point: Whether zero points are stored; without, weights are symmetric (uint4b8).
        skipped: Modules that stay unquantised.
        layout: How AutoAWQ packed it, ``gemm`` or another; empty where the format has one layout only.
        reordered: Whether rows of K are sorted by importance (GPTQ's act-order).
        source: Where this was read.
    """

    method: str
    bits: int
    group: int
    zero_point: bool
    skipped: tuple[str, ...] = ()
    layout: str = ""
    reordered: bool = False
    source: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Model:
    """One MoE layer's sizes, whole (before tensor parallelism).

    Attributes:
        name: For people.
        experts: Routed experts E; shared ones do not count.
        top_k: Routes per token.
        hidden: Hidden size H.
        intermediate: Intermediate size I of one expert.
        dtype: ``float16`` or ``bfloat16``.
        quantisation: None if the weights are not quantised.
        weight_on_input: Whether the router's weight is applied before the experts.
        source: Where the sizes were read.
    """

    name: str
    experts: int
    top_k: int
    hidden: int
    intermediate: int
    dtype: str
    quantisation: Quantisation | None
    weight_on_input: bool = False
    source: str


#: Name: experts, top_k, hidden, intermediate of one expert, as in the models' published config.json.
_SIZES: Final = MappingProxyType(
    {
        "qwen3-coder-30b-a3b": (128, 8, 2048, 768),
        "qwen3-30b-a3b": (128, 8, 2048, 768),
        "qwen3-235b-a22b": (128, 8, 4096, 1536),
        "qwen3-coder-480b-a35b": (160, 8, 6144, 2560),
        "qwen3-next-80b-a3b": (512, 10, 2048, 512),
        "qwen1.5-moe-a2.7b": (60, 4, 2048, 1408),
        "qwen2-57b-a14b": (64, 8, 3584, 2560),
        "mixtral-8x7b": (8, 2, 4096, 14336),
        "mixtral-8x22b": (8, 2, 6144, 16384),
        "deepseek-v2-lite": (64, 6, 2048, 1408),
        "deepseek-v2": (160, 6, 5120, 1536),
        "deepseek-v3": (256, 8, 7168, 2048),
        "deepseek-r1": (256, 8, 7168, 2048),
        "kimi-k2": (384, 8, 7168, 2048),
        "glm-4.5-air": (128, 8, 4096, 1408),
        "olmoe-1b-7b": (64, 8, 2048, 1024),
        "phi-3.5-moe": (16, 2, 4096, 6400),
    }
)
NAMES: Final = tuple(_SIZES)
ASSUMED_GROUP: Final = 128


def awq(group: int, *, source: str) -> Quantisation:
    """Packed AWQ with zero points, as AutoAWQ writes it."""
    return Quantisation(method="awq", bits=4, group=group, zero_point=True, source=source)


def named(name: str) -> Model:
    """A model by name, taken as an AWQ checkpoint of group 128, float16.

    An organisation before a slash and anything after the known name (``-Instruct-AWQ``) are passed over.

    Raises:
        ExplainError: No such name, with the nearest ones.
    """
    wanted = name.lower().rsplit("/", 1)[-1]
    known = max((key for key in _SIZES if wanted == key or wanted.startswith(f"{key}-")), key=len, default="")
    if not known:
        near = difflib.get_close_matches(wanted, NAMES, n=3, cutoff=0.3) or NAMES[:3]
        raise ExplainError(
            f"--model: expected one of {', '.join(NAMES)}; got {name}; nearest: {', '.join(near)};"
            " for any other model give its config.json by --config"
        )
    experts, top_k, hidden, intermediate = _SIZES[known]
    return Model(
        name=known,
        experts=experts,
        top_k=top_k,
        hidden=hidden,
        intermediate=intermediate,
        dtype="float16",
        quantisation=awq(ASSUMED_GROUP, source=f"assumed: AWQ, 4 bits, zero points, group {ASSUMED_GROUP}"),
        source="published config.json",
    )


def with_group(model: Model, group: int) -> Model:
    """The same model as an AWQ checkpoint of another group size, as the caller said."""
    return replace(model, quantisation=awq(group, source=f"given: AWQ with group {group}"))
