"""Laws of the route alignment (marlin-moe 2)."""

from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mechanism.kernel import alignment as al
from mechanism.kernel.alignment import Alignment
from mechanism.kernel.errors import AlignmentError
from tests.kernel.kernel_setup import few

EXAMPLE = ((2, 0), (2, 3))


@st.composite
def routings(draw: st.DrawFn, *, experts: int = 70) -> tuple[tuple[int, ...], ...]:
    """Distinct experts per token."""
    top_k = draw(st.integers(1, 4))
    few = draw(st.sampled_from((4, experts)))  # few experts: several blocks each
    return tuple(tuple(draw(st.permutations(range(few)))[:top_k]) for _ in range(draw(st.integers(1, 12))))


@few
@given(topk_ids=routings(), data=st.data(), block=st.sampled_from(al.BLOCK_SIZES))
def test_every_arrival_order_gives_a_legal_alignment(
    topk_ids: tuple[tuple[int, ...], ...], data: st.DataObject, block: int
) -> None:
    """And the same blocks, experts and counts as the stable one."""
    arrival = data.draw(st.permutations(range(len(topk_ids) * len(topk_ids[0]))))
    got = al.align(topk_ids, experts=70, block_size_m=block, arrival=arrival)
    want = al.stable(topk_ids, experts=70, block_size_m=block)
    assert al.faults(got, topk_ids, experts=70) == ()
    difference = al.compare(want, got)
    assert (difference.expert_ids, difference.padded, difference.multiset_equal) == (0, 0, True)


@few
@given(topk_ids=routings(), block=st.sampled_from(al.BLOCK_SIZES))
def test_index_order_is_the_stable_order(topk_ids: tuple[tuple[int, ...], ...], block: int) -> None:
    """Atomics in index order leave each expert's routes ascending."""
    arrival = range(len(topk_ids) * len(topk_ids[0]))
    got = al.align(topk_ids, experts=70, block_size_m=block, arrival=arrival)
    assert got == al.stable(topk_ids, experts=70, block_size_m=block)


def test_the_specifications_example() -> None:
    """marlin-moe 2.3: slots, experts, counts and buffer lengths."""
    got = al.align(EXAMPLE, experts=4, block_size_m=8)
    assert got == Alignment(
        block_size_m=8,
        routes=4,
        sorted_token_ids=(1, *[4] * 7, 0, 2, *[4] * 6, 3, *[4] * 7),
        expert_ids=(0, 2, 3),
        num_tokens_post_padded=24,
        sorted_length=32,
        expert_length=4,
    )


def test_buffer_lengths_of_the_specification() -> None:
    """M=50, top_k=8, E=128, B=8; and the shrunk buffer of a decode step, which 0.11.0 does not shrink."""
    assert al.buffer_lengths(400, 128, 8) == (1296, 162)
    assert al.buffer_lengths(8, 128, 8) == (64, 8)
    assert al.buffer_lengths(8, 128, 8, kernel="vllm==0.11.0") == (904, 113)


@pytest.mark.parametrize(
    ("tokens", "block"), [(1, 8), (115, 8), (116, 16), (230, 16), (231, 32), (460, 32), (461, 48), (691, 48)]
)
def test_block_size_for_128_experts(tokens: int, block: int) -> None:
    """marlin-moe 2.2's table; 692 tokens and more take 64."""
    assert al.block_size_m(tokens, 8, 128) == block
    assert al.block_size_m(692, 8, 128) == 64


def test_exchange_moves_two_routes_and_nothing_else() -> None:
    """Nine routes on one expert: two blocks; the exchange is its own inverse."""
    topk_ids = tuple((7, expert) for expert in range(10, 19))
    got = al.stable(topk_ids, experts=70, block_size_m=8)
    swapped = al.exchange(got, 0, 16)
    assert (al.block_of(got, 0), al.block_of(got, 16)) == (0, 1)
    assert (al.block_of(swapped, 0), al.block_of(swapped, 16)) == (1, 0)
    assert al.exchange(swapped, 0, 16) == got
    assert al.compare(got, swapped) == al.Comparison(
        ids=2, expert_ids=0, padded=0, multiset_equal=True, blocks=2
    )
    assert al.faults(swapped, topk_ids, experts=70) == ()


def test_exchange_inside_a_block_keeps_its_membership() -> None:
    """Order inside a block does not count."""
    topk_ids = tuple((7, expert) for expert in range(10, 19))
    got = al.stable(topk_ids, experts=70, block_size_m=8)
    swapped = al.exchange(got, 0, 2)
    assert al.membership(swapped) == al.membership(got)
    assert al.compare(got, swapped).ids == 2


