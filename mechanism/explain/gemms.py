"""The two GEMMs of a layer: tile, grid, and which tiles are direct or split (marlin-moe 4, 5)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from mechanism.kernel import configuration, versions
from mechanism.kernel.configuration import Launch
from mechanism.kernel.devices import Device
from mechanism.kernel.errors import ConfigurationError, KernelError
from mechanism.kernel.schedule import Schedule

NAMES = ("w13", "w2")


@dataclass(frozen=True, kw_only=True, slots=True)
class Cuts:
    """Where one block is cut; what decides its rows' bits. Equal if all its slice lists are.

    Attributes:
        columns: Column tiles of the block.
        inside: (column tile, k-tile) of every cut inside a tile, ascending; a tile without one is direct.
    """

    columns: int
    inside: tuple[tuple[int, int], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """N, K and group (-1: one scale row, channelwise) of one GEMM."""

    name: str
    n: int
    k: int
    group: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Split:
    """What one launch does with the padded blocks of this batch.

    Attributes:
        schedule: The whole schedule.
        direct_tiles: Tiles that one CTA sums over all of K.
        split_tiles: Tiles that several sum.
        first_split_block: First padded block with a split tile; None if nothing is split.
        most_slices: Slices of the tile that has most.
    """

    schedule: Schedule
    direct_tiles: int
    split_tiles: int
    first_split_block: int | None
    most_slices: int


@dataclass(frozen=True, kw_only=True, slots=True)
class GemmAnswer:
    """One GEMM. `launch` and `split` are None where register counts are not known; then `alternatives` hold.

    `why_unknown` says what is missing; `chosen_by` is ``kernel``, ``caller`` or ``unknown``.
    """

    shape: Shape
    launch: Launch | None
    chosen_by: str
    split: Split | None
    alternatives: tuple[tuple[Launch, Split], ...]
    why_unknown: str


def shapes(*, hidden: int, intermediate: int, group: int) -> tuple[Shape, Shape]:
    """W13 (N = 2I, K = H) and W2 (N = H, K = I); one scale row means channelwise (1.4)."""

    def shape(name: str, n: int, k: int) -> Shape:
        return Shape(name=name, n=n, k=k, group=group if k > group else -1)

    return shape("w13", 2 * intermediate, hidden), shape("w2", hidden, intermediate)


def split_of(schedule: Schedule) -> Split:
    """Counts over all tiles of a schedule; work grows with its CTAs, not with its tiles."""
    direct = schedule.rounds * schedule.grid
    pieces: dict[int, int] = {}  # slices of every split tile
    for tile, _ in _inside(schedule, 0, schedule.part2):
        pieces[tile] = pieces.get(tile, 1) + 1
    return Split(
        schedule=schedule,
        direct_tiles=schedule.tiles - len(pieces),
        split_tiles=len(pieces),
        first_split_block=(direct + min(pieces)) // schedule.n_tiles if pieces else None,
        most_slices=max(pieces.values(), default=1 if schedule.tiles else 0),
    )


def cuts(schedule: Schedule, block: int) -> Cuts:
    """Where one block is cut, column tile by column tile."""
    width, direct = schedule.n_tiles, schedule.rounds * schedule.grid
    first = block * width - direct  # of the striped part; below 0 are tiles of whole rounds
    inside = _inside(schedule, max(0, first), max(0, first + width))
    return Cuts(columns=width, inside=tuple((tile - first, k) for tile, k in inside))


def block_class(found: Cuts) -> str:
    """`direct`, `split`, or `mixed` if the block holds both."""
    split = len({column for column, _ in found.inside})
    return "direct" if not split else "split" if split == found.columns else "mixed"


def answer(  # noqa: PLR0913 - one keyword for every fact the host code reads
    shape: Shape,
    device: Device,
    *,
    block_size_m: int,
    routes: int,
    padded_blocks: int,
    dtype: str,
    kernel: str,
    pinned: Mapping[str, Launch],
    counts_known: bool,
) -> GemmAnswer:
    """One GEMM's launch and what it splits.

    Raises:
        KernelError: The operator refuses the shape, or no tile fits.
    """
    why, launch, chosen_by = "", pinned.get(shape.name), "caller"
    if launch is None and not counts_known:
        why, chosen_by = "register counts of this weight type are not known", "unknown"
    elif launch is None and stream_k(kernel) and block_size_m >= 32:
        chosen_by, launch = "kernel", _first_valid(shape, device, block_size_m, kernel)
    elif launch is None:
        chosen_by = "kernel"
        try:
            launch = configuration.choose(
                device,
                n=shape.n,
                k=shape.k,
                group=shape.group,
                block_size_m=block_size_m,
                routes=routes,
                dtype=dtype,
                kernel=kernel,
            )
        except ConfigurationError as fault:
            if "not known" not in str(fault):
                raise
            why, chosen_by = str(fault).split(",")[0].split(";")[0], "unknown"
    known = None if launch is None else split_of(schedule_of(shape, launch, padded_blocks, kernel))
    others = () if launch else tuple(_alternatives(shape, device, block_size_m, padded_blocks, kernel))
    return GemmAnswer(
        shape=shape, launch=launch, chosen_by=chosen_by, split=known, alternatives=others, why_unknown=why
    )


def schedule_of(
    shape: Shape, launch: Launch, padded_blocks: int, kernel: str, grid: int | None = None
) -> Schedule:
    """The schedule of one launch, or of the same tile on another grid."""
    return Schedule(
        n=shape.n,
        k=shape.k,
        tile_k=launch.tile_k,
        tile_n=launch.tile_n,
        grid=launch.grid if grid is None else grid,
        padded_blocks=padded_blocks,
        group=shape.group,
        kernel=kernel,
    )


def _alternatives(
    shape: Shape, device: Device, block_size_m: int, padded_blocks: int, kernel: str
) -> Iterator[tuple[Launch, Split]]:
    """Every tile and number of CTAs that the operator would take if it were given them (4.1, 4.2)."""
    for tile_k, tile_n, _ in configuration.candidates(block_size_m, kernel=kernel):
        for ctas in range(1, (4 if block_size_m <= 16 else 2) + 1):
            try:
                launch = configuration.explicit(
                    device,
                    n=shape.n,
                    k=shape.k,
                    group=shape.group,
                    block_size_m=block_size_m,
                    tile_k=tile_k,
                    tile_n=tile_n,
                    ctas_per_sm=ctas,
                    kernel=kernel,
                )
            except KernelError:
                continue  # does not divide, or does not fit: not an alternative
            yield launch, split_of(schedule_of(shape, launch, padded_blocks, kernel))


def _first_valid(shape: Shape, device: Device, block_size_m: int, kernel: str) -> Launch:
    """0.11.0 takes, from 32 rows on, the first tile that fits, with 1 CTA per SM (A.1)."""
    rows = 16 * -(-block_size_m // 16)
    for tile_k, tile_n, threads in configuration.candidates(block_size_m, kernel=kernel):
        cache = configuration.shared_memory(
            block_size_m=block_size_m, tile_k=tile_k, tile_n=tile_n, group=shape.group
        )
        cache -= 12 * rows  # its estimate has 4 bytes of metadata a row, not 16
        if shape.k % tile_k == 0 and shape.n % tile_n == 0 and cache + 512 <= device.shared_memory:
            return Launch(tile_k=tile_k, tile_n=tile_n, threads=threads, ctas_per_sm=1, grid=device.sms)
    raise ConfigurationError(
        f"no tile of {kernel} divides N={shape.n}, K={shape.k} and fits {device.shared_memory} bytes on"
        f" {device.name}"
    )


def _inside(schedule: Schedule, first: int, stop: int) -> Iterator[tuple[int, int]]:
    """(tile, k-tile) of every cut inside tiles [first, stop) of part 2: where the run of a CTA ends (5.3).

    The tiles lie end to end on a line of k-tiles, CTA after CTA takes `iters` of it; an end that falls
    between two tiles cuts neither.
    """
    k_tiles, iters = schedule.k_tiles, schedule.iters
    if not iters:
        return  # part 2 is empty
    for end in range((first * k_tiles // iters + 1) * iters, stop * k_tiles, iters):
        tile, k = divmod(end, k_tiles)
        if k:
            yield tile, k


def stream_k(kernel: str) -> bool:
    """Whether a build has no whole-tile rounds (A.1)."""
    return versions.version(kernel).stream_k
