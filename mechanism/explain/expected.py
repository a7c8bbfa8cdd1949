"""Expected shares under a distribution: one exactly, one by drawn batches and called approximate."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mechanism.explain.exposure import crowded, padded_blocks
from mechanism.explain.gemms import NAMES
from mechanism.explain.routing import Drawn, counts, draw, probabilities
from mechanism.kernel.schedule import Schedule

BATCHES = 200  # drawn at most
ROUTES = 24_000  # drawn at most, over all batches: keeps an answer well under a second


@dataclass(frozen=True, kw_only=True, slots=True)
class Expected:
    """What a batch of this distribution exposes on average.

    Attributes:
        crowded_share: Share of routes on experts with more routes than a block holds; exact up to doubles.
        exposed_share: Share of routes that are exposed; approximate, the mean over `batches`. None where
            launches are not known.
        standard_error: Of that mean.
        batches: Drawn batches it rests on.
        affected: Share of drawn batches with an exposed route.
        method: Both methods in words.
    """

    crowded_share: float
    exposed_share: float | None
    standard_error: float | None
    batches: int
    affected: float | None
    method: str


def expected(
    drawn: Drawn,
    *,
    tokens: int,
    experts: int,
    top_k: int,
    block_size_m: int,
    schedules: Callable[[int], dict[str, Schedule]],
) -> Expected:
    """Both shares. `schedules` gives the schedules for a number of padded blocks, by GEMM name."""
    exact = crowded_share(probabilities(drawn, experts=experts, top_k=top_k), tokens, block_size_m)
    method = "crowded: exact, binomial counts of every expert"
    if len(schedules(1)) < len(NAMES):
        return Expected(
            crowded_share=exact,
            exposed_share=None,
            standard_error=None,
            batches=0,
            affected=None,
            method=method,
        )
    batches = max(2, min(BATCHES, ROUTES // (tokens * top_k)))
    shares = []
    for index in range(batches):
        held = counts(draw(drawn, tokens=tokens, experts=experts, top_k=top_k, index=index), experts)
        found = crowded(held, block_size_m, schedules(padded_blocks(held, block_size_m)))
        shares.append(sum(item.count for item in found if item.exposed) / (tokens * top_k))
    mean, error = _mean(shares)
    return Expected(
        crowded_share=exact,
        exposed_share=mean,
        standard_error=error,
        batches=batches,
        affected=sum(share > 0 for share in shares) / batches,
        method=f"{method}; exposed: approximate, mean of {batches} batches drawn from seed {drawn.seed}",
    )


def crowded_share(likely: Sequence[float], tokens: int, block_size_m: int) -> float:
    """Expected share of routes on experts with more than `block_size_m` routes, counts binomial.

    E[n; n > B] = M p P(Binomial(M - 1, p) >= B), expert by expert.
    """
    tails: dict[float, float] = {}
    total = 0.0
    for p in likely:
        if p not in tails:
            tails[p] = _at_least(tokens - 1, p, block_size_m)
        total += p * tails[p]
    return total / sum(likely)


def _at_least(trials: int, p: float, least: int) -> float:
    """P(Binomial(trials, p) >= least), by its complement."""
    if least > trials:
        return 0.0
    if p >= 1:
        return 1.0
    if p <= 0:
        return 0.0
    below = math.fsum(
        math.exp(
            math.lgamma(trials + 1)
            - math.lgamma(hits + 1)
            - math.lgamma(trials - hits + 1)
            + hits * math.log(p)
            + (trials - hits) * math.log1p(-p)
        )
        for hits in range(least)
    )
    return max(0.0, 1 - below)


def _mean(values: Sequence[float]) -> tuple[float, float]:
    """Mean and its standard error."""
    mean = math.fsum(values) / len(values)
    spread = math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return mean, math.sqrt(spread / len(values))
