"""The striped schedule of one launch: which CTA computes which k-tiles of every tile (marlin-moe 5)."""

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from ledger.canonical import sha256

#: (CTA, first k-tile, end k-tile), half open.
Slice = tuple[int, int, int]
Slices = tuple[Slice, ...]
ScheduleClassName = Literal["direct", "split", "mixed"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Launch:
    """One launch of the GEMM kernel. `group` is -1 for one scale row; `grid` in CTAs."""

    n: int
    k: int
    group: int
    tile_k: int
    tile_n: int
    grid: int
    padded_blocks: int

    @property
    def n_tiles(self) -> int:
        """Column tiles."""
        return self.n // self.tile_n

    @property
    def k_tiles(self) -> int:
        """Steps of the reduction."""
        return self.k // self.tile_k


@lru_cache(maxsize=256)
def slices(launch: Launch) -> tuple[Slices, ...]:
    """The slices of every tile `block * n_tiles + column`, ascending in k (marlin-moe 5.2, 5.3)."""
    tiles = launch.padded_blocks * launch.n_tiles
    rounds, part2 = _parts(tiles, launch.grid)
    step = _step(launch, part2)
    whole = tuple(((tile % launch.grid, 0, launch.k_tiles),) for tile in range(rounds * launch.grid))
    return whole + tuple(_striped(place, launch.k_tiles, step) for place in range(part2))


@lru_cache(maxsize=256)
def slices_digest(launch: Launch) -> str:
    """The digest of all slices, in the form of ledger/record.py.

    Lists of small integers have one JSON text without spaces, so that is the canonical one.
    """
    columns = launch.n_tiles
    listed = [[tile // columns, tile % columns, parts] for tile, parts in enumerate(slices(launch))]
    return sha256(json.dumps(listed, separators=(",", ":")).encode())


def block_slices(launch: Launch, block: int) -> tuple[Slices, ...]:
    """The slices of one padded block, column tile by column tile."""
    return slices(launch)[block * launch.n_tiles : (block + 1) * launch.n_tiles]


def block_ranges(launch: Launch, block: int) -> tuple[tuple[tuple[int, int], ...], ...]:
    """The same as ranges of k-tiles alone: whichever CTA owns a range does not change a bit."""
    return tuple(tuple((begin, end) for _, begin, end in parts) for parts in block_slices(launch, block))


def block_class(launch: Launch, block: int) -> ScheduleClassName:
    """Direct if every column tile has one slice, split if none has, else mixed."""
    single = {len(parts) == 1 for parts in block_slices(launch, block)}
    if single == {True}:
        return "direct"
    return "split" if single == {False} else "mixed"


def split_tiles(launch: Launch) -> int:
    """How many tiles have more than one slice."""
    return sum(len(parts) > 1 for parts in slices(launch))


def _parts(tiles: int, grid: int) -> tuple[int, int]:
    """Whole-tile rounds, and how many tiles are left for the stripes (marlin-moe 5.2)."""
    if tiles <= grid:
        return 0, tiles
    rest = tiles % grid
    part2 = rest if 3 * rest > grid else rest + grid
    return (tiles - part2) // grid, part2


def _step(launch: Launch, part2: int) -> int:
    """k-tiles per CTA in the stripes, in whole groups where a group spans k-tiles (marlin-moe 5.2)."""
    step = -(-launch.k_tiles * part2 // launch.grid)
    if launch.group >= launch.tile_k:
        unit = launch.group // launch.tile_k
        step = unit * -(-step // unit)
    return step


def _striped(place: int, k_tiles: int, step: int) -> Slices:
    low, high = place * k_tiles, (place + 1) * k_tiles
    return tuple(
        (cta, max(low, cta * step) - low, min(high, (cta + 1) * step) - low)
        for cta in range(low // step, (high - 1) // step + 1)
    )
