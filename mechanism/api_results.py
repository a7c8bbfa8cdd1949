"""What the notebook functions give back: frozen values over read-only arrays, with a readable repr."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mechanism.kernel import alignment as aligning
from mechanism.kernel.schedule import Schedule

Array = npt.NDArray[Any]
SURFACES = ("w13", "activation", "w2", "output")


@dataclass(frozen=True, kw_only=True, slots=True, eq=False, repr=False)
class Aligned:
    """An alignment: which route sits in which slot of which padded block.

    Attributes:
        sorted_token_ids: int32 (padded blocks * block_size_m,): route ids; padding slots hold `routes`.
        expert_ids: int32 (padded blocks,).
        block_size_m: Slots per padded block.
        routes: tokens * top_k.
        variant: ``small-batch`` (one order) or ``large`` (order decided by atomics).
        kernel_alignment: The same as the kernel rooms take it.
    """

    sorted_token_ids: npt.NDArray[np.int32]
    expert_ids: npt.NDArray[np.int32]
    block_size_m: int
    routes: int
    variant: str
    kernel_alignment: aligning.Alignment

    @property
    def padded_blocks(self) -> int:
        """Active padded blocks."""
        return len(self.expert_ids)

    def __repr__(self) -> str:
        experts, blocks = np.unique(self.expert_ids, return_counts=True)
        crowded = ", ".join(map(str, experts[blocks > 1][:6].tolist()))
        more = " ..." if (blocks > 1).sum() > 6 else ""
        told = f"; more than one block: expert {crowded}{more}" if crowded else ""
        return (
            f"Aligned({self.routes} routes in {self.padded_blocks} padded blocks of"
            f" {self.block_size_m}{told})"
        )


@dataclass(frozen=True, kw_only=True, slots=True, eq=False, repr=False)
class Scheduled:
    """The schedule of one GEMM launch.

    Attributes:
        slices: int32 (padded blocks, column tiles): slices of every tile; 1 is direct.
        tile: (tile_k, tile_n).
        grid: CTAs.
        kernel_schedule: The same as the kernel rooms take it; `.slices(block, column)` names every CTA.
    """

    slices: npt.NDArray[np.int32]
    tile: tuple[int, int]
    grid: int
    kernel_schedule: Schedule

    @property
    def first_split_block(self) -> int | None:
        """The first padded block with a split tile; None if nothing is split."""
        split = np.flatnonzero((self.slices > 1).any(axis=1))
        return int(split[0]) if len(split) else None

    def __repr__(self) -> str:
        split = int((self.slices > 1).sum())
        first = (
            "" if self.first_split_block is None else f", the first in padded block {self.first_split_block}"
        )
        return (
            f"Scheduled(tile {self.tile[0]} x {self.tile[1]} on {self.grid} CTAs:"
            f" {self.slices.size - split} direct tiles, {split} split{first})"
        )


@dataclass(frozen=True, kw_only=True, slots=True, eq=False, repr=False)
class Simulated:
    """One forward pass of a layer.

    Attributes:
        w13: float16 (routes, 2 I).
        activation: float16 (routes, I).
        w2: float16 (routes, H), after the routing weight.
        output: float16 (tokens, H).
        aligned: The alignment that was used.
        schedules: Of w13 and w2.
        assumptions: Ids of the specification's assumptions that the bits rest on.
        scale_defect: Whether columns have each other's scales, as the build gives them in this shape: a known
            defect (marlin-moe 1.4), reproduced.
    """

    w13: Array
    activation: Array
    w2: Array
    output: Array
    aligned: Aligned
    schedules: tuple[Scheduled, Scheduled]
    assumptions: tuple[str, ...]
    scale_defect: bool

    def __repr__(self) -> str:
        shapes = ", ".join(f"{name} {getattr(self, name).shape}" for name in SURFACES)
        defect = (
            "; columns have each other's scales, a known defect of the build" if self.scale_defect else ""
        )
        return f"Simulated({shapes}; rests on {', '.join(self.assumptions)}{defect})"


@dataclass(frozen=True, kw_only=True, slots=True, eq=False, repr=False)
class AlignmentDifference:
    """How two alignments differ.

    Attributes:
        moved: int64 (n,): routes that sit in another padded block, ascending.
        slots: Slots whose content differs.
        experts: Padded blocks whose expert differs.
        padded: How many more slots the second one has, padding included.
        blocks: Padded blocks whose expert or set of routes differs.
        same_routes: Both hold the same routes, each as often.
    """

    moved: npt.NDArray[np.int64]
    slots: int
    experts: int
    padded: int
    blocks: int
    same_routes: bool

    def __bool__(self) -> bool:
        """True if anything differs."""
        return bool(self.slots or self.experts or self.padded)

    def __repr__(self) -> str:
        if not self:
            return "AlignmentDifference(none)"
        moved = ", ".join(map(str, self.moved[:12].tolist())) or "none"
        more = " ..." if len(self.moved) > 12 else ""
        return (
            f"AlignmentDifference({self.slots} slots, membership of {self.blocks} padded blocks"
            f"{f', experts of {self.experts}' if self.experts else ''}"
            f"{f', {self.padded:+} padded slots' if self.padded else ''};"
            f" moved routes: {moved}{more}{'' if self.same_routes else '; other routes'})"
        )


@dataclass(frozen=True, kw_only=True, slots=True, eq=False, repr=False)
class BitDifference:
    """How two arrays differ in their bits: -0.0 is not 0.0, and NaN payloads count.

    Attributes:
        indices: int64 (n, dimensions): places that differ, in C order.
        left: Their bit patterns in the first array.
        right: And in the second.
        elements: Elements of each array.
    """

    indices: npt.NDArray[np.int64]
    left: Array
    right: Array
    elements: int

    def __bool__(self) -> bool:
        """True if anything differs."""
        return len(self.indices) > 0

    def __repr__(self) -> str:
        if not self:
            return f"BitDifference(none of {self.elements} elements)"
        digits = 2 * self.left.dtype.itemsize
        at = tuple(self.indices[0].tolist())
        pair = f"0x{int(self.left[0]):0{digits}X} against 0x{int(self.right[0]):0{digits}X}"
        return f"BitDifference({len(self.indices)} of {self.elements} elements, the first at {at}: {pair})"


@dataclass(frozen=True, kw_only=True, slots=True, eq=False, repr=False)
class RunDifference:
    """How two simulated passes differ, surface by surface."""

    w13: BitDifference
    activation: BitDifference
    w2: BitDifference
    output: BitDifference

    def __repr__(self) -> str:
        told = ", ".join(f"{name} {len(getattr(self, name).indices)}" for name in SURFACES)
        return f"RunDifference(differing elements: {told})"
