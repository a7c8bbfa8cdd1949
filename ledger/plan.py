"""The plan: what is run, on what, in which order, and by which claims it is judged.

This is the document's shape only. Whether a plan can deliver its treatments is decided by
mechanism/plan before a run and by verifier/ after it, each with arithmetic of its own.

Order of the processes, a rule both sides implement: for every replicate in turn, the (phase, cell,
history) triples sorted by sha256("<seed>:<replicate>:<phase>.<cell>.<history>") in hexadecimal; in
replicate 1 the cells that construct their alignment come first, since the others inject what those built.
"""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, field_validator

from ledger.model import Assumptions, Count, Frozen, Name, PlacedError, Positive, Sha256, Text

#: Switches the stable construction on, in vLLM and in both engines alike.
STABLE_CONSTRUCTION = "MARLIN_STABLE_CONSTRUCTION"
SURFACES = ("w13", "activation", "w2", "output")
Surface = Literal["w13", "activation", "w2", "output"]
Gemm = Literal["w13", "w2"]
EngineName = Literal["simulated", "vllm"]
Route = Count


class Device(Frozen):
    """The device of the pinned build. `shared_memory`: bytes, the opt-in limit per block."""

    name: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]*$", max_length=48)]
    arch: Annotated[str, StringConstraints(pattern=r"^sm_[0-9]{2,3}$")]
    sms: Positive
    shared_memory: Positive


class Launch(Frozen):
    """The pinned tile of one GEMM: `tile` is (thread_k, thread_n); the grid is sms * ctas_per_sm.

    `chosen_by: kernel` must be what the kernel's own selection gives (marlin-moe 4.3); `plan` passes it
    to the operator explicitly.
    """

    tile: tuple[Positive, Positive]
    ctas_per_sm: Positive
    chosen_by: Literal["kernel", "plan"]


class Launches(Frozen):
    """One pinned launch per GEMM."""

    w13: Launch
    w2: Launch


class Build(Frozen):
    """The build a cohort is pinned to."""

    kernel: Annotated[str, StringConstraints(pattern=r"^vllm==[0-9]+\.[0-9]+\.[0-9]+$")]
    device: Device
    launch: Launches


class PinnedRoutes(Frozen):
    """Routes that must go to one expert."""

    expert: Count
    routes: Annotated[tuple[Route, ...], Field(min_length=1)]


class DealtRoutes(Frozen):
    """`count` distinct experts drawn from [first, last], among whom the other routes are dealt in turn."""

    first: Count
    last: Count
    count: Positive


class Routing(Frozen):
    """The routing recipe: pinned routes, then the rest dealt one by one over drawn experts."""

    seed: Count
    pinned: tuple[PinnedRoutes, ...]
    dealt: Annotated[tuple[DealtRoutes, ...], Field(min_length=1)]


class Fixture(Frozen):
    """The fixture recipe: one layer of packed AWQ weights, hidden states and a routing.

    `seeds_scanned` says how many seeds were tried before this one was kept; 0 means none was. `twin_pairs`
    is how many pairs of channels hold exact opposites, which makes order easy to see on a small layer; a
    plan with any says so by this number, and is no measure of how often order shows.
    """

    recipe: Literal["packed-awq/1"]
    seed: Count
    seeds_scanned: Count
    tokens: Positive
    experts: Positive
    top_k: Positive
    hidden: Positive
    intermediate: Positive
    group_size: Literal[32, 64, 128]
    dtype: Literal["float16"]
    twin_pairs: Count
    routing: Routing

    @property
    def routes(self) -> int:
        """How many (token, slot) pairs there are; also the sentinel of padding slots."""
        return self.tokens * self.top_k


class ImportedFixture(Frozen):
    """A layer imported from a checkpoint, named by its content alone.

    `weights` is the canonical tensor digest, equal whatever format and names the checkpoint had; `inputs`
    that of hidden states and routing. `private`: weights and prompt are kept out of every release.
    """

    recipe: Literal["imported-awq/1"]
    weights: Sha256
    inputs: Sha256
    private: bool
    tokens: Positive
    experts: Positive
    top_k: Positive
    hidden: Positive
    intermediate: Positive
    group_size: Literal[32, 64, 128]
    dtype: Literal["float16"]

    @property
    def routes(self) -> int:
        """How many (token, slot) pairs there are; also the sentinel of padding slots."""
        return self.tokens * self.top_k


#: A layer by recipe, or by content.
AnyFixture = Fixture | ImportedFixture


class IndexArrival(Frozen):
    """The atomics resolve in index order: every expert's slots hold its routes ascending."""

    kind: Literal["index"]


class WarpArrival(Frozen):
    """Whole warps of 32 routes in the listed order, lanes ascending inside each."""

    kind: Literal["warps"]
    warps: Annotated[tuple[Count, ...], Field(min_length=1)]


class ExplicitArrival(Frozen):
    """All routes, in the order in which their atomics are served."""

    kind: Literal["explicit"]
    routes: Annotated[tuple[Route, ...], Field(min_length=1)]


