"""The striped schedule against worked tables (marlin-moe 5.5, 5.6), recorded schedules, and its own laws."""

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.canonical import digest
from verifier.arithmetic.schedule import (
    Launch,
    block_class,
    block_ranges,
    slices,
    slices_digest,
    split_tiles,
)

VECTORS = Path(__file__).parent / "vectors"


def w13(grid: int, *, tile_k: int = 64, tile_n: int = 128, blocks: int = 50) -> Launch:
    """The W13 launch of the worked tables: N 1536, K 2048, group 128."""
    return Launch(n=1536, k=2048, group=128, tile_k=tile_k, tile_n=tile_n, grid=grid, padded_blocks=blocks)


def w2(grid: int, *, tile_k: int = 64, tile_n: int = 128) -> Launch:
    """The W2 launch of the worked tables: N 2048, K 768, group 128."""
    return Launch(n=2048, k=768, group=128, tile_k=tile_k, tile_n=tile_n, grid=grid, padded_blocks=50)


@pytest.mark.parametrize(
    ("grid", "counts"),
    [
        (82, {1: 531, 2: 69}),
        (164, {1: 492, 2: 68, 3: 40}),
        (200, {1: 600}),
        (246, {1: 492, 2: 108}),
        (528, {1: 126, 2: 474}),
    ],
)
def test_tiles_by_number_of_slices(grid: int, counts: dict[int, int]) -> None:
    """The first table of 5.5."""
    assert Counter(len(parts) for parts in slices(w13(grid))) == counts


@pytest.mark.parametrize(
    ("grid", "tile", "parts"),
    [
        (82, 492, ((0, 0, 32),)),
        (82, 493, ((0, 0, 12), (1, 12, 32))),
        (82, 599, ((77, 0, 8), (78, 8, 32))),
        (164, 494, ((2, 0, 2), (3, 2, 24), (4, 24, 32))),
        (164, 599, ((155, 0, 8), (156, 8, 30), (157, 30, 32))),
        (246, 492, ((0, 0, 16), (1, 16, 32))),
        (246, 599, ((214, 0, 16), (215, 16, 32))),
        (200, 400, ((0, 0, 32),)),
        (200, 599, ((199, 0, 32),)),
    ],
)
def test_first_part_2_tiles(grid: int, tile: int, parts: tuple[tuple[int, int, int], ...]) -> None:
    """The second table of 5.5."""
    assert slices(w13(grid))[tile] == parts


@pytest.mark.parametrize(
    ("launch", "split"),
    [
        (w13(246, tile_k=128), 108),
        (w2(164), 0),
        (w2(200), 0),
        (w13(200, tile_k=128, tile_n=64), 0),
        (w13(200, tile_n=256), 100),
    ],
)
def test_other_tiles(launch: Launch, split: int) -> None:
    """Rows of the third table of 5.5, and of 5.6."""
    assert split_tiles(launch) == split


def test_decode_example() -> None:
    """M=1 on 8 blocks (5.5): every W13 tile in 3 or 4 slices."""
    launch = w13(246, blocks=8)
    assert slices(launch)[0] == ((0, 0, 14), (1, 14, 28), (2, 28, 32))
    assert slices(launch)[3] == ((6, 0, 2), (7, 2, 16), (8, 16, 30), (9, 30, 32))


@pytest.mark.parametrize(
    ("tile_n", "period", "single"), [(128, 50, {0, 16, 33, 49}), (256, 100, {0, 32, 33, 65, 66, 98, 99})]
)
def test_when_a_grid_of_200_has_single_slices(tile_n: int, period: int, single: set[int]) -> None:
    """5.6: not a property of the grid alone."""
    found = {blocks for blocks in range(1, 201) if split_tiles(w13(200, tile_n=tile_n, blocks=blocks)) == 0}
    assert found == {blocks for blocks in range(1, 201) if blocks % period in single}


