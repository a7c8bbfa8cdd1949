"""Small inputs with right values, each naming a whole kind of fault."""

import ast
import random
import sys
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

import mechanism.kernel
from mechanism.kernel import alignment as al
from mechanism.kernel import arrival
from mechanism.kernel.configuration import choose
from mechanism.kernel.devices import DEVICES
from mechanism.kernel.rounding import add, bits16, narrow
from mechanism.kernel.schedule import Schedule
from mechanism.kernel.tensor_core import mma

PURE = (
    "alignment", "arrival", "assumptions", "configuration", "devices", "errors", "exact", "plain", "schedule",
    "shapes", "versions",
)  # fmt: skip


def test_s1_smallest_launch_with_both_classes() -> None:
    """Three blocks of 16, N=64, K=512, tile (128, 64), grid 2: two direct, one split in halves."""
    got = Schedule(n=64, k=512, tile_k=128, tile_n=64, grid=2, padded_blocks=3, group=128)
    assert (got.n_tiles, got.k_tiles) == (1, 4)
    assert [tile.schedule_class for tile in got] == ["direct", "direct", "split"]
    assert [(part.begin, part.end) for part in got.slices(2, 0)] == [(0, 2), (2, 4)]


@pytest.mark.parametrize("grid", [82, 164, 246, 200])
def test_s2_boundary_of_the_default_geometry(grid: int) -> None:
    """Tiles 0..491 direct and block 41 the first with a split tile; at 200 no tile is split."""
    got = Schedule(n=1536, k=2048, tile_k=64, tile_n=128, grid=grid, padded_blocks=50, group=128)
    split = [tile for tile in got if tile.schedule_class == "split"]
    if grid == 200:
        assert split == []
        return
    assert [tile.schedule_class for tile in got][:492] == ["direct"] * 492
    assert split[0].block == 41


def test_s3_padding_is_not_neutral() -> None:
    """N=1856 takes the only tile that divides it; padded to 1920 the boundary moves."""
    plain, padded = (
        choose(DEVICES["rtx-3090"], n=n, k=2048, group=128, block_size_m=8, routes=96) for n in (1856, 1920)
    )
    assert (plain.tile_k, plain.tile_n) == (128, 64)
    first = []
    for n, launch in ((1856, plain), (1920, padded)):
        schedule = Schedule(
            n=n,
            k=2048,
            tile_k=launch.tile_k,
            tile_n=launch.tile_n,
            grid=launch.grid,
            padded_blocks=50,
            group=128,
        )
        first.append(next((tile.block, tile.column_tile) for tile in schedule if len(tile.slices) > 1))
    assert first[0] != first[1]


def test_s4_variant_of_the_alignment() -> None:
    """1,016 routes to 64 experts: no atomics, order fixed; more routes or more experts: atomics."""
    assert [al.variant(*sizes) for sizes in ((1016, 64), (1024, 64), (8, 65))] == [
        "small-batch",
        "large",
        "large",
    ]
    one = al.align([(0,)] * 1016, experts=64, block_size_m=8)
    assert one.sorted_token_ids[:4] == (0, 64, 128, 192)  # key (i mod 64, i div 64), not ascending


def test_s5_padding_is_a_suffix() -> None:
    """Four routes, one expert, block 16. [0, 4, 4, ...] has right counts and is illegal."""
    ids = [(0,)] * 4
    got = al.align(ids, experts=1, block_size_m=16)
    assert got.sorted_token_ids == (0, 1, 2, 3, *[4] * 12)
    assert (got.expert_ids, got.num_tokens_post_padded) == ((0,), 16)
    given = {field.name: getattr(got, field.name) for field in fields(al.Alignment)}
    spread = al.Alignment(**(given | {"sorted_token_ids": (0, *[4] * 12, 1, 2, 3)}))
    assert al.faults(spread, ids, experts=1) == (
        "block 0: expected sentinels as a suffix, got one before a route",
    )


def test_s6_two_legal_alignments_in_five_numbers() -> None:
    """8,192 routes to 16 experts, block 64: same blocks and counts, other ids, most memberships changed."""
    rng = random.Random(0)
    ids = [tuple(rng.sample(range(16), 4)) for _ in range(2048)]
    size = al.block_size_m(2048, 4, 16)
    a, b = (
        al.align(ids, experts=16, block_size_m=size, arrival=arrival.seeded(8192, seed))
        for seed in ("a", "b")
    )
    assert size == 64
    assert al.faults(a, ids, experts=16) == al.faults(b, ids, experts=16) == ()
    got = al.compare(a, b)
    assert (got.expert_ids, got.padded, got.multiset_equal) == (0, 0, True)
    assert got.ids > 7000
    assert got.blocks > len(a.expert_ids) // 2


def test_q3_one_chain_against_two_slices() -> None:
    """1 + 2^-8 and sixteen crumbs of 2^-25, bf16, Ampere: 0x3F80 against 0x3F81."""
    factors = [0x3F80, 0x3B80] + [0] * 14 + [0x3300] * 16  # 1, 2^-8, 0 ..., 2^-25 ...
    a = np.array([factors], dtype=np.uint16)
    ones = np.full((32, 1), 0x3F80, dtype=np.uint16)
    zero = np.zeros((1, 1), dtype=np.uint32)
    chain = mma(a, ones, zero, arch="sm_80", dtype="bfloat16").view(np.float32)
    low = mma(a[:, :16].copy(), ones[:16], zero, arch="sm_80", dtype="bfloat16").view(np.float32)
    high = mma(a[:, 16:].copy(), ones[16:], zero, arch="sm_80", dtype="bfloat16").view(np.float32)
    got = [int(bits16(narrow(value, "bfloat16"))[0, 0]) for value in (chain, add(low, high))]
    assert [hex(bits) for bits in got] == ["0x3f80", "0x3f81"]


@pytest.mark.parametrize("room", PURE)
def test_pure_rooms_do_not_import_numpy(room: str) -> None:
    """Whoever starts processes imports these; numpy costs every start."""
    folder = Path(mechanism.kernel.__file__).parent
    tree = ast.parse((folder / f"{room}.py").read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [item.name for item in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{item.name}" for item in node.names] + [node.module or ""]
        else:
            continue
        for name in names:
            top, *rest = name.split(".")
            assert top in sys.stdlib_module_names | {"mechanism"}, name
            if top == "mechanism" and len(rest) > 1 and rest[0] != "values":
                assert rest[1] in PURE, name
