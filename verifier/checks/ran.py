"""The records joined with their attempts, once for all checks that look at both."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from verifier.bundle import Bundle, Ended, Resumed, Started
from verifier.store.rows import Rows
from verifier.store.table import Table

_MOST_OPEN = 4096  # starts that are held until their ends; of more the log is asked again


class Ran(NamedTuple):
    """A record with its attempt, times in microseconds: which runner started it, and its end by that clock.

    `place`: of its facts. `end_us` is None where another runner wrote the end down: its clock may be another
    boot's. `first_us`, `last_us`: its markers. `started_us`: its start by the clock of `boot`. `agrees`:
    whether the attempt is valid, and slot, nonce and digest are the record's.
    """

    place: int
    runner: int
    begin_us: int
    end_us: int | None
    first_us: int
    last_us: int
    boot: str
    started_us: int
    agrees: bool


def joined(bundle: Bundle) -> Sequence[Ran]:
    """The records whose attempts are in the log, in the order in which they ended. Raises Absent."""
    return bundle.once("ran", lambda: Rows(_each(bundle), tuple, Ran._make))


def _each(bundle: Bundle) -> Iterator[Ran]:
    by_attempt = _by_attempt(bundle)
    taken = bytearray(len(bundle.facts))
    open_, held = Table(), dict[int, Started]()
    log = bundle.log
    resumed: list[int] = []  # the places of the lines at which another runner went on
    for line_place, line in enumerate(log, start=1):
        event = line.event
        if isinstance(event, Resumed):
            resumed.append(line_place)
        elif isinstance(event, Started):
            if not open_.first(event.attempt, line_place) and len(held) < _MOST_OPEN:
                held[event.attempt] = event
        elif isinstance(event, Ended) and (opened := open_.get(event.attempt)):
            open_.set(event.attempt, 0)
            start = held.pop(event.attempt, None) or log[opened - 1].event
            place = by_attempt.get(event.attempt)
            if not place or taken[place - 1] or not isinstance(start, Started):
                continue
            taken[place - 1] = 1
            facts = bundle.facts[place - 1]
            began = bisect_left(resumed, opened)
            yield Ran(
                place - 1,
                began,
                start.time_us,
                event.time_us if len(resumed) == began else None,
                *facts.passed,
                facts.process[0],
                facts.process[2],
                (event.outcome, start.slot, start.nonce, event.record)
                == ("valid", facts.slot, facts.nonce, facts.sha256),
            )


def _by_attempt(bundle: Bundle) -> Table:
    """The last record of each attempt that has markers, by its place from 1."""
    if bundle.census is not None:
        return bundle.census.by_attempt
    found = Table()
    for place, facts in enumerate(bundle.facts, start=1):
        if facts.markers:
            found.set(facts.attempt, place)
    return found
