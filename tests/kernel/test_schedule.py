"""The closed form of the striped schedule against the kernel's own control flow (marlin-moe 5)."""

from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mechanism.kernel.errors import ScheduleError
from mechanism.kernel.schedule import Schedule, Slice
from tests.kernel.kernel_setup import few


@st.composite
def schedules(draw: st.DrawFn, *, kernel: str = "vllm==0.22.0") -> Schedule:
    """Any geometry with whole k-tiles and groups."""
    tile_k = draw(st.sampled_from((64, 128)))
    tile_n = draw(st.sampled_from((64, 128, 256)))
    return Schedule(
        n=tile_n * draw(st.integers(1, 16)),
        k=128 * draw(st.integers(1, 20)),
        tile_k=tile_k,
        tile_n=tile_n,
        grid=draw(st.integers(1, 528)),
        padded_blocks=draw(st.integers(0, 130)),
        group=draw(st.sampled_from((-1, 32, 64, 128))),
        kernel=kernel,
    )


def literal(s: Schedule) -> dict[tuple[int, int], list[tuple[Slice, int, int]]]:
    """Every CTA's walk in the kernel's variables (5.3): (slice, slice_idx, slice_count) per tile."""
    done = defaultdict(list)
    for cta in range(s.grid):
        for turn in range(s.rounds):
            tile = cta + turn * s.grid
            place = (tile // s.n_tiles, tile % s.n_tiles)
            done[place].append((Slice(cta=cta, begin=0, end=s.k_tiles), 0, 1))
        if s.iters == 0:
            continue
        slice_col_par, slice_row = divmod(cta * s.iters, s.k_tiles)
        par_id, slice_col = divmod(slice_col_par + s.tiles - s.part2, s.n_tiles)
        while slice_col_par < s.part2:
            rest = (cta + 1) * s.iters - (s.k_tiles * slice_col_par + slice_row)
            slice_iters = min(rest, s.k_tiles - slice_row)
            if slice_iters <= 0:
                break
            first = s.iters * -(-s.k_tiles * slice_col_par // s.iters)
            off = first - s.k_tiles * slice_col_par
            count = 1 if off > s.k_tiles else -(-(s.k_tiles - off) // s.iters) + (off > 0)
            # counts from the bottom: the highest k is 0, the slice at k = 0 is count - 1
            above = -(-(s.k_tiles - slice_row - slice_iters) // s.iters)
            done[par_id, slice_col].append(
                (Slice(cta=cta, begin=slice_row, end=slice_row + slice_iters), above, count)
            )
            slice_col_par, slice_row, slice_col = slice_col_par + 1, 0, slice_col + 1
            if slice_col == s.n_tiles:
                slice_col, par_id = 0, par_id + 1
    return done


@few
@given(schedule=schedules())
def test_closed_form_is_the_kernels_control_flow(schedule: Schedule) -> None:
    """Same slices by the same CTAs, same slice counts and indices."""
    walked = literal(schedule)
    assert len(walked) == schedule.tiles
    for tile in schedule:
        got = sorted(walked[tile.block, tile.column_tile], key=lambda item: item[0].begin)
        assert tuple(part for part, _, _ in got) == tile.slices
        assert {count for _, _, count in got} == {len(tile.slices)}
        assert [index for _, index, _ in got] == list(range(len(got)))[::-1]


@few
@given(schedule=schedules() | schedules(kernel="vllm==0.11.0"))
def test_every_tile_is_owned_once(schedule: Schedule) -> None:
    """Slices of a tile join without gap or overlap, and no CTA owns two of them."""
    for tile in schedule:
        ends = [0, *(part.end for part in tile.slices)]
        assert [part.begin for part in tile.slices] == ends[:-1]
        assert ends[-1] == schedule.k_tiles
        assert all(part.begin < part.end for part in tile.slices)
        assert len({part.cta for part in tile.slices}) == len(tile.slices)
        assert all(0 <= part.cta < schedule.grid for part in tile.slices)
        assert tile.slices == schedule.slices(tile.block, tile.column_tile)


@few
@given(schedule=schedules())
def test_locks_of_split_tiles_are_their_own(schedule: Schedule) -> None:
    """One lock and scratch slot each, below the grid size."""
    locks = [schedule.lock(tile.block, tile.column_tile) for tile in schedule if len(tile.slices) > 1]
    assert len(set(locks)) == len(locks)
    assert all(lock is not None and 0 <= lock < schedule.grid for lock in locks)


@few
@given(schedule=schedules())
def test_single_slice_rule(schedule: Schedule) -> None:
    """The closed rule of 5.6 says what enumeration finds."""
    assert schedule.single_slice == all(tile.schedule_class == "direct" for tile in schedule)


@few
@given(schedule=schedules())
def test_slices_start_at_groups(schedule: Schedule) -> None:
    """Where a group holds whole k-tiles, no slice begins inside one."""
    for tile in schedule:
        assert all(part.begin % schedule.group_tiles == 0 for part in tile.slices)


def w13(grid: int, *, kernel: str = "vllm==0.22.0") -> Schedule:
    """The worked example: 50 padded blocks, tile (64, 128)."""
    return Schedule(
        n=1536, k=2048, tile_k=64, tile_n=128, grid=grid, padded_blocks=50, group=128, kernel=kernel
    )


@pytest.mark.parametrize(
    ("grid", "rounds", "part2", "iters", "counts"),
    [
        (82, 6, 108, 44, {1: 531, 2: 69}),
        (164, 3, 108, 22, {1: 492, 2: 68, 3: 40}),
        (200, 2, 200, 32, {1: 600}),
        (246, 2, 108, 16, {1: 492, 2: 108}),
        (528, 0, 600, 38, {1: 126, 2: 474}),
    ],
)
def test_worked_example(grid: int, rounds: int, part2: int, iters: int, counts: dict[int, int]) -> None:
    """marlin-moe 5.5, first table."""
    schedule = w13(grid)
    assert (schedule.rounds, schedule.part2, schedule.iters) == (rounds, part2, iters)
    assert _counts(schedule) == counts


@pytest.mark.parametrize(
    ("grid", "tile", "slices"),
    [
        (82, 494, ((1, 0, 24), (2, 24, 32))),
        (82, 599, ((77, 0, 8), (78, 8, 32))),
        (164, 494, ((2, 0, 2), (3, 2, 24), (4, 24, 32))),
        (164, 599, ((155, 0, 8), (156, 8, 30), (157, 30, 32))),
        (246, 492, ((0, 0, 16), (1, 16, 32))),
        (246, 599, ((214, 0, 16), (215, 16, 32))),
        (200, 400, ((0, 0, 32),)),
    ],
)
def test_worked_tiles(grid: int, tile: int, slices: tuple[tuple[int, int, int], ...]) -> None:
    """marlin-moe 5.5, second table."""
    got = w13(grid).slices(*divmod(tile, 12))
    assert tuple((part.cta, part.begin, part.end) for part in got) == slices


@pytest.mark.parametrize(
    ("n", "k", "tile_k", "tile_n", "grid", "part2", "iters"),
    [
        (1536, 2048, 128, 128, 396, 204, 9),
        (1536, 2048, 128, 64, 82, 52, 11),
        (1536, 2048, 128, 64, 528, 672, 21),
        (2048, 768, 64, 128, 82, 62, 10),
        (2048, 768, 64, 128, 164, 144, 12),
        (2048, 768, 64, 128, 246, 308, 16),
        (2048, 768, 128, 64, 528, 544, 7),
    ],
)
def test_other_worked_tiles(
    n: int, k: int, tile_k: int, tile_n: int, grid: int, part2: int, iters: int
) -> None:
    """marlin-moe 5.5, third table."""
    got = Schedule(n=n, k=k, tile_k=tile_k, tile_n=tile_n, grid=grid, padded_blocks=50, group=128)
    assert (got.part2, got.iters) == (part2, iters)


@pytest.mark.parametrize(
    ("grid", "iters", "counts"),
    [
        (82, 236, {1: 529, 2: 71}),
        (164, 118, {1: 448, 2: 152}),
        (200, 96, {1: 600}),
        (246, 80, {1: 480, 2: 120}),
    ],
)
def test_stream_k_of_0_11_0(grid: int, iters: int, counts: dict[int, int]) -> None:
    """marlin-moe A.1: no whole-tile rounds."""
    schedule = w13(grid, kernel="vllm==0.11.0")
    assert (schedule.rounds, schedule.iters) == (0, iters)
    assert _counts(schedule) == counts
    with pytest.raises(ScheduleError, match=r"^the lock numbering of vllm==0.11.0 is not known$"):
        schedule.lock(0, 0)


@pytest.mark.parametrize(
    ("tile_n", "period", "single"),
    [(128, 50, {0, 16, 33, 49}), (64, 25, {0, 8}), (256, 100, {0, 32, 33, 65, 66, 98, 99})],
)
def test_a_grid_of_200_is_not_enough_for_single_slices(tile_n: int, period: int, single: set[int]) -> None:
    """marlin-moe 5.6: it depends on the padded blocks."""
    for blocks in range(1, 401):
        tile_k = 128 if tile_n == 64 else 64
        got = Schedule(
            n=1536, k=2048, tile_k=tile_k, tile_n=tile_n, grid=200, padded_blocks=blocks, group=128
        )
        assert got.single_slice == (blocks % period in single)


def test_geometry_is_checked() -> None:
    """Rule and numbers are named."""
    with pytest.raises(ScheduleError, match=r"^a tile must divide K: 320 leaves 64 over 128$"):
        Schedule(n=128, k=320, tile_k=128, tile_n=64, grid=1, padded_blocks=1, group=-1)
    with pytest.raises(ScheduleError, match=r"^expected sizes of 1 or more, got .* grid 0, 1 padded blocks$"):
        Schedule(n=128, k=256, tile_k=128, tile_n=64, grid=0, padded_blocks=1, group=-1)
    with pytest.raises(ScheduleError, match=r"^tile \(50, 0\): expected block 0..49 and column tile 0..11$"):
        w13(82).slices(50, 0)


def test_no_blocks_no_tiles() -> None:
    """An empty alignment launches a kernel that does nothing."""
    empty = Schedule(n=128, k=256, tile_k=128, tile_n=64, grid=8, padded_blocks=0, group=128)
    assert (list(empty), empty.iters, empty.single_slice) == ([], 0, True)


def _counts(schedule: Schedule) -> dict[int, int]:
    counts: dict[int, int] = {}
    for tile in schedule:
        counts[len(tile.slices)] = counts.get(len(tile.slices), 0) + 1
    return dict(sorted(counts.items()))
