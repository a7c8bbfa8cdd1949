"""Arrival orders of the alignment's atomics: which route fetches a slot first (marlin-moe 2.4).

An arrival order is a permutation of all route ids. Only the large variant of the alignment reads it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from mechanism.kernel.errors import AlignmentError

WARP = 32  # lanes; thread t of the kernel handles route t, so a warp covers 32 consecutive routes


def index_order(routes: int) -> tuple[int, ...]:
    """Atomics resolve in route order: the kernel's native order, ascending in every expert."""
    return tuple(range(_count(routes)))


def warp_order(routes: int, warps: Sequence[int]) -> tuple[int, ...]:
    """Whole warps in the given order, lanes ascending inside each.

    Args:
        routes: Number of routes, tokens * top_k.
        warps: Permutation of the warp indices ``0 .. cdiv(routes, 32) - 1``.

    Raises:
        AlignmentError: ``warps`` is not such a permutation.
    """
    count = -(-_count(routes) // WARP)
    _permutation(warps, count, what="warps")
    return tuple(route for warp in warps for route in range(warp * WARP, min((warp + 1) * WARP, routes)))


def seeded_warp_order(routes: int, seed: int | str) -> tuple[int, ...]:
    """Whole warps in an order drawn from ``seed``, lanes ascending inside each."""
    count = -(-_count(routes) // WARP)
    return warp_order(routes, sorted(range(count), key=lambda warp: _draw(seed, f"warp:{warp}")))


def seeded(routes: int, seed: int | str) -> tuple[int, ...]:
    """Routes in the order of ``sha256(f"{seed}:{route}")``: the same on every machine, for ever."""
    return tuple(sorted(range(_count(routes)), key=lambda route: _draw(seed, str(route))))


def explicit(routes: int, order: Sequence[int]) -> tuple[int, ...]:
    """The given order, checked to be a permutation of all routes.

    Raises:
        AlignmentError: A route is missing, repeated or out of range.
    """
    _permutation(order, _count(routes), what="arrival")
    return tuple(order)


def relies_on_lane_order(arrival: Sequence[int], topk_ids: Sequence[Sequence[int]]) -> bool:
    """Whether two routes of one warp and one expert are served in descending lane order.

    Such an order is reachable in the programming model, but not known to occur: assumption U5.

    Args:
        arrival: Permutation of all routes.
        topk_ids: Expert of every (token, slot), shape (tokens, top_k).

    Raises:
        AlignmentError: ``arrival`` is not a permutation of the routes of ``topk_ids``.
    """
    experts = [expert for row in topk_ids for expert in row]
    _permutation(arrival, len(experts), what="arrival")
    latest: dict[tuple[int, int], int] = {}
    for route in arrival:
        counter = (route // WARP, experts[route])
        if latest.get(counter, -1) > route:
            return True
        latest[counter] = route
    return False


def _draw(seed: int | str, item: str) -> tuple[bytes, str]:
    # the item breaks ties, so that even a colliding digest leaves one order
    return hashlib.sha256(f"{seed}:{item}".encode()).digest(), item


def _count(routes: int) -> int:
    if type(routes) is not int or routes < 0:
        raise AlignmentError(f"routes: expected a count of 0 or more, got {routes!r}")
    return routes


def _permutation(order: Sequence[int], count: int, *, what: str) -> None:
    if len(order) != count:
        raise AlignmentError(f"{what}: expected a permutation of 0..{count - 1}, got {len(order)} entries")
    seen: set[int] = set()
    for item in order:
        if type(item) is not int or not 0 <= item < count:
            raise AlignmentError(f"{what}: expected a permutation of 0..{count - 1}, got entry {item!r}")
        if item in seen:
            raise AlignmentError(f"{what}: expected a permutation of 0..{count - 1}, got {item} twice")
        seen.add(item)
