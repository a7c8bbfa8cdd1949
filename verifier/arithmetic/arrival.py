"""Arrival orders of the alignment's atomics (ledger/plan.py), and when they rest on assumption U5."""

from collections.abc import Sequence
from typing import assert_never

from ledger.canonical import sha256
from ledger.plan import Arrival, ExplicitArrival, IndexArrival, SeededArrival, WarpArrival

WARP = 32


def arrival_order(arrival: Arrival, routes: int) -> tuple[int, ...]:
    """All routes in the order in which they are served. Raises ValueError if the plan gives no such order."""
    match arrival:
        case IndexArrival():
            return tuple(range(routes))
        case WarpArrival():
            warps = _permutation(arrival.warps, -(-routes // WARP), "warps")
            return tuple(
                route for warp in warps for route in range(warp * WARP, min(warp * WARP + WARP, routes))
            )
        case ExplicitArrival():
            return _permutation(arrival.routes, routes, "routes")
        case SeededArrival():
            return tuple(sorted(range(routes), key=lambda route: sha256(f"{arrival.seed}:{route}".encode())))
    assert_never(arrival)


def rests_on_lane_order(order: Sequence[int], experts: Sequence[int]) -> bool:
    """Whether two lanes of one warp that hit one counter are served out of lane order (marlin-moe U5)."""
    place = {route: position for position, route in enumerate(order)}
    latest: dict[tuple[int, int], int] = {}
    for route, expert in enumerate(experts):  # ascending, so the latest of a counter is its lane before
        before = latest.get((route // WARP, expert))
        if before is not None and place[before] > place[route]:
            return True
        latest[route // WARP, expert] = route
    return False


def _permutation(items: Sequence[int], count: int, what: str) -> tuple[int, ...]:
    if len(items) != count or set(items) != set(range(count)):
        raise ValueError(
            f"expected {what} that are a permutation of 0..{count - 1}, got {len(items)} entries,"
            f" {len(set(items))} of them distinct"
        )
    return tuple(items)
