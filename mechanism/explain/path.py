"""Which kernel a layer takes, and what stands in the way (marlin-moe 1.4, 3, 9.2, 9.3)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from mechanism.explain.models import Model, Quantisation
from mechanism.kernel import versions
from mechanism.kernel.shapes import GROUPS, layer_faults

Kind = Literal["marlin", "other-type", "not-marlin"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Obstacle:
    """One rule that the layer breaks, with both numbers and the way out, and the section it is from."""

    says: str
    section: str


@dataclass(frozen=True, kw_only=True, slots=True)
class PathTaken:
    """Where the layer's experts are computed.

    Attributes:
        kind: ``marlin``: the kernel explained here; ``other-type``: the same for another weight type, whose
            register counts are not known; ``not-marlin``: another kernel.
        says: In words.
        obstacles: Why not, if not.
        intermediate: I per rank as the kernel sees it, after any padding at load.
        group: Group size of the scales.
        notes: What else is known of the path, each with its section.
    """

    kind: Kind
    says: str
    obstacles: tuple[Obstacle, ...]
    intermediate: int
    group: int
    notes: tuple[Obstacle, ...]


def path_taken(model: Model, *, tp: int, kernel: str, arch: str) -> PathTaken:
    """The path of one layer on `tp` ranks."""
    quantisation = model.quantisation
    group = quantisation.group if quantisation else -1
    whole, left = divmod(model.intermediate, tp)
    intermediate, notes = _padded(whole, group, kernel) if not left else (whole, ())
    obstacles = [*_format(quantisation), *_tensor_parallel(model, tp), *_device(arch)]
    if quantisation and not left and _covered(quantisation):
        obstacles += _shapes(model, intermediate, group)
    if model.weight_on_input:
        obstacles.append(
            Obstacle(
                says="the router's weight is applied on the input: such layers are not routed to this kernel;"
                " nothing to set",
                section="3",
            )
        )
    if obstacles:
        says = (
            "This layer does not take the packed-AWQ Marlin path: it runs on another kernel, or is refused."
        )
        return PathTaken(
            kind="not-marlin",
            says=says,
            obstacles=tuple(obstacles),
            intermediate=intermediate,
            group=group,
            notes=notes,
        )
    other = quantisation is not None and (quantisation.method != "awq" or not quantisation.zero_point)
    says = (
        "The weights are 4-bit without AWQ zero points (uint4b8): the same Marlin MoE kernel in another"
        " instance. Alignment and schedule rules hold; its register counts are not known."
        if other
        else "This layer takes the packed-AWQ Marlin MoE path."
    )
    return PathTaken(
        kind="other-type" if other else "marlin",
        says=says,
        obstacles=(),
        intermediate=intermediate,
        group=group,
        notes=(*notes, *_environment(kernel)),
    )


def _format(quantisation: Quantisation | None) -> Iterator[Obstacle]:
    if quantisation is None:
        yield Obstacle(
            says="the checkpoint names no quantisation: unquantised experts run on another kernel; if"
            " you mean"
            " an AWQ version of it, give --group-size 128",
            section="1.1",
        )
        return
    if not _known(quantisation):
        yield Obstacle(
            says=f"the experts' weights are {quantisation.method} ({quantisation.source}): they run"
            " on the kernel that the build chooses for that format and device, whose arithmetic and cuts"
            " over K are not covered here; expected AWQ, or symmetric 4-bit GPTQ or compressed-tensors",
            section="1.1",
        )
        return
    if quantisation.bits != 4:
        yield Obstacle(
            says=f"expected 4-bit weights, got {quantisation.bits} bits ({quantisation.source});"
            " only uint4 is covered: requantise to 4 bits",
            section="1.1",
        )
    if quantisation.layout not in ("", "gemm"):
        yield Obstacle(
            says=f"expected AutoAWQ's layout gemm, got version {quantisation.layout} ({quantisation.source}):"
            " its words are packed otherwise than this kernel's loader reads them; quantise with version"
            " gemm",
            section="1.1",
        )
    if quantisation.reordered:
        yield Obstacle(
            says=f"expected rows of K in their own order, got desc_act ({quantisation.source}): the kernel"
            " then gathers rows by g_idx, which the specification leaves out; quantise with desc_act false",
            section="3",
        )
    if quantisation.method != "awq" and quantisation.zero_point:
        yield Obstacle(
            says=f"expected AutoAWQ's layout for weights with zero points, got {quantisation.method}"
            f" ({quantisation.source}); convert it to AWQ, or quantise symmetrically",
            section="1.1",
        )
    skipped = [name for name in quantisation.skipped if _skips_experts(name)]
    if skipped:
        yield Obstacle(
            says=f"the checkpoint leaves experts unquantised ({', '.join(skipped[:3])});"
            " those layers run on another kernel",
            section="1.1",
        )


def _known(quantisation: Quantisation) -> bool:
    """Whether the format is one that the kernel's packed 4-bit weights come from."""
    known = ("awq", "gptq", "gptq_marlin", "auto-round")
    return quantisation.method in known or quantisation.method.startswith("compressed-tensors")


