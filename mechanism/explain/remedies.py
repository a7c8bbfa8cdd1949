"""What removes the dependence on alignment, and which of it changes bits against today (2.4, 5.4, 5.6)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mechanism.explain.gemms import GemmAnswer, schedule_of
from mechanism.kernel import configuration
from mechanism.kernel.alignment import BLOCK_SIZES
from mechanism.kernel.devices import Device
from mechanism.kernel.errors import KernelError


@dataclass(frozen=True, kw_only=True, slots=True)
class Remedy:
    """One way out.

    Attributes:
        name: Short name.
        does: What it does.
        grids: CTAs per GEMM, where it is a matter of the grid.
        launchable: Whether the unpatched operator can be asked for it; None if it is no launch.
        changes_bits: ``no``, ``some`` or ``all``: against a run today.
        why: The reason for that.
        section: Of the specification.
    """

    name: str
    does: str
    grids: tuple[tuple[str, int], ...]
    launchable: bool | None
    changes_bits: str
    why: str
    section: str


def remedies(
    gemms: tuple[GemmAnswer, ...], device: Device, *, counts: Sequence[int], block_size_m: int, kernel: str
) -> tuple[Remedy, ...]:
    """The ways out of an exposed batch, the mildest first."""
    return (
        Remedy(
            name="stable order",
            does="hand out slots in ascending route order instead of by atomics",
            grids=(),
            launchable=None,
            changes_bits="some",
            why="its memberships are those of atomics that happen to resolve in index order: bits of"
            " such a run"
            " stay, those of every other order change in the moved routes. One order, whatever the batch",
            section="2.4",
        ),
        *_grids(gemms, device, block_size_m, kernel),
        *_one_block(counts, block_size_m),
        Remedy(
            name="another kernel",
            does="VLLM_BATCH_INVARIANT=1 keeps Marlin from being chosen",
            grids=(),
            launchable=None,
            changes_bits="all",
            why="other arithmetic everywhere; what it promises is not examined here",
            section="3",
        ),
    )


def single_slice_grid(gemm: GemmAnswer, kernel: str) -> int | None:
    """The grid nearest to the launched one at which every tile of this batch has one slice; None if none is.

    Only grids up to the number of tiles are tried: more CTAs than tiles idle.
    """
    if gemm.launch is None or gemm.split is None:
        return None
    pinned, tiles = gemm.launch.grid, gemm.split.schedule.tiles
    near = (grid for step in range(max(pinned, tiles)) for grid in (pinned - step, pinned + step))
    return next((grid for grid in near if 1 <= grid <= tiles and _single(gemm, grid, kernel)), None)


def _single(gemm: GemmAnswer, grid: int, kernel: str) -> bool:
    if gemm.launch is None or gemm.split is None:
        return False
    blocks = gemm.split.schedule.padded_blocks
    return schedule_of(gemm.shape, gemm.launch, blocks, kernel, grid).single_slice


def _grids(gemms: tuple[GemmAnswer, ...], device: Device, block_size_m: int, kernel: str) -> Iterator[Remedy]:
    if any(gemm.split is None for gemm in gemms):
        return
    split = ", ".join(
        f"{gemm.split.split_tiles} of {gemm.split.schedule.tiles} {gemm.shape.name.upper()} tiles"
        for gemm in gemms
        if gemm.split and gemm.split.split_tiles
    )
    changed = (
        f"split today: {split}; their elements change their order of additions, direct tiles keep theirs"
    )
    blocks = next(gemm.split.schedule.padded_blocks for gemm in gemms if gemm.split)
    for name, launchable in (("forced grid", True), ("forced grid, patched launch", False)):
        found = [
            (
                gemm.shape.name,
                _asked_for(gemm, device, block_size_m, kernel)
                if launchable
                else single_slice_grid(gemm, kernel),
            )
            for gemm in gemms
        ]
        grids = tuple((gemm, grid) for gemm, grid in found if grid is not None)
        if len(grids) == len(gemms):
            yield Remedy(
                name=name,
                does=f"a grid that cuts no tile of {blocks} padded blocks; another number of blocks"
                " needs another",
                grids=grids,
                launchable=launchable,
                changes_bits="some",
                why=changed,
                section="5.6",
            )
            break
    yield Remedy(
        name="full K",
        does="one CTA per tile, whatever the batch: a grid of padded blocks x column tiles, which the"
        " host has"
        " to learn first, or a kernel without slices",
        grids=tuple((gemm.shape.name, gemm.split.schedule.tiles) for gemm in gemms if gemm.split),
        launchable=False,
        changes_bits="some",
        why=changed,
        section="5.4",
    )


def _asked_for(gemm: GemmAnswer, device: Device, block_size_m: int, kernel: str) -> int | None:
    """A single-slice grid that the unpatched operator takes as CTAs per SM of the same tile (4.3, end)."""
    if gemm.launch is None:
        return None
    for ctas in range(1, (4 if block_size_m <= 16 else 2) + 1):
        try:
            configuration.explicit(
                device,
                n=gemm.shape.n,
                k=gemm.shape.k,
                group=gemm.shape.group,
                block_size_m=block_size_m,
                tile_k=gemm.launch.tile_k,
                tile_n=gemm.launch.tile_n,
                ctas_per_sm=ctas,
                kernel=kernel,
            )
        except KernelError:
            continue
        if _single(gemm, device.sms * ctas, kernel):
            return device.sms * ctas
    return None


def _one_block(counts: Sequence[int], block_size_m: int) -> Iterator[Remedy]:
    most = max(counts, default=0)
    fitting = next((size for size in BLOCK_SIZES if size >= most and size > block_size_m), None)
    if fitting is not None:
        yield Remedy(
            name="one block per expert",
            does=f"block_size_m {fitting} instead of {block_size_m}: no expert of this batch (at most {most}"
            " routes) fills a second block; batches with fuller experts need more",
            grids=(),
            launchable=True,
            changes_bits="some",
            why="the number of padded blocks changes, and with it which tiles are split; the tile may"
            " change too",
            section="2.2, 2.4",
        )
