"""The routing that is asked about: given by the caller, or drawn from a distribution and a seed.

A distribution gives every expert a probability that a token is routed to it, `top_k` in all. One token's
experts are distinct, tokens are independent, so an expert's routes are Binomial(tokens, probability),
exactly, whatever the joint law of one token's experts is (here: systematic sampling in a drawn order).
"""

from __future__ import annotations

import bisect
import functools
import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass

from mechanism.explain.errors import ExplainError

TopkIds = tuple[tuple[int, ...], ...]
REARRANGED = 256  # a large batch is drawn in at most so many orders of the experts


@dataclass(frozen=True, kw_only=True, slots=True)
class Given:
    """Routes as the caller recorded them. `source` names the file."""

    topk_ids: TopkIds
    source: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Drawn:
    """Routes drawn from `kind`: uniform, or zipf with `exponent` over ranks that are drawn too."""

    kind: str
    exponent: float
    seed: int

    def __str__(self) -> str:
        shape = "uniform" if self.kind == "uniform" else f"zipf with exponent {self.exponent:g}"
        return f"{shape}, seed {self.seed}"


Routing = Given | Drawn


def distribution(text: str, *, seed: int) -> Drawn:
    """`uniform`, `zipf` (exponent 1) or `zipf:S` as a distribution.

    Raises:
        ExplainError: Another word, or an exponent outside 0..10.
    """
    kind, _, rest = text.partition(":")
    if kind == "uniform" and not rest:
        return Drawn(kind="uniform", exponent=0.0, seed=seed)
    try:
        exponent = float(rest or "1")
    except ValueError:
        exponent = -1.0
    if kind != "zipf" or not 0 <= exponent <= 10:
        raise ExplainError(
            f"--routing: expected uniform, zipf or zipf:EXPONENT with an exponent of 0 to 10, got {text}"
        )
    return Drawn(kind="zipf", exponent=exponent, seed=seed)


def probabilities(drawn: Drawn, *, experts: int, top_k: int) -> tuple[float, ...]:
    """Per rank, the probability that a token is routed to it: proportional to rank^-exponent, capped at 1."""
    weights = [(rank + 1) ** -drawn.exponent for rank in range(experts)]
    certain = 0  # ranks that reach 1: what they cannot take goes to the others
    while certain < top_k:
        scale = (top_k - certain) / sum(weights[certain:])
        over = sum(scale * weight > 1 for weight in weights[certain:])
        if not over:
            return (1.0,) * certain + tuple(scale * weight for weight in weights[certain:])
        certain = min(certain + over, top_k)
    return (1.0,) * certain + (0.0,) * (experts - certain)


@functools.lru_cache(maxsize=1)  # the batch asked about is also the first of those averaged over
def draw(drawn: Drawn, *, tokens: int, experts: int, top_k: int, index: int = 0) -> TopkIds:
    """Batch number `index` of the distribution: the same on every machine."""
    chance = random.Random(f"{drawn.seed}:{index}")  # noqa: S311 - a reproducible draw, no secret
    likely = probabilities(drawn, experts=experts, top_k=top_k)
    ranks = _shuffled(list(range(experts)), chance)  # which expert is hot is drawn too
    hold = max(1, tokens // REARRANGED)
    order, edges = list(range(experts)), [0.0]
    batch = []
    for token in range(tokens):
        if token % hold == 0:
            order = _shuffled(order, chance)
            edges = list(itertools.accumulate(likely[rank] for rank in order))
        batch.append(tuple(ranks[order[place]] for place in _systematic(edges, top_k, chance.random())))
    return tuple(batch)


def counts(topk_ids: TopkIds, experts: int) -> tuple[int, ...]:
    """Routes of every expert."""
    held = [0] * experts
    for row in topk_ids:
        for expert in row:
            held[expert] += 1
    return tuple(held)


def require_routes(given: Given, *, experts: int, top_k: int) -> None:
    """Refuse routes that are not this layer's.

    Raises:
        ExplainError: No rows, another width, an id out of range, an expert twice in a row.
    """
    if not given.topk_ids:
        raise ExplainError(f"{given.source}: topk_ids: expected one row per token, got none")
    for token, row in enumerate(given.topk_ids):
        if len(row) != top_k:
            raise ExplainError(
                f"{given.source}: topk_ids: expected {top_k} experts per token, got {len(row)}"
            )
        for expert in row:
            if not 0 <= expert < experts:
                raise ExplainError(
                    f"{given.source}: topk_ids[{token}]: expected experts 0..{experts - 1}, got {expert}"
                )
        if len(set(row)) != top_k:
            raise ExplainError(
                f"{given.source}: topk_ids[{token}]: expected {top_k} distinct experts, got {list(row)}"
            )


def _systematic(edges: Sequence[float], count: int, start: float) -> list[int]:
    """The distinct places whose interval of the accumulated probabilities holds start, start + 1, ..."""
    places: list[int] = []
    taken: set[int] = set()
    for step in range(count):
        place = min(bisect.bisect_right(edges, start + step), len(edges) - 1)
        while place in taken:  # only where rounding of a sum of doubles touches an edge
            place = (place + 1) % len(edges)
        places.append(place)
        taken.add(place)
    return places


def _shuffled(items: list[int], chance: random.Random) -> list[int]:
    """Fisher and Yates by `random()` alone, whose numbers Python keeps from version to version."""
    items = items.copy()
    for last in range(len(items) - 1, 0, -1):
        other = int(chance.random() * (last + 1))
        items[last], items[other] = items[other], items[last]
    return items
