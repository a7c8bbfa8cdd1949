"""Shares under a distribution: the exact one against enumeration, the draws against their marginals; laws."""

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mechanism.explain.errors import ExplainError
from mechanism.explain.expected import crowded_share
from mechanism.explain.exposure import crowded, padded_blocks
from mechanism.explain.gemms import split_of
from mechanism.explain.routing import Drawn, Given, counts, distribution, draw, probabilities, require_routes
from mechanism.kernel.schedule import Schedule

ZIPF = st.floats(min_value=0, max_value=4)


@given(experts=st.integers(1, 80), data=st.data(), exponent=ZIPF)
def test_probabilities_add_up_to_top_k(experts: int, data: st.DataObject, exponent: float) -> None:
    """No expert more often than once per token, none more likely than one of a better rank."""
    top_k = data.draw(st.integers(1, experts))
    likely = probabilities(Drawn(kind="zipf", exponent=exponent, seed=0), experts=experts, top_k=top_k)
    assert math.isclose(sum(likely), top_k)
    assert all(0 <= p <= 1 + 1e-12 for p in likely)
    assert list(likely) == sorted(likely, reverse=True)


@given(experts=st.integers(1, 40), data=st.data(), exponent=ZIPF, seed=st.integers(0, 99))
@settings(max_examples=60)
def test_a_token_has_distinct_experts(experts: int, data: st.DataObject, exponent: float, seed: int) -> None:
    top_k = data.draw(st.integers(1, experts))
    batch = draw(Drawn(kind="zipf", exponent=exponent, seed=seed), tokens=9, experts=experts, top_k=top_k)
    assert len(batch) == 9
    for row in batch:
        assert len(set(row)) == top_k
        assert set(row) <= set(range(experts))


def test_a_draw_is_the_same_on_every_machine() -> None:
    assert draw(distribution("uniform", seed=7), tokens=3, experts=16, top_k=2) == DRAWN


DRAWN = ((6, 14), (10, 6), (6, 3))


def test_draws_have_their_marginals() -> None:
    """Over 4,000 tokens in changing arrangements the hottest expert's share is within five standard errors."""
    drawn = distribution("zipf:1", seed=1)
    likely = probabilities(drawn, experts=8, top_k=2)
    held = sorted(counts(draw(drawn, tokens=4000, experts=8, top_k=2), 8), reverse=True)
    for got, p in zip(held, likely, strict=True):
        assert abs(got - 4000 * p) < 5 * math.sqrt(4000 * p * (1 - p)) + 1


@pytest.mark.parametrize(("tokens", "block"), [(3, 1), (4, 2), (5, 1), (5, 4)])
def test_crowded_share_is_exact(tokens: int, block: int) -> None:
    """Against the sum over every outcome of every expert's coin."""
    likely = (0.9, 0.7, 0.4)
    total = 0.0
    for p in likely:
        for coins in itertools.product((0, 1), repeat=tokens):
            hits = sum(coins)
            total += (hits if hits > block else 0) * p**hits * (1 - p) ** (tokens - hits)
    assert math.isclose(crowded_share(likely, tokens, block), total / (tokens * sum(likely)))


def test_crowded_share_of_large_batches_does_not_underflow() -> None:
    assert crowded_share([0.25] * 8, 100_000, 64) == 1.0
    assert crowded_share([1.0], 5, 64) == 0.0


@given(
    held=st.lists(st.integers(0, 40), min_size=1, max_size=12),
    grid=st.integers(1, 40),
    n_tiles=st.integers(1, 5),
    k_tiles=st.integers(1, 12),
)
def test_counts_of_a_schedule_are_those_of_its_tiles(
    held: list[int], grid: int, n_tiles: int, k_tiles: int
) -> None:
    """Against a plain reading of every tile: how many are split, where first, into how many slices."""
    for kernel in ("vllm==0.22.0", "vllm==0.11.0"):
        schedule = Schedule(
            n=64 * n_tiles,
            k=64 * k_tiles,
            tile_k=64,
            tile_n=64,
            grid=grid,
            padded_blocks=padded_blocks(held, 8),
            group=64,
            kernel=kernel,
        )
        tiles = [(tile.block, len(tile.slices)) for tile in schedule]
        found = split_of(schedule)
        assert found.split_tiles == sum(slices > 1 for _, slices in tiles)
        assert found.direct_tiles == sum(slices == 1 for _, slices in tiles)
        assert found.first_split_block == min((block for block, slices in tiles if slices > 1), default=None)
        assert found.most_slices == max((slices for _, slices in tiles), default=0)


@given(
    held=st.lists(st.integers(0, 40), min_size=1, max_size=12),
    grid=st.integers(1, 40),
    n_tiles=st.integers(1, 5),
    k_tiles=st.integers(1, 12),
)
def test_exposed_means_two_blocks_of_one_expert_are_cut_differently(
    held: list[int], grid: int, n_tiles: int, k_tiles: int
) -> None:
    """Against a plain reading: every block's slice lists, tile by tile."""
    blocks = padded_blocks(held, 8)
    schedule = Schedule(
        n=64 * n_tiles, k=64 * k_tiles, tile_k=64, tile_n=64, grid=grid, padded_blocks=blocks, group=64
    )
    lists: dict[int, list[tuple[int, ...]]] = {}
    for tile in schedule:
        lists.setdefault(tile.block, []).append(tuple(part.end for part in tile.slices))
    found = {item.expert: item for item in crowded(held, 8, {"w13": schedule})}
    assert set(found) == {expert for expert, count in enumerate(held) if count > 8}
    block = 0
    for expert, count in enumerate(held):
        own = range(block, block + -(-count // 8))
        block = own.stop
        if expert in found:
            assert found[expert].blocks == tuple(own)
            assert found[expert].exposed == (len({tuple(lists[b]) for b in own}) > 1)
            assert found[expert].at[0].classes == tuple(
                {frozenset({True}): "direct", frozenset({False}): "split"}.get(
                    frozenset(len(ends) == 1 for ends in lists[b]), "mixed"
                )
                for b in own
            )


@pytest.mark.parametrize("text", ["zipf:-1", "zipf:x", "normal", "uniform:2"])
def test_other_distributions_are_refused(text: str) -> None:
    with pytest.raises(ExplainError) as raised:
        distribution(text, seed=0)
    assert str(raised.value) == (
        f"--routing: expected uniform, zipf or zipf:EXPONENT with an exponent of 0 to 10, got {text}"
    )


@pytest.mark.parametrize(
    ("ids", "says"),
    [
        ((), "f: topk_ids: expected one row per token, got none"),
        (((0, 1, 2),), "f: topk_ids: expected 2 experts per token, got 3"),
        (((0, 9),), "f: topk_ids[0]: expected experts 0..3, got 9"),
        (((0, 1), (2, 2)), "f: topk_ids[1]: expected 2 distinct experts, got [2, 2]"),
    ],
)
def test_routes_of_another_layer_are_refused(ids: tuple[tuple[int, ...], ...], says: str) -> None:
    with pytest.raises(ExplainError) as raised:
        require_routes(Given(topk_ids=ids, source="f"), experts=4, top_k=2)
    assert str(raised.value) == says
