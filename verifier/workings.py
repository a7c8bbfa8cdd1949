"""What the verifier works out by itself from plan and routing: cells, alignments, launches, treatments."""

from collections.abc import Callable, Hashable, Mapping
from functools import cached_property
from typing import Any, TypeVar, cast

from ledger.canonical import canonical, sha256
from ledger.plan import Cell, Gemm, Plan
from ledger.record import AlignmentFile, RoutingFile
from verifier.arithmetic import alignment, geometry
from verifier.arithmetic.arrival import arrival_order, rests_on_lane_order
from verifier.arithmetic.cells import Processes, donor, expand
from verifier.arithmetic.schedule import Launch
from verifier.found import ArmKey

T = TypeVar("T")


def alignment_digest(value: AlignmentFile) -> str:
    """The digest that names an alignment's file."""
    return sha256(canonical(value.model_dump(mode="json")))


class PlanWorkings:
    """What follows from the plan alone. Only for a plan without `rules.plan_faults`."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.block = geometry.block_size(plan.fixture.tokens, plan.fixture.top_k, plan.fixture.experts)
        self.shapes = geometry.shapes(plan.fixture)
        self.cell: Mapping[str, Cell] = {cell.name: cell for _, cell in plan.cells()}
        self.phase: Mapping[str, str] = {cell.name: phase.name for phase, cell in plan.cells()}

    @cached_property
    def cells(self) -> Processes:
        """Every process, in order and by its slot."""
        return expand(self.plan)

    @cached_property
    def donors(self) -> Mapping[ArmKey, str | None]:
        """Whose native alignment every arm injects."""
        return {
            (cell.name, history): donor(cell, history)
            for cell in self.cell.values()
            for history in cell.histories
        }

    def launch(self, gemm: Gemm, *, grid: int, padded_blocks: int) -> Launch:
        """One GEMM on the pinned tile and the given grid."""
        shape = self.shapes[0 if gemm == "w13" else 1]
        tile_k, tile_n = getattr(self.plan.build.launch, gemm).tile
        return Launch(
            n=shape.n,
            k=shape.k,
            group=shape.group,
            tile_k=tile_k,
            tile_n=tile_n,
            grid=grid,
            padded_blocks=padded_blocks,
        )

    def constructor(self, history: str) -> tuple[str, str] | None:
        """The (phase, cell) whose alignments are the native ones of a history: the first that builds them."""
        for phase, cell in self.plan.cells():
            if cell.alignment == "constructed" and history in cell.histories:
                return phase.name, cell.name
        return None


class Workings(PlanWorkings):
    """What follows from plan and routing together. `routing` must be one of the plan's fixture."""

    def __init__(self, plan: Plan, routing: RoutingFile) -> None:
        super().__init__(plan)
        self.ids: tuple[int, ...] = tuple(expert for row in routing.topk_ids for expert in row)
        self._kept: dict[Hashable, Any] = {}

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """`make()`, or what it gave for the same key before: these values outlive one bundle's mutation."""
        if key not in self._kept:
            self._kept[key] = make()
        return cast("T", self._kept[key])

    def native(self, history: str) -> AlignmentFile:
        """What a simulated kernel constructs under one history."""
        return self.once(("native", history), lambda: self._native(history))

    def lane_order(self, history: str) -> bool:
        """Whether a history rests on assumption U5."""
        return self.once(("lane order", history), lambda: self._lane_order(history))

    @cached_property
    def stable(self) -> AlignmentFile:
        """Every expert's routes ascending."""
        return alignment.stable(self.ids, block=self.block)

    @property
    def padded_blocks(self) -> int:
        """How many blocks any legal alignment has: the counts of routes decide it, no order does."""
        return len(self.stable.expert_ids)

    def _native(self, history: str) -> AlignmentFile:
        if self.plan.stable_construction:
            return self.stable
        return alignment.construct(
            self.ids,
            experts=self.plan.fixture.experts,
            block=self.block,
            arrival=arrival_order(self.plan.histories[history].arrival, len(self.ids)),
        )

    def _lane_order(self, history: str) -> bool:
        if self.plan.stable_construction:
            return False
        if alignment.is_small_batch(len(self.ids), self.plan.fixture.experts):
            return False
        order = arrival_order(self.plan.histories[history].arrival, len(self.ids))
        return rests_on_lane_order(order, self.ids)

    def treated(self, cell: Cell, donor: AlignmentFile | None) -> AlignmentFile | None:
        """What a cell is to inject, given its donor's native alignment; None if that is not known."""
        base = self.stable if cell.alignment == "stable" else donor
        if base is None or cell.swap is None:
            return base
        return alignment.exchange(base, *cell.swap.routes)
