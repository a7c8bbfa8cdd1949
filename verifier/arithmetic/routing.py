"""Whether a routing is one of a plan's fixture: pinned routes pinned, the others dealt where they may be.

Which expert of a range a free route gets is the recipe's draw; redrawing it is what re-execution is for.
"""

from collections.abc import Iterator, Sequence

from ledger.plan import AnyFixture, Fixture
from ledger.record import RoutingFile
from verifier.arithmetic.rules import Fault

_INFINITY = 0x7F800000  # fp32 bits: finite positive numbers lie between 0 and this


def routing_faults(fixture: AnyFixture, routing: RoutingFile) -> Iterator[Fault]:
    """Every difference, as (key, expected, got).

    Steps: 1 sizes, 2 shape, 3 tokens, 4 pinned, 5 dealt, 6 weights.
    """
    for name in ("tokens", "top_k", "experts"):
        if (got := getattr(routing, name)) != (expected := getattr(fixture, name)):
            yield name, str(expected), str(got)
    rows, top_k = routing.topk_ids, fixture.top_k
    for key, values in (("topk_ids", rows), ("topk_weights_bits", routing.topk_weights_bits)):
        if len(values) != fixture.tokens or any(len(row) != top_k for row in values):
            yield key, f"{fixture.tokens} rows of {top_k}", f"{len(values)} rows of {_lengths(values)}"
            return
    for token, row in enumerate(rows):
        if len(set(row)) != len(row) or max(row) >= fixture.experts:
            yield f"topk_ids[{token}]", f"{top_k} distinct experts below {fixture.experts}", str(list(row))
            return
    ids = [expert for row in rows for expert in row]
    if isinstance(fixture, Fixture):  # an imported one has no recipe: its routing is held by digest
        yield from _recipe(fixture, ids)
    for token, row in enumerate(routing.topk_weights_bits):
        if not all(0 < bits < _INFINITY for bits in row):
            yield f"topk_weights_bits[{token}]", "bits of finite positive fp32 numbers", str(list(row))


def _recipe(fixture: Fixture, ids: Sequence[int]) -> Iterator[Fault]:
    """Steps 4 and 5: the recipe deals every drawn expert at least once."""
    pinned: set[int] = set()
    for entry in fixture.routing.pinned:
        for route in entry.routes:
            pinned.add(route)
            got = ids[route] if route < len(ids) else None
            if got != entry.expert:
                yield _place(route, fixture.top_k), f"the pinned expert {entry.expert}", str(got)
    ranges = fixture.routing.dealt
    drawn: list[set[int]] = [set() for _ in ranges]
    for route, expert in enumerate(ids):
        if route in pinned:
            continue
        home = next((i for i, dealt in enumerate(ranges) if dealt.first <= expert <= dealt.last), None)
        if home is None:
            yield _place(route, fixture.top_k), "an expert of a dealt range", str(expert)
        else:
            drawn[home].add(expert)
    for dealt, experts in zip(ranges, drawn, strict=True):
        if len(experts) != dealt.count:
            what = f"{dealt.count} experts dealt from {dealt.first}..{dealt.last}"
            yield "topk_ids", what, f"{len(experts)}"


def _place(route: int, top_k: int) -> str:
    return f"topk_ids[{route // top_k}][{route % top_k}]"


def _lengths(values: Sequence[Sequence[int]]) -> str:
    lengths = sorted({len(row) for row in values})
    return "lengths " + ", ".join(map(str, lengths[:6]))