class SeededArrival(Frozen):
    """All routes sorted by sha256("<seed>:<route>")."""

    kind: Literal["seeded"]
    seed: Count


Arrival = Annotated[IndexArrival | WarpArrival | ExplicitArrival | SeededArrival, Field(discriminator="kind")]


class AllocateStep(Frozen):
    """Allocate `count` pieces of `bytes` device memory, and free those that are not kept."""

    kind: Literal["allocate"]
    bytes: Positive
    count: Positive
    keep: Literal["none", "alternate", "all"]


class AlignStep(Frozen):
    """Run the alignment operator on another shape, with drawn routings."""

    kind: Literal["align"]
    tokens: Positive
    top_k: Positive
    experts: Positive
    repeats: Positive
    seed: Count


class GemmStep(Frozen):
    """Run the layer's GEMMs on drawn routings."""

    kind: Literal["gemm"]
    repeats: Positive
    seed: Count


class PrewarmStep(Frozen):
    """Run the layer on its own routing in stable order."""

    kind: Literal["prewarm"]
    repeats: Positive


Step = Annotated[AllocateStep | AlignStep | GemmStep | PrewarmStep, Field(discriminator="kind")]


class History(Frozen):
    """What happened before construction.

    In simulation, the arrival order of the alignment's atomics. On a GPU, `steps` are done on the device, and
    `arrival` is only the order that is expected of it: what the plan's swaps are checked against.
    """

    arrival: Arrival
    steps: tuple[Step, ...] = ()


class Swap(Frozen):
    """Two routes of one expert whose slots are exchanged in the injected alignment."""

    kind: Literal["within-block", "block-boundary"]
    routes: tuple[Route, Route]


class Cell(Frozen):
    """One treatment, run under each of its histories.

    `alignment`: `constructed` by the engine under the history; or injected as bytes: the history's `own`
    native one, the `opposite` history's, or the `stable` order. `grid: null` is the pinned grid.
    `single_slice` lists the GEMMs of which the cell claims that every tile has one slice.
    """

    name: Name
    alignment: Literal["constructed", "own", "opposite", "stable"]
    histories: Annotated[tuple[Name, ...], Field(min_length=1)]
    swap: Swap | None = None
    grid: Positive | None = None
    single_slice: tuple[Gemm, ...] = ()

    @field_validator("histories")
    @classmethod
    def _once(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if twice := [place for place, name in enumerate(value) if name in value[:place]]:
            raise PlacedError(
                *(((at,), f"expected each history once, got {value[at]} again; take it out") for at in twice)
            )
        return value


class Phase(Frozen):
    """A named group of cells."""

    name: Name
    cells: Annotated[tuple[Cell, ...], Field(min_length=1)]


class Order(Frozen):
    """Replicates are interleaved over cells, from a seed, so that drift cannot pose as a treatment."""

    interleaved: Literal["cells"]
    seed: Count


class SelectedFrom(Frozen):
    """How the plan's routes were chosen: the rule, and the bundle of the earlier run if there was one."""

    rule: Text
    earlier_run: Sha256 | None


EnvironmentName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


class Plan(Frozen):
    """A whole plan. Its identity is the sha256 of the file's bytes."""

    schema_version: Literal[1]
    name: Name
    title: Text
    engine: EngineName
    ledger: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_./-]+$", max_length=200)]
    build: Build
    fixture: Annotated[AnyFixture, Field(discriminator="recipe")]
    selected_from: SelectedFrom
    assumptions: Assumptions
    histories: Annotated[dict[Name, History], Field(min_length=1)]
    surfaces: Annotated[tuple[Surface, ...], Field(min_length=1)]
    replicates: Annotated[int, Field(ge=1, le=1000)]
    order: Order
    time_limit_s: Annotated[int, Field(ge=1, le=86400)]
    environment: dict[EnvironmentName, str]
    phases: Annotated[tuple[Phase, ...], Field(min_length=1)]

    @field_validator("surfaces")
    @classmethod
    def _surfaces_in_order(cls, value: tuple[Surface, ...]) -> tuple[Surface, ...]:
        for place, name in enumerate(value):
            if name in value[:place]:
                raise PlacedError(((place,), f"expected each surface once, got {name} again; take it out"))
            if place and SURFACES.index(name) < SURFACES.index(before := value[place - 1]):
                raise PlacedError(
                    (
                        (place,),
                        f"expected some of {', '.join(SURFACES)} in this order, got {name} after {before};"
                        " put it before",
                    )
                )
        return value

    @property
    def stable_construction(self) -> bool:
        """Whether alignments are constructed in stable order: the patch's cohort, by its variable."""
        return self.environment.get(STABLE_CONSTRUCTION) == "1"

    def cells(self) -> Iterator[tuple[Phase, Cell]]:
        """Every cell with its phase, in the order of the file."""
        for phase in self.phases:
            for cell in phase.cells:
                yield phase, cell
