"""V417 to V419, clocks: a process ran while its attempt did, on its runner's machine, by that one's time."""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from verifier.bundle import Bundle, Ended, Facts, Resumed, Started
from verifier.checks.check import check
from verifier.found import Found

#: The kernel gives a process's start in ticks of its clock (proc(5), field 22): microseconds, rounded down.
_TICK_US = 10_000


@dataclass(frozen=True, kw_only=True, slots=True)
class _Ran:
    """A record with its attempt, times in microseconds: which runner started it, and its end by that clock.

    `end_us` is None where another runner wrote the end down: its clock may be another boot's.
    """

    facts: Facts
    runner: int
    begin_us: int
    end_us: int | None


@check("V417")
def within_its_attempt(bundle: Bundle) -> Iterator[Found]:
    """V417: the first marker is not before the attempt's start, the last one not after its end."""
    for ran in _ran(bundle):
        first, last = ran.facts.passed
        if first < ran.begin_us:
            wanted = f"at least {ran.begin_us}, when attempt {ran.facts.attempt} was started"
            yield _found("V417", ran.facts, "markers[0].time_us", wanted, first)
        if ran.end_us is not None and last > ran.end_us:
            wanted = f"at most {ran.end_us}, when attempt {ran.facts.attempt} had ended"
            yield _found("V417", ran.facts, f"markers[{ran.facts.markers - 1}].time_us", wanted, last)


@check("V418")
def one_boot_per_runner(bundle: Bundle) -> Iterator[Found]:
    """V418: the processes that one runner started ran in one boot; a resumed run may have had several."""
    runners: dict[int, list[Facts]] = {}
    for ran in _ran(bundle):
        runners.setdefault(ran.runner, []).append(ran.facts)
    for mine in runners.values():
        boots = Counter(facts.process[0] for facts in mine)
        if len(boots) == 1:
            continue
        usual = boots.most_common(1)[0][0]
        model = next(facts for facts in mine if facts.process[0] == usual)
        for facts in mine:
            if facts.process[0] != usual:
                wanted = f"{usual}, as in {model.path}, which the same runner started"
                yield _found("V418", facts, "process.boot_id", wanted, facts.process[0], model)


@check("V419")
def one_clock_per_boot(bundle: Bundle) -> Iterator[Found]:
    """V419: starts are told by the boot's clock, markers by one that stands still while the machine sleeps.

    The first is ahead of the second by all the sleep since the boot, which never gets less: at least by a
    start less its first marker, at most by a start (and a tick) less the start of its attempt. So what one
    process shows at least, a later one must allow; of two that disagree, the one that most others agree with
    is believed. A start moved by less than a process takes to start goes unnoticed.
    """
    boots: dict[str, list[_Ran]] = {}
    for ran in _ran(bundle):
        boots.setdefault(ran.facts.process[0], []).append(ran)
    for of_boot in boots.values():
        yield from _asleep(of_boot)


def _asleep(of_boot: list[_Ran]) -> Iterator[Found]:
    """V419 in one boot. `shown`: what each process that had surely started before shows at least."""
    shown: list[tuple[int, int]] = []
    by_marker = sorted(range(len(of_boot)), key=lambda place: of_boot[place].facts.passed[0])
    behind = 0
    for ran in sorted(of_boot, key=lambda ran: ran.begin_us):
        while behind < len(by_marker) and of_boot[by_marker[behind]].facts.passed[0] <= ran.begin_us:
            earlier = of_boot[by_marker[behind]].facts
            insort(shown, (earlier.process[2] - earlier.passed[0], by_marker[behind]))
            behind += 1
        facts, most = ran.facts, ran.facts.process[2] + _TICK_US - ran.begin_us
        at = bisect_left(shown, (most + 1, -1))
        against = [of_boot[place].facts for _, place in shown[at:]]
        if 2 * len(against) > len(shown):
            least, model = ran.begin_us + shown[-1][0] - _TICK_US, against[-1]
            wanted = f"at least {least}, by the clock that {model.path} shows"
            yield _found("V419", facts, "process.started_us", wanted, facts.process[2], model)
            continue
        del shown[at:]
        for earlier in against:
            wanted = f"at most {earlier.passed[0] + most}, by the clock that {facts.path} shows"
            yield _found("V419", earlier, "process.started_us", wanted, earlier.process[2], facts)


def _ran(bundle: Bundle) -> Iterator[_Ran]:
    """The records whose attempts are in the log, in the order of their starts. Raises Absent."""
    by_attempt = {facts.attempt: facts for facts in bundle.facts if facts.markers}
    open_: dict[int, tuple[int, int]] = {}
    runner = 0
    for line in bundle.log:
        event = line.event
        if isinstance(event, Resumed):
            runner += 1
        elif isinstance(event, Started):
            open_.setdefault(event.attempt, (runner, event.time_us))
        elif isinstance(event, Ended) and event.attempt in open_:
            began, begin_us = open_.pop(event.attempt)
            facts = by_attempt.pop(event.attempt, None)
            if facts is not None:
                end_us = event.time_us if runner == began else None
                yield _Ran(facts=facts, runner=began, begin_us=begin_us, end_us=end_us)


def _found(code: str, facts: Facts, key: str, expected: str, got: object, *others: Facts) -> Found:
    arms = frozenset({facts.arm, *(other.arm for other in others)})
    return Found(code=code, file=facts.path, key=key, expected=expected, got=str(got), arms=arms)


CHECKS = (within_its_attempt, one_boot_per_runner, one_clock_per_boot)
