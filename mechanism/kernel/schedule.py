"""The striped schedule: which CTA computes which k-tiles of which tile (marlin-moe 5).

A tile is one (padded block, column tile) pair. Whole-tile rounds (part 1) give a tile to one CTA; the
rest (part 2) is laid end to end on a line of k-tiles and cut into equal runs. Pure Python, no numpy.
"""

from __future__ import annotations

from collections.abc import Iterator

from mechanism.kernel import versions
from mechanism.kernel.errors import ScheduleError
from mechanism.values import frozen


@frozen
class Slice:
    """The k-tiles ``[begin, end)`` of one tile that one CTA sums."""

    cta: int
    begin: int
    end: int


@frozen
class Tile:
    """One (padded block, column tile) pair and its slices in ascending k."""

    block: int
    column_tile: int
    slices: tuple[Slice, ...]

    @property
    def schedule_class(self) -> str:
        """``direct`` for one slice, ``split`` for more."""
        return "direct" if len(self.slices) == 1 else "split"


@frozen
class Schedule:
    """The work of one launch, as a function of its geometry alone.

    Attributes:
        n: Output columns.
        k: Reduction length.
        tile_k: K extent of a tile.
        tile_n: N extent of a tile.
        grid: CTAs launched.
        padded_blocks: Active padded blocks of the alignment.
        group: Rows of K that share a scale, or -1 for channelwise.
        kernel: Build, as in ``versions``.

    Raises:
        ScheduleError: A size below 1 (padded_blocks: below 0), or a tile that does not divide.
    """

    n: int
    k: int
    tile_k: int
    tile_n: int
    grid: int
    padded_blocks: int
    group: int
    kernel: str = versions.DEFAULT

    def __post_init__(self) -> None:
        if min(self.n, self.k, self.tile_k, self.tile_n, self.grid) < 1 or self.padded_blocks < 0:
            raise ScheduleError(
                f"expected sizes of 1 or more, got N={self.n}, K={self.k}, tile {self.tile_k}x{self.tile_n},"
                f" grid {self.grid}, {self.padded_blocks} padded blocks"
            )
        for name, size, tile in (("K", self.k, self.tile_k), ("N", self.n, self.tile_n)):
            if size % tile:
                raise ScheduleError(f"a tile must divide {name}: {size} leaves {size % tile} over {tile}")
        versions.version(self.kernel)

    @property
    def n_tiles(self) -> int:
        """Column tiles."""
        return self.n // self.tile_n

    @property
    def k_tiles(self) -> int:
        """k-tiles of one tile."""
        return self.k // self.tile_k

    @property
    def tiles(self) -> int:
        """All (padded block, column tile) pairs."""
        return self.padded_blocks * self.n_tiles

    @property
    def part2(self) -> int:
        """Tiles of the striped part (marlin-moe 5.2); all of them in vllm 0.11.0."""
        if self.tiles <= self.grid or versions.version(self.kernel).stream_k:
            return self.tiles
        rest = self.tiles % self.grid
        return rest if 3 * rest > self.grid else rest + self.grid

    @property
    def rounds(self) -> int:
        """Whole-tile rounds: part 1 holds ``rounds * grid`` tiles."""
        return (self.tiles - self.part2) // self.grid

    @property
    def group_tiles(self) -> int:
        """k-tiles that a slice boundary is rounded to, so that it is a group boundary (5.2)."""
        return self.group // self.tile_k if self.group >= self.tile_k else 1

    @property
    def iters(self) -> int:
        """k-tiles that each CTA owns in part 2; 0 if part 2 is empty."""
        unit = self.group_tiles
        whole = -(-self.k_tiles * self.part2 // self.grid)
        return unit * -(-whole // unit)

    def part(self, block: int, column_tile: int) -> int:
        """1 if the tile is a whole-tile round's, 2 if it is in the striped part.

        Raises:
            ScheduleError: No such tile.
        """
        return 1 if self._index(block, column_tile) < self.rounds * self.grid else 2

    def slices(self, block: int, column_tile: int) -> tuple[Slice, ...]:
        """The tile's slices in ascending k; together they cover ``[0, k_tiles)`` (marlin-moe 5.3).

        Raises:
            ScheduleError: No such tile.
        """
        index = self._index(block, column_tile)
        direct = self.rounds * self.grid
        if index < direct:
            return (Slice(cta=index % self.grid, begin=0, end=self.k_tiles),)
        return _stripes(index - direct, self.k_tiles, self.iters)

    def schedule_class(self, block: int, column_tile: int) -> str:
        """``direct`` if one CTA sums the whole tile, else ``split``. Raises as ``slices``."""
        return "direct" if len(self.slices(block, column_tile)) == 1 else "split"

    def lock(self, block: int, column_tile: int) -> int | None:
        """Index of the lock and scratch slot that orders a split tile's slices; None if direct (5.3, end).

        Raises:
            ScheduleError: No such tile, or a build whose lock numbering is not known.
        """
        if versions.version(self.kernel).stream_k:
            raise ScheduleError(f"the lock numbering of {self.kernel} is not known")
        slices = self.slices(block, column_tile)
        if len(slices) == 1:
            return None
        if self.part2 < self.grid:
            return self._index(block, column_tile) - self.rounds * self.grid
        return slices[-1].cta  # at most two CTAs share a tile then; the upper-k one names the slot

    def __iter__(self) -> Iterator[Tile]:
        """All tiles, column tile fastest."""
        direct, iters, k_tiles, n_tiles = self.rounds * self.grid, self.iters, self.k_tiles, self.n_tiles
        for index in range(self.tiles):
            slices = (
                (Slice(cta=index % self.grid, begin=0, end=k_tiles),)
                if index < direct
                else _stripes(index - direct, k_tiles, iters)
            )
            yield Tile(block=index // n_tiles, column_tile=index % n_tiles, slices=slices)

    @property
    def single_slice(self) -> bool:
        """Whether every tile has one slice, by the closed rule of marlin-moe 5.6."""
        rest = self.tiles if self.tiles < self.grid else self.tiles % self.grid
        # rest > grid * (1 - unit / k_tiles), in integers
        return rest == 0 or rest * self.k_tiles > self.grid * (self.k_tiles - self.group_tiles)

    def _index(self, block: int, column_tile: int) -> int:
        if not (0 <= block < self.padded_blocks and 0 <= column_tile < self.n_tiles):
            raise ScheduleError(
                f"tile ({block}, {column_tile}): expected block 0..{self.padded_blocks - 1}"
                f" and column tile 0..{self.n_tiles - 1}"
            )
        return block * self.n_tiles + column_tile


def _stripes(tile: int, k_tiles: int, iters: int) -> tuple[Slice, ...]:
    """Slices of the part-2 tile that occupies ``[tile * k_tiles, (tile + 1) * k_tiles)`` of the line."""
    low, high = tile * k_tiles, (tile + 1) * k_tiles
    return tuple(
        Slice(cta=cta, begin=max(low, cta * iters) - low, end=min(high, (cta + 1) * iters) - low)
        for cta in range(low // iters, (high - 1) // iters + 1)
    )
