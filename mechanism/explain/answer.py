"""From a question to its answer: the one place where the parts of `explain` meet. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from mechanism.explain.bounds import require_routes_bounded
from mechanism.explain.defects import Known, known
from mechanism.explain.errors import ExplainError
from mechanism.explain.expected import Expected, expected
from mechanism.explain.exposure import CrowdedExpert, crowded, padded_blocks
from mechanism.explain.gemms import GemmAnswer, answer, schedule_of, shapes
from mechanism.explain.models import Model
from mechanism.explain.path import PathTaken, path_taken
from mechanism.explain.remedies import Remedy, remedies
from mechanism.explain.routing import Drawn, Given, Routing, TopkIds, counts, draw, require_routes
from mechanism.kernel import alignment, versions
from mechanism.kernel.configuration import Launch
from mechanism.kernel.devices import Device, rests_on_driver_counts
from mechanism.kernel.schedule import Schedule

Verdict = Literal["yes", "no", "unknown", "not-this-kernel"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """What is asked.

    Attributes:
        model: The layer.
        device: The GPU.
        kernel: The build, as in ``mechanism.kernel.versions``.
        dtype: ``float16`` or ``bfloat16``.
        tp: Tensor parallel ranks, which share the intermediate size.
        tokens: Tokens of the call.
        routing: Routes, or where to draw them from.
        launches: Tile and CTAs per SM by GEMM name, where the caller gives them instead of the host code.
    """

    model: Model
    device: Device
    kernel: str
    dtype: str
    tp: int
    tokens: int
    routing: Routing
    launches: Mapping[str, Launch] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Layer:
    """What the kernel does with this batch; only there if the layer takes the kernel.

    Attributes:
        intermediate: I per rank.
        block_size_m: Slots per padded block.
        variant: ``small-batch`` (no atomics, one order) or ``large`` (atomics decide).
        topk_ids: The batch: given, or drawn.
        counts: Routes of every expert.
        padded_blocks: Active padded blocks.
        gemms: W13 and W2.
        crowded: Experts with more routes than a block holds.
        expected: Shares under the distribution; None where routes were given.
        defects: Known defects and traps that the shape meets.
        remedies: Ways out; empty where there is nothing to get out of.
        assumptions: Ids of the assumptions that the answer rests on.
    """

    intermediate: int
    block_size_m: int
    variant: str
    topk_ids: TopkIds
    counts: tuple[int, ...]
    padded_blocks: int
    gemms: tuple[GemmAnswer, ...]
    crowded: tuple[CrowdedExpert, ...]
    expected: Expected | None
    defects: tuple[Known, ...]
    remedies: tuple[Remedy, ...]
    assumptions: tuple[str, ...]

    @property
    def exposed(self) -> tuple[CrowdedExpert, ...]:
        """Experts whose routes can land in blocks that are cut differently, by atomics."""
        return () if self.variant == "small-batch" else tuple(item for item in self.crowded if item.exposed)

    @property
    def exposed_routes(self) -> int:
        """How many routes those experts have."""
        return sum(item.count for item in self.exposed)

    @property
    def launches_known(self) -> bool:
        """Whether tile and grid of both GEMMs are known."""
        return all(gemm.launch is not None for gemm in self.gemms)


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """The answer; `layer` is None where the layer does not take the kernel."""

    question: Question
    path: PathTaken
    layer: Layer | None

    @property
    def verdict(self) -> Verdict:
        """Whether alignment can change bits in this batch."""
        if self.layer is None:
            return "not-this-kernel"
        if self.layer.exposed:
            return "yes"
        atomics = self.layer.variant == "large"
        return "unknown" if atomics and self.layer.crowded and not self.layer.launches_known else "no"


def explain(question: Question) -> Answer:
    """Can route alignment change bits here, and where?

    Raises:
        ExplainError: The question contradicts itself.
        KernelError: A build that is not known, or a shape that the operator refuses.
    """
    model, routing = question.model, question.routing
    versions.version(question.kernel)
    if question.tokens < 1 or question.tp < 1:
        raise ExplainError(
            f"--tokens, --tp: expected 1 or more each, got {question.tokens} and {question.tp}"
        )
    if model.top_k > model.experts:
        raise ExplainError(
            f"{model.source}: expected at most {model.experts} experts per token, got {model.top_k}"
        )
    require_routes_bounded(
        question.tokens,
        model.top_k,
        where=routing.source if isinstance(routing, Given) else "--tokens",
    )
    if isinstance(routing, Given):
        require_routes(routing, experts=model.experts, top_k=model.top_k)
        if len(routing.topk_ids) != question.tokens:
            raise ExplainError(
                f"--tokens: expected {len(routing.topk_ids)}, the rows of {routing.source}, got"
                f" {question.tokens}"
            )
    path = path_taken(model, tp=question.tp, kernel=question.kernel, arch=question.device.arch)
    layer = None if path.kind == "not-marlin" else _layer(question, path)
    return Answer(question=question, path=path, layer=layer)


def _layer(question: Question, path: PathTaken) -> Layer:
    model, device = question.model, question.device
    ids = _batch(question)
    held = counts(ids, model.experts)
    block = alignment.block_size_m(question.tokens, model.top_k, model.experts)
    variant = alignment.variant(question.tokens * model.top_k, model.experts)
    blocks = padded_blocks(held, block)
    gemms = tuple(
        answer(
            shape,
            device,
            block_size_m=block,
            routes=question.tokens * model.top_k,
            padded_blocks=blocks,
            dtype=question.dtype,
            kernel=question.kernel,
            pinned=question.launches,
            counts_known=path.kind == "marlin",
        )
        for shape in shapes(hidden=model.hidden, intermediate=path.intermediate, group=path.group)
    )
    found = crowded(held, block, _schedules(gemms, blocks, question.kernel), _routes(ids))
    exposed = variant == "large" and (any(item.exposed for item in found) or not all(g.launch for g in gemms))
    return Layer(
        intermediate=path.intermediate,
        block_size_m=block,
        variant=variant,
        topk_ids=ids,
        counts=held,
        padded_blocks=blocks,
        gemms=gemms,
        crowded=found,
        expected=_expected(question, gemms, block) if variant == "large" else None,
        defects=known(
            gemms,
            group=path.group,
            intermediate=path.intermediate,
            dtype=question.dtype,
            kernel=question.kernel,
            arch=device.arch,
        ),
        remedies=remedies(gemms, device, counts=held, block_size_m=block, kernel=question.kernel)
        if exposed and found
        else (),
        assumptions=_assumptions(question, gemms),
    )


def _batch(question: Question) -> TopkIds:
    if isinstance(question.routing, Given):
        return question.routing.topk_ids
    model = question.model
    # with the index, so that the first batch averaged over is found drawn
    return draw(question.routing, tokens=question.tokens, experts=model.experts, top_k=model.top_k, index=0)


def _expected(question: Question, gemms: tuple[GemmAnswer, ...], block: int) -> Expected | None:
    if not isinstance(question.routing, Drawn):
        return None
    return expected(
        question.routing,
        tokens=question.tokens,
        experts=question.model.experts,
        top_k=question.model.top_k,
        block_size_m=block,
        schedules=lambda blocks: _schedules(gemms, blocks, question.kernel),
    )


def _schedules(gemms: tuple[GemmAnswer, ...], blocks: int, kernel: str) -> dict[str, Schedule]:
    """Schedules of the known launches; the launch does not depend on the number of padded blocks (4.3)."""
    return {
        gemm.shape.name: schedule_of(gemm.shape, gemm.launch, blocks, kernel) for gemm in gemms if gemm.launch
    }


def _routes(ids: TopkIds) -> dict[int, tuple[int, ...]]:
    held: dict[int, list[int]] = {}
    for token, row in enumerate(ids):
        for slot, expert in enumerate(row):
            held.setdefault(expert, []).append(token * len(row) + slot)
    return {expert: tuple(routes) for expert, routes in held.items()}


def _assumptions(question: Question, gemms: tuple[GemmAnswer, ...]) -> tuple[str, ...]:
    by_kernel = any(gemm.chosen_by == "kernel" for gemm in gemms)
    relied = {
        "U1": by_kernel and rests_on_driver_counts(question.device.arch),
        "U3": True,
        "U5": True,
        "U9": question.kernel == "vllm==0.29.0",
    }
    return tuple(name for name, holds in relied.items() if holds)