def _covered(quantisation: Quantisation) -> bool:
    """Whether rules about groups of 4-bit weights say anything about it."""
    return _known(quantisation) and quantisation.bits == 4


def _skips_experts(name: str) -> bool:
    """Whether a module left unquantised is, or holds, experts: names match as parts of a path."""
    part = name.strip(".*")
    holders = ("model.layers.0.mlp.experts", "model.layers.0.block_sparse_moe.experts")
    holds = len(part) > 2 and "." not in part and any(part in path.split(".") for path in holders)
    return holds or ("experts" in name and "shared" not in name)


def _tensor_parallel(model: Model, tp: int) -> Iterator[Obstacle]:
    if model.intermediate % tp:
        legal = _legal_sizes(model)
        way_out = f"use --tp {' or '.join(map(str, legal))}" if legal else "no size up to 16 fits this layer"
        yield Obstacle(
            says=f"intermediate % tp must be 0: {model.intermediate} leaves {model.intermediate % tp}"
            f" over {tp}; {way_out}",
            section="1.2",
        )


def _legal_sizes(model: Model) -> list[int]:
    """Tensor parallel sizes up to 16 at which the layer takes the path."""
    group = model.quantisation.group if model.quantisation else -1
    return [
        size
        for size in range(1, 17)
        if model.intermediate % size == 0
        and not layer_faults(hidden=model.hidden, intermediate=model.intermediate // size, group=group)
    ]


def _device(arch: str) -> Iterator[Obstacle]:
    capability = int(arch.removeprefix("sm_"))
    if capability < 75:
        yield Obstacle(
            says=f"expected compute capability 7.5 or more, got {arch}; the operator raises",
            section="9.3 (21)",
        )
    elif capability < 80:
        yield Obstacle(
            says=f"expected sm_80 or newer, got {arch}: it has another pipeline and fp16 accumulators,"
            " which the specification leaves out",
            section="scope",
        )


def _shapes(model: Model, intermediate: int, group: int) -> Iterator[Obstacle]:
    for message in layer_faults(hidden=model.hidden, intermediate=intermediate, group=group):
        yield Obstacle(says=message, section="1.4" if group == -1 and "group" in message else "3")
    if intermediate == model.intermediate or group not in GROUPS[1:]:
        return
    legal = _legal_sizes(model)
    if layer_faults(hidden=model.hidden, intermediate=intermediate, group=group) and legal:
        sizes = ", ".join(map(str, legal))
        yield Obstacle(
            says=f"tensor parallel sizes that keep the rule for {model.intermediate}: {sizes}", section="3"
        )


def _padded(intermediate: int, group: int, kernel: str) -> tuple[int, tuple[Obstacle, ...]]:
    """0.29.0 may pad I with zeros at load (A.2); the earlier builds never do (9.2)."""
    if not versions.version(kernel).single_accumulator or group not in GROUPS[1:]:
        return intermediate, ()
    unit = math.lcm(64, group)
    padded = -(-intermediate // unit) * unit
    if padded == intermediate:
        return intermediate, ()
    return padded, (
        Obstacle(
            says=f"this build may pad the intermediate size from {intermediate} to {padded} with zeros"
            " at load;"
            " the answer is for the padded size. Padding is not neutral: it adds tiles and moves the"
            " boundary",
            section="A.2",
        ),
    )


def _environment(kernel: str) -> tuple[Obstacle, ...]:
    notes = [
        Obstacle(
            says="VLLM_MARLIN_INPUT_DTYPE set means 8-bit activations and other arithmetic;"
            " VLLM_BATCH_INVARIANT keeps Marlin from being chosen",
            section="3",
        )
    ]
    if versions.version(kernel).single_accumulator:
        notes.append(
            Obstacle(
                says="register counts decide tile and grid and belong to a build's own wheel; those of"
                " 0.22.0 are"
                " used here",
                section="A.2, 4.4",
            )
        )
        notes.append(
            Obstacle(
                says="other MoE backends exist in this build; Marlin is assumed to be first in line for"
                " AWQ with"
                " zero points (U9): look for the log line that names the backend",
                section="A.2",
            )
        )
    return tuple(notes)
