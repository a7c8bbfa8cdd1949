"""Arrival orders of the atomics, and when one needs assumption U5."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mechanism.kernel import arrival
from mechanism.kernel.errors import AlignmentError
from tests.kernel.kernel_setup import few


@few
@given(routes=st.integers(0, 200), seed=st.integers())
def test_every_order_is_a_permutation(routes: int, seed: int) -> None:
    """Whichever way it was made."""
    for order in (
        arrival.index_order(routes),
        arrival.seeded(routes, seed),
        arrival.seeded_warp_order(routes, seed),
    ):
        assert sorted(order) == list(range(routes))
        assert arrival.explicit(routes, order) == order


def test_seeded_order_never_changes() -> None:
    """It is the order of sha256 digests, so it is the same on every machine and version."""
    assert arrival.seeded(8, 1) == (7, 4, 6, 5, 2, 3, 0, 1)
    assert arrival.seeded(8, "H1") != arrival.seeded(8, "H0")


def test_warps_come_whole_with_ascending_lanes() -> None:
    """The last warp may be short."""
    assert arrival.warp_order(70, (2, 0, 1)) == (*range(64, 70), *range(32), *range(32, 64))


@few
@given(data=st.data(), routes=st.integers(1, 100))
def test_whole_warps_never_need_the_lane_assumption(data: st.DataObject, routes: int) -> None:
    """Lanes ascend inside a warp, whatever the experts."""
    warps = data.draw(st.permutations(range(-(-routes // 32))))
    experts = [(data.draw(st.integers(0, 3)),) for _ in range(routes)]
    assert not arrival.relies_on_lane_order(arrival.warp_order(routes, warps), experts)


@pytest.mark.parametrize(
    ("order", "experts", "relies"),
    [
        ((1, 0), [0, 0], True),
        ((1, 0), [0, 1], False),
        ((2, 0, 1), [0, 1, 0], True),
        ((32, 0, *range(1, 32)), [0] * 33, False),
    ],
    ids=["same-expert", "other-expert", "not-adjacent", "other-warp"],
)
def test_lane_order_counts_per_warp_and_expert(
    order: tuple[int, ...],
    experts: list[int],
    relies: bool,  # noqa: FBT001
) -> None:
    """Descending lanes matter only on one counter and inside one warp."""
    assert arrival.relies_on_lane_order(order, [(expert,) for expert in experts]) is relies


@pytest.mark.parametrize(
    ("order", "message"),
    [
        ((0, 1), r"^arrival: expected a permutation of 0\.\.2, got 2 entries$"),
        ((0, 1, 1), r"^arrival: expected a permutation of 0\.\.2, got 1 twice$"),
        ((0, 1, 3), r"^arrival: expected a permutation of 0\.\.2, got entry 3$"),
        ((0, 1, True), r"^arrival: expected a permutation of 0\.\.2, got entry True$"),
    ],
)
def test_what_is_no_permutation_is_refused(order: tuple[int, ...], message: str) -> None:
    """The message says what is wrong with it."""
    with pytest.raises(AlignmentError, match=message):
        arrival.explicit(3, order)