def test_s1_the_smallest_with_both_classes() -> None:
    """Three blocks of 16, N 64, K 512, group 128, tile (128, 64), grid 2."""
    launch = Launch(n=64, k=512, group=128, tile_k=128, tile_n=64, grid=2, padded_blocks=3)
    assert (launch.n_tiles, launch.k_tiles) == (1, 4)
    assert [block_class(launch, block) for block in range(3)] == ["direct", "direct", "split"]
    assert block_ranges(launch, 2) == (((0, 2), (2, 4)),)


@pytest.mark.parametrize("grid", [82, 164, 246])
def test_s2_where_the_boundary_lies(grid: int) -> None:
    """Tiles 0..491 are direct, block 41 is the first with a split tile."""
    assert all(len(parts) == 1 for parts in slices(w13(grid))[:492])
    assert [block_class(w13(grid), block) != "direct" for block in (40, 41)] == [False, True]


def test_channelwise_is_not_rounded() -> None:
    """6.6: no whole groups to keep, so the stripes are as even as they can be."""
    grouped = Launch(n=256, k=1024, group=128, tile_k=64, tile_n=128, grid=11, padded_blocks=4)
    channelwise = Launch(n=256, k=1024, group=-1, tile_k=64, tile_n=128, grid=11, padded_blocks=4)
    assert slices(grouped)[0] == ((0, 0, 12), (1, 12, 16))
    assert slices(channelwise)[0] == ((0, 0, 12), (1, 12, 16))
    odd = Launch(n=256, k=1024, group=-1, tile_k=64, tile_n=128, grid=10, padded_blocks=4)
    assert slices(odd)[0] == ((0, 0, 13), (1, 13, 16))


@pytest.mark.parametrize("path", sorted(VECTORS.glob("schedule_*.json")), ids=lambda path: path.stem)
def test_recorded_schedules(path: Path) -> None:
    """What the kernel's own source did, tile by tile."""
    vector = json.loads(path.read_text())
    launch = Launch(
        n=vector["size_n"],
        k=vector["size_k"],
        group=vector["group_size"],
        tile_k=vector["thread_k"],
        tile_n=vector["thread_n"],
        grid=vector["num_ctas"],
        padded_blocks=vector["num_m_blocks"],
    )
    for tile in vector["tiles"]:
        recorded = sorted((part["k_begin"], part["k_end"], part["cta"]) for part in tile["slices"])
        mine = slices(launch)[tile["m_block"] * launch.n_tiles + tile["n_tile"]]
        assert [(begin * launch.tile_k, end * launch.tile_k, cta) for cta, begin, end in mine] == recorded


@given(
    blocks=st.integers(1, 40),
    n_tiles=st.integers(1, 8),
    k_tiles=st.integers(1, 24),
    grid=st.integers(1, 90),
    group=st.sampled_from([-1, 32, 64, 128, 256]),
)
def test_every_k_tile_is_computed_once(
    blocks: int, n_tiles: int, k_tiles: int, grid: int, group: int
) -> None:
    """Slices of a tile follow each other without gap or overlap, on CTAs of the launch."""
    launch = Launch(
        n=n_tiles * 128, k=k_tiles * 64, group=group, tile_k=64, tile_n=128, grid=grid, padded_blocks=blocks
    )
    assert len(slices(launch)) == blocks * n_tiles
    for parts in slices(launch):
        assert [begin for _, begin, _ in parts] == [0, *(end for _, _, end in parts[:-1])]
        assert parts[-1][2] == k_tiles
        assert all(0 <= cta < grid and begin < end for cta, begin, end in parts)


def test_the_digest_is_the_ledgers() -> None:
    """ledger/record.py: [block, column, [[cta, begin, end], ...]], sorted."""
    launch = Launch(n=128, k=512, group=128, tile_k=128, tile_n=64, grid=3, padded_blocks=2)
    assert slices_digest(launch) == digest(
        [[0, 0, [[0, 0, 4]]], [0, 1, [[0, 0, 2], [1, 2, 4]]], [1, 0, [[1, 0, 4]]], [1, 1, [[2, 0, 4]]]]
    )
