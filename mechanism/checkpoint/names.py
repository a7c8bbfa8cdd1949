"""Which tensor of a checkpoint is what: the names of one MoE layer, as they occur in the wild.

A name is a prefix, `layers.<N>`, a block, and a rest. Experts come one by one
(`experts.3.gate_proj.qweight`), by projection (`experts.gate_proj.3.qweight`) or stacked
(`experts.gate_up_proj.qweight`, `experts.w13_qweight`); gate and up apart or joined. What is in the layer's
block and is none of these is an error that lists it.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from mechanism.checkpoint.errors import NamesError

Projection = Literal["gate", "up", "gate_up", "down"]
#: The expert of a tensor that holds all of them.
STACKED = -1

_PROJECTIONS: Mapping[str, Projection] = MappingProxyType(
    {
        "gate_proj": "gate",
        "w1": "gate",
        "up_proj": "up",
        "w3": "up",
        "gate_up_proj": "gate_up",
        "w13": "gate_up",
        "down_proj": "down",
        "w2": "down",
    }
)
_PARTS = (
    "qweight|qzeros|scales|g_idx|weight_packed|weight_scale|weight_zero_point|weight_shape|weight_g_idx"
    "|weight|bias"
)
_NAMES = "|".join(sorted(_PROJECTIONS, key=len, reverse=True))
_LAYER = re.compile(r"^(?P<prefix>.*?)layers\.(?P<layer>\d+)\.(?P<block>[A-Za-z_]+)\.(?P<rest>.+)$")
_EXPERTS = (
    re.compile(rf"^experts\.(?P<expert>\d+)\.(?P<projection>{_NAMES})\.(?P<part>{_PARTS})$"),
    re.compile(rf"^experts\.(?P<projection>{_NAMES})\.(?P<expert>\d+)\.(?P<part>{_PARTS})$"),
    re.compile(rf"^experts\.(?P<projection>{_NAMES})[._](?P<part>{_PARTS})$"),
)
_GATE = re.compile(r"^(?:gate|router)\.weight$")
#: Of the block, but not of the routed experts' path: told, not used.
_BESIDE = re.compile(
    r"^(?:shared_experts?\.|shared_mlp\.|shared_expert_gate\.|gate\.e_score_correction_bias$)"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """One array of one projection; `expert` is STACKED for all of them."""

    expert: int
    projection: Projection
    part: str


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerNames:
    """The tensors of one layer by what they are.

    Attributes:
        prefix: What stands before `layers.`.
        block: The layer's MoE block, e.g. `mlp`.
        parts: Tensor name of every part of every expert.
        gate: Name of the router's weight; None if there is none.
        beside: Names in the block that the routed experts do not use, e.g. those of a shared expert.
    """

    prefix: str
    block: str
    parts: Mapping[Part, str]
    gate: str | None
    beside: tuple[str, ...]


def layer_names(names: Iterable[str], layer: int) -> LayerNames:
    """Recognise one layer.

    Raises NamesError if no block of the layer has experts, if two have, if a name in the block is not
    recognised, or if two names mean the same part; every such name is listed.
    """
    by_block: dict[tuple[str, str], list[str]] = {}
    for name in names:
        found = _LAYER.match(name)
        if found and int(found["layer"]) == layer:
            by_block.setdefault((found["prefix"], found["block"]), []).append(name)
    places = [place for place, held in by_block.items() if any(".experts." in name for name in held)]
    if not places:
        raise NamesError(
            f"layer {layer}: expected tensors of experts, found none; "
            + _neighbours(by_block)
            + "choose another layer: some models have dense layers among them"
        )
    if len(places) > 1:
        shown = ", ".join(f"{prefix}layers.{layer}.{block}" for prefix, block in sorted(places))
        raise NamesError(f"layer {layer}: expected experts under one prefix, got {len(places)}: {shown}")
    prefix, block = places[0]
    return _recognise(prefix, block, layer, sorted(by_block[prefix, block]))


def _recognise(prefix: str, block: str, layer: int, names: list[str]) -> LayerNames:
    parts: dict[Part, str] = {}
    gates: list[str] = []
    beside: list[str] = []
    unknown: list[str] = []
    for name in names:
        rest = name.removeprefix(f"{prefix}layers.{layer}.{block}.")
        part = _part(rest)
        if part is not None:
            if part in parts:
                raise NamesError(f"expected one tensor for {_say(part)}, got {parts[part]} and {name}")
            parts[part] = name
        elif _GATE.match(rest):
            gates.append(name)
        elif _BESIDE.match(rest):
            beside.append(name)
        else:
            unknown.append(name)
    if unknown:
        raise NamesError(f"{len(unknown)} tensors of layer {layer} not recognised: {', '.join(unknown)}")
    if len(gates) > 1:
        raise NamesError(f"expected one router weight, got {', '.join(gates)}")
    return LayerNames(
        prefix=prefix,
        block=block,
        parts=MappingProxyType(parts),
        gate=gates[0] if gates else None,
        beside=tuple(beside),
    )


def _part(rest: str) -> Part | None:
    for pattern in _EXPERTS:
        if found := pattern.match(rest):
            groups = found.groupdict()
            expert = groups.get("expert")
            return Part(
                expert=STACKED if expert is None else int(expert),
                projection=_PROJECTIONS[groups["projection"]],
                part=groups["part"],
            )
    return None


def require_complete(found: LayerNames, *, experts: int, parts: tuple[str, ...]) -> tuple[Projection, ...]:
    """The projections that the layer stores, gate and up apart or joined, each whole.

    Args:
        found: The recognised names.
        experts: Experts that the configuration promises.
        parts: Arrays that every projection of the format must have; it may have no others.

    Raises NamesError listing every part that is missing and every part that the format does not have.
    """
    stored = {part.projection for part in found.parts}
    joined = "gate_up" in stored
    if joined and stored & {"gate", "up"}:
        raise NamesError("expected gate and up joined in one tensor or apart in two, got both kinds")
    projections: tuple[Projection, ...] = ("gate_up", "down") if joined else ("gate", "up", "down")
    stacked = any(part.expert == STACKED for part in found.parts)
    numbers = (STACKED,) if stacked else tuple(range(experts))
    wanted = {
        Part(expert=number, projection=projection, part=part)
        for number in numbers
        for projection in projections
        for part in parts
    }
    missing = sorted(map(_say, wanted - found.parts.keys()))
    surplus = sorted(name for part, name in found.parts.items() if part not in wanted)
    faults = []
    if missing:
        faults.append(f"{len(missing)} missing: {_some(missing)}")
    if surplus:
        faults.append(f"{len(surplus)} that this format does not have: {_some(surplus)}")
    if faults:
        raise NamesError(
            f"expected {len(wanted)} tensors, {', '.join(parts)} for {len(projections)} projections of"
            f" {'all experts together' if stacked else f'{experts} experts'}; {'; '.join(faults)}"
        )
    return projections


def _say(part: Part) -> str:
    where = "all experts" if part.expert == STACKED else f"expert {part.expert}"
    return f"{part.part} of {part.projection} of {where}"


def _some(names: list[str]) -> str:
    return ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")


def _neighbours(by_block: Mapping[tuple[str, str], list[str]]) -> str:
    blocks = sorted({f"{prefix}…{block}" for prefix, block in by_block})
    return f"the layer has {', '.join(blocks)}; " if blocks else "the checkpoint has no such layer; "
