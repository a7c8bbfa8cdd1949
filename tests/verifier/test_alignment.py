"""Alignments, arrivals, routing and the order of processes: worked examples and laws."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.canonical import sha256
from ledger.plan import ExplicitArrival, SeededArrival, WarpArrival
from tests.verifier import forge
from verifier.arithmetic import geometry
from verifier.arithmetic.alignment import (
    blocks_of,
    construct,
    exchange,
    illegalities,
    is_small_batch,
    membership,
    stable,
)
from verifier.arithmetic.arrival import arrival_order, rests_on_lane_order
from verifier.arithmetic.cells import expand


def test_the_example_of_the_specification() -> None:
    """marlin-moe 2.3: topk_ids [[2,0],[2,3]], 4 experts, blocks of 8: the small-batch variant."""
    built = construct([2, 0, 2, 3], experts=4, block=8, arrival=())
    assert built.sorted_token_ids == (1, *[4] * 7, 0, 2, *[4] * 6, 3, *[4] * 7)
    assert (built.expert_ids, built.num_tokens_post_padded) == ((0, 2, 3), 24)
    assert geometry.buffer_lengths(4, 4, 8) == (32, 4)
    assert geometry.buffer_lengths(400, 128, 8) == (1296, 162)


def test_a_small_batch_is_not_ascending() -> None:
    """S4: worker by worker, so route 32 of 40 comes right after route 0."""
    built = construct([0] * 40, experts=1, block=64, arrival=())
    assert built.sorted_token_ids[:4] == (0, 32, 1, 33)


@pytest.mark.parametrize(
    ("routes", "experts", "small"), [(1016, 64, True), (1024, 64, False), (8, 65, False)]
)
def test_s4_which_variant(routes: int, experts: int, *, small: bool) -> None:
    """The two conditions of marlin-moe 2.4."""
    assert is_small_batch(routes, experts) is small


def test_s5_right_counts_and_illegal() -> None:
    """One route in every slot is legal; one route and sentinels where routes belong is not."""
    legal = construct([0, 0, 0, 0], experts=1, block=16, arrival=())
    assert legal.sorted_token_ids == (0, 1, 2, 3, *[4] * 12)
    assert list(illegalities(legal, [0, 0, 0, 0], block=16)) == []
    bad = legal.model_copy(update={"sorted_token_ids": (0, *[4] * 15)})
    assert next(illegalities(bad, [0, 0, 0, 0], block=16)) == "slot 1: expected a route, got 4"


def test_s6_two_legal_alignments_with_other_company() -> None:
    """Many routes to few experts: expert_ids and counts equal, memberships of most blocks not."""
    draw = random.Random(6)
    ids = [expert for _ in range(2048) for expert in draw.sample(range(16), 4)]
    one = construct(ids, experts=16, block=64, arrival=range(len(ids)))
    other = construct(ids, experts=16, block=64, arrival=draw.sample(range(len(ids)), len(ids)))
    assert (one.expert_ids, one.num_tokens_post_padded) == (other.expert_ids, other.num_tokens_post_padded)
    changed = sum(a != b for a, b in zip(membership(one), membership(other), strict=True))
    assert changed > len(one.expert_ids) // 2
    assert not list(illegalities(one, ids, block=64)) + list(illegalities(other, ids, block=64))


@given(
    st.randoms(use_true_random=False), st.integers(1, 200), st.integers(1, 90), st.sampled_from([8, 16, 64])
)
def test_every_arrival_gives_a_legal_alignment(
    draw: random.Random, routes: int, experts: int, block: int
) -> None:
    """And exchanging two slots of different experts never does."""
    ids = [draw.randrange(experts) for _ in range(routes)]
    order = draw.sample(range(routes), routes)
    built = construct(ids, experts=experts, block=block, arrival=order)
    assert list(illegalities(built, ids, block=block)) == []
    a, b = draw.randrange(routes), draw.randrange(routes)
    swapped = exchange(built, a, b)
    assert (not list(illegalities(swapped, ids, block=block))) == (ids[a] == ids[b])
    assert exchange(swapped, a, b) == built


def test_what_is_illegal_is_said() -> None:
    """Each fault in words: what was expected, what was found, where."""
    ids = [0, 0, 1]
    good = stable(ids, block=8)
    slots = good.sorted_token_ids

    def faults(**changes: object) -> list[str]:
        return list(illegalities(good.model_copy(update=changes), ids, block=8))

    assert faults(num_tokens_post_padded=8) == ["num_tokens_post_padded: expected 16, got 8"]
    assert faults(expert_ids=(0, 2)) == ["expert_ids: expected (0, 1), got (0, 2)"]
    assert faults(block_size_m=16) == ["block_size_m: expected 8, got 16"]
    assert faults(sorted_token_ids=slots[:8]) == ["sorted_token_ids: expected 16 active slots, got 8"]
    assert faults(sorted_token_ids=(9, *slots[1:]))[0] == "slot 0: expected routes 0..2, got 9"
    assert faults(sorted_token_ids=(2, *slots[1:8], 0, *slots[9:])) == [
        "block 0: expected routes of expert 0, got 2, which belongs to expert 1",
        "block 1: expected routes of expert 1, got 0, which belongs to expert 0",
    ]


def test_block_sizes() -> None:
    """The table of marlin-moe 2.2."""
    starts = [(1, 8), (115, 8), (116, 16), (230, 16), (231, 32), (461, 48), (691, 48), (692, 64)]
    assert [(tokens, geometry.block_size(tokens, 8, 128)) for tokens, _ in starts] == starts


def test_arrival_orders() -> None:
    """ledger/plan.py: warps whole and ascending inside; seeded by sha256."""
    assert arrival_order(WarpArrival(kind="warps", warps=(1, 0)), 40) == (*range(32, 40), *range(32))
    seeded = arrival_order(SeededArrival(kind="seeded", seed=7), 5)
    assert seeded == tuple(sorted(range(5), key=lambda route: sha256(f"7:{route}".encode())))
    with pytest.raises(ValueError, match=r"permutation of 0\.\.2, got 3 entries, 2 of them distinct"):
        arrival_order(ExplicitArrival(kind="explicit", routes=(0, 1, 1)), 3)


def test_lane_order() -> None:
    """U5: only two lanes of one warp on one counter, served the other way round, rest on it."""
    assert not rests_on_lane_order((0, 1, 2), (0, 0, 0))
    assert rests_on_lane_order((1, 0, 2), (0, 0, 1))
    assert not rests_on_lane_order((1, 0, 2), (0, 1, 0))
    warps = (*range(32, 64), *range(32))
    assert not rests_on_lane_order(warps, [0] * 64)


@pytest.mark.parametrize("name", ["quick", "route_block"])
def test_order_of_processes(name: str) -> None:
    """Every replicate holds all cells; in the first one what is constructed comes first."""
    plan = forge.read_plan((forge.ROOT / "plans" / f"{name}.yaml").read_bytes())
    cells = expand(plan)
    assert len(cells) == 70
    for replicate in range(5):
        part = cells[14 * replicate : 14 * replicate + 14]
        assert {cell.replicate for cell in part} == {replicate + 1}
        keys = [
            sha256(f"{plan.order.seed}:{c.replicate}:{c.phase}.{c.cell}.{c.history}".encode()) for c in part
        ]
        ordered = [
            (replicate == 0 and c.alignment != "constructed", key) for c, key in zip(part, keys, strict=True)
        ]
        assert ordered == sorted(ordered)


def test_the_published_exchange() -> None:
    """The default plan: routes 51 and 86 change places between padded blocks 40 and 41."""
    parts = forge.good_parts("route_block")
    records = parts.records
    native = parts.alignments[
        records["records/qualification.native.H0.1.json"]["treatment"]["alignment"]["sha256"]
    ]
    swapped = parts.alignments[
        records["records/ablation.block-boundary.H0.1.json"]["treatment"]["alignment"]["sha256"]
    ]
    places = [
        [slots["sorted_token_ids"].index(route) // 8 for route in (51, 86)] for slots in (native, swapped)
    ]
    assert places == [[40, 41], [41, 40]]
    assert blocks_of(stable([0, 0], block=8), 1) == (0,)
