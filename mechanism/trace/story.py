"""Stories as data: what was added and rounded, in order, until an element's last bits. No numpy."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Value:
    """Some bits with their width, 16 or 32, and the format they are read in."""

    bits: int
    width: int
    decimal: str

    def __str__(self) -> str:
        return f"0x{self.bits:0{self.width // 4}X}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One operation and what it gave. `section` is of the specification."""

    label: str
    value: Value
    section: str


@dataclass(frozen=True, kw_only=True, slots=True)
class SliceStory:
    """One slice of an element: its CTA, its range of K, what each warp row summed, and their sum."""

    cta: int
    k: tuple[int, int]
    warp_rows: tuple[Value, ...]
    total: Value


@dataclass(frozen=True, kw_only=True, slots=True)
class GemmStory:
    """One GEMM output element.

    Attributes:
        gemm: ``w13`` or ``w2``.
        route: Its row.
        column: Its column.
        expert: Whose weights.
        block: Padded block of the row.
        slot: Place of the row in its block.
        column_tile: Column tile.
        part: 1 if the tile is a whole-tile round's, 2 if it is in the striped part.
        slices: Ascending in k.
        adds: The adds over slices, from the highest k down.
        roundings: From the fp32 sum to the stored element.
    """

    gemm: str
    route: int
    column: int
    expert: int
    block: int
    slot: int
    column_tile: int
    part: int
    slices: tuple[SliceStory, ...]
    adds: tuple[Step, ...]
    roundings: tuple[Step, ...]

    @property
    def final(self) -> Value:
        """The stored element."""
        return self.roundings[-1].value

    @property
    def schedule_class(self) -> str:
        """``direct`` or ``split``."""
        return "direct" if len(self.slices) == 1 else "split"


@dataclass(frozen=True, kw_only=True, slots=True)
class ElementStory:
    """One element of a surface under one history: the GEMM elements it is made of, then its own steps.

    Attributes:
        history: Whose.
        gemms: One for w13 and w2, gate and up for activation, one per route of the token for output.
        steps: Operations after the GEMMs; empty where the element is a GEMM's.
        inputs_differ: For w2: how many values of its input row differ from the other history's; else 0.
    """

    history: str
    gemms: tuple[GemmStory, ...]
    steps: tuple[Step, ...]
    inputs_differ: int

    @property
    def final(self) -> Value:
        """The element's bits."""
        return self.steps[-1].value if self.steps else self.gemms[-1].final


@dataclass(frozen=True, kw_only=True, slots=True)
class Trace:
    """The whole trace of one element.

    Attributes:
        title: What is traced, in words.
        simulated: Whether the plan's engine is the simulated one.
        surface: ``w13``, ``activation``, ``w2`` or ``output``.
        row: Of the surface.
        column: Of the surface.
        left: Under the history asked for.
        right: Under the other one; None if the cell has no other.
        captured: The same element in the bundle's captures, by history; empty without a bundle or captures.
        parts: Where the bits part, in words.
    """

    title: str
    simulated: bool
    surface: str
    row: int
    column: int
    left: ElementStory
    right: ElementStory | None
    captured: tuple[tuple[str, Value], ...]
    parts: str

    @property
    def agrees(self) -> bool | None:
        """Whether every captured element has the traced bits; None if nothing was captured."""
        if not self.captured:
            return None
        traced = {story.history: story.final for story in (self.left, self.right) if story is not None}
        return all(traced[history].bits == value.bits for history, value in self.captured)