def test_exchange_across_experts_is_refused() -> None:
    """The message names both experts."""
    got = al.align(EXAMPLE, experts=4, block_size_m=8)
    with pytest.raises(
        AlignmentError, match=r"^exchange of routes 0 and 1: expected one expert, got 2 and 0$"
    ):
        al.exchange(got, 0, 1)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"routes": 5}, "routes: expected 4, got 5"),
        ({"expert_ids": (0, 2, 1)}, "expert_ids: expected (0, 2, 3), got (0, 2, 1)"),
        ({"num_tokens_post_padded": 16}, "num_tokens_post_padded: expected 24, got 16"),
        ({"sorted_length": 24}, "sorted_length: expected 32, got 24"),
        ({"expert_length": 3}, "expert_length: expected 4, got 3"),
    ],
)
def test_faults_in_counts_are_named(change: dict[str, object], fault: str) -> None:
    """One changed field, one fault."""
    got = al.align(EXAMPLE, experts=4, block_size_m=8)
    given = {field.name: getattr(got, field.name) for field in fields(Alignment)}
    assert al.faults(Alignment(**(given | change)), EXAMPLE, experts=4) == (fault,)


@pytest.mark.parametrize(
    ("slots", "faults"),
    [
        (
            (1, *[4] * 7, 0, 2, *[4] * 6, 0, *[4] * 7),
            (
                "block 2: expected routes of expert 3, got 0, which belongs to expert 2",
                "route 0: expected in one slot, got 2",
                "route 3: expected in one slot, got 0",
            ),
        ),
        (
            (4, 1, *[4] * 6, 0, 2, *[4] * 6, 3, *[4] * 7),
            ("block 0: expected sentinels as a suffix, got one before a route",),
        ),
        (
            (1, *[9] * 7, 0, 2, *[4] * 6, 3, *[4] * 7),
            tuple(["block 0: expected slots 0..4, got 9"] * 7),
        ),
    ],
    ids=["stolen", "sentinel-first", "out-of-range"],
)
def test_faults_in_slots_are_named(slots: tuple[int, ...], faults: tuple[str, ...]) -> None:
    """Right counts are not enough."""
    got = al.align(EXAMPLE, experts=4, block_size_m=8)
    given = {field.name: getattr(got, field.name) for field in fields(Alignment)}
    found = al.faults(Alignment(**(given | {"sorted_token_ids": slots})), EXAMPLE, experts=4)
    assert set(faults) <= set(found)
    assert found


def test_a_block_left_before_it_was_full_is_illegal() -> None:
    """Atomics hand out slots without gaps."""
    topk_ids = tuple((7, expert) for expert in range(10, 19))
    got = al.stable(topk_ids, experts=70, block_size_m=8)
    slots = list(got.sorted_token_ids)
    slots[7], slots[9] = slots[9], slots[7]  # the last route of block 0 to block 1
    given = {field.name: getattr(got, field.name) for field in fields(Alignment)}
    found = al.faults(Alignment(**(given | {"sorted_token_ids": tuple(slots)})), topk_ids, experts=70)
    assert found == ("block 0: expected 8 routes before another block of its expert, got 7",)


def test_dropped_routes_have_no_slot() -> None:
    """The large variant drops ids beyond the experts; an expert map drops what it maps to -1 (9.1)."""
    topk_ids = ((3, 99), (70, 3))
    got = al.align(topk_ids, experts=70, block_size_m=8, arrival=range(4))
    assert al.membership(got) == ((3, frozenset({0, 3})),)
    local = [-1] * 70
    local[3] = 5
    mapped = al.align(((3, 4), (4, 3)), experts=70, block_size_m=8, arrival=range(4), expert_map=local)
    assert al.membership(mapped) == ((5, frozenset({0, 3})),)
    with pytest.raises(AlignmentError, match=r"^route 1: no slot holds it; it was dropped$"):
        al.block_of(mapped, 1)


def test_undefined_ids_are_refused() -> None:
    """Memory out of bounds is not simulated."""
    with pytest.raises(AlignmentError, match=r"^route 1: expert -1 is out of bounds memory in vllm==0.22.0$"):
        al.align(((0, -1),), experts=70, block_size_m=8, arrival=range(2))
    with pytest.raises(
        AlignmentError, match=r"^route 0: expert 9 of 4 is out of bounds memory in the small-batch"
    ):
        al.align(((9, 1),), experts=4, block_size_m=8)
    dropped = al.align(((0, -1),), experts=70, block_size_m=8, arrival=range(2), kernel="vllm==0.29.0")
    assert al.membership(dropped) == ((0, frozenset({0})),)


def test_arrival_belongs_to_the_variant_with_atomics() -> None:
    """Refused where it would change nothing, demanded where it decides."""
    with pytest.raises(
        AlignmentError, match=r"^arrival order given, but 4 routes to 4 experts take the small"
    ):
        al.align(EXAMPLE, experts=4, block_size_m=8, arrival=range(4))
    with pytest.raises(
        AlignmentError, match=r"^arrival order missing: 4 routes to 65 experts take the large"
    ):
        al.align(EXAMPLE, experts=65, block_size_m=8)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ({"block_size_m": 24}, r"^block_size_m: expected one of \(8, 16, 32, 48, 64\), got 24$"),
        ({"experts": 993}, "^experts: expected 1..992, got 993$"),
        ({"expert_map": [0]}, "^expert_map: expected one entry for each of 4 experts, got 1$"),
    ],
)
def test_sizes_are_checked(call: dict[str, object], message: str) -> None:
    """Expected, then got."""
    with pytest.raises(AlignmentError, match=message):
        al.stable(EXAMPLE, **({"experts": 4, "block_size_m": 8} | call))  # type: ignore[arg-type]
