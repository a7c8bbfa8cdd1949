"""V417 to V419, clocks: a process ran while its attempt did, on its runner's machine, by that one's time."""

from array import array
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

from verifier.bundle import Bundle, Facts
from verifier.checks.check import check
from verifier.checks.ran import Ran, joined
from verifier.found import Found
from verifier.store.table import Firsts, Seen

#: The kernel gives a process's start in ticks of its clock (proc(5), field 22): microseconds, rounded down.
_TICK_US = 10_000
_MOST_BOOTS = 4096  # looked at together
_RARELY = 8


@check("V417")
def within_its_attempt(bundle: Bundle) -> Iterator[Found]:
    """V417: the first marker is not before the attempt's start, the last one not after its end."""
    for ran in joined(bundle):
        if ran.first_us < ran.begin_us:
            facts = bundle.facts[ran.place]
            wanted = f"at least {ran.begin_us}, when attempt {facts.attempt} was started"
            yield _found("V417", facts, "markers[0].time_us", wanted, ran.first_us)
        if ran.end_us is not None and ran.last_us > ran.end_us:
            facts = bundle.facts[ran.place]
            wanted = f"at most {ran.end_us}, when attempt {facts.attempt} had ended"
            yield _found("V417", facts, f"markers[{facts.markers - 1}].time_us", wanted, ran.last_us)


@check("V418")
def one_boot_per_runner(bundle: Bundle) -> Iterator[Found]:
    """V418: the processes that one runner started ran in one boot; a resumed run may have had several."""
    rans = joined(bundle)
    first = Firsts(rans)
    mixed = {ran.runner for place, ran in enumerate(rans) if first.of(ran.runner, place).boot != ran.boot}
    runners: dict[int, array[int]] = {}
    for ran in rans if mixed else ():
        if ran.runner in mixed:
            runners.setdefault(ran.runner, array("I")).append(ran.place)
    for places in runners.values():
        yield from _several_boots([bundle.facts[place] for place in places])


def _several_boots(mine: Sequence[Facts]) -> Iterator[Found]:
    """V418 for one runner."""
    boots = Counter(facts.process[0] for facts in mine)
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
    rans = joined(bundle)
    # in turns, if there are so many boots that a hostile bundle would fill the memory with them
    turns = len(Seen(ran.boot for ran in rans)) // _MOST_BOOTS + 1
    for turn in range(turns):
        boots: dict[str, _Boot] = {}
        for ran in rans:
            if turns == 1 or hash(ran.boot) % turns == turn:
                if (boot := boots.get(ran.boot)) is None:
                    boot = boots[ran.boot] = _Boot()
                boot.add(ran)
        for boot in boots.values():
            yield from _asleep(boot, bundle.facts)


class _Boot:
    """The processes of one boot, in the order in which they ended: 28 bytes each."""

    def __init__(self) -> None:
        self.places, self.begins = array("I"), array("q")
        self.firsts, self.starts = array("q"), array("q")

    def add(self, ran: Ran) -> None:
        """Add one."""
        self.places.append(ran.place)
        self.begins.append(ran.begin_us)
        self.firsts.append(ran.first_us)
        self.starts.append(ran.started_us)

    def shows(self, which: int) -> int:
        """How far, at least, the one clock was ahead of the other when this process passed its first marker.

        With the process in the lowest 32 bits.
        """
        return (self.starts[which] - self.firsts[which] << 32) + which


def _ascending(times: "array[int]") -> "array[int]":
    """Which time comes when; of equal ones the first one first."""
    if all(before <= after for before, after in pairwise(times)):
        return array("I", range(len(times)))
    keyed = sorted((time << 32) + which for which, time in enumerate(times))
    return array("I", (key & 0xFFFFFFFF for key in keyed))


def _asleep(boot: _Boot, facts: Sequence[Facts]) -> Iterator[Found]:
    """V419 in one boot. `shown`: what each process that had surely started before shows at least, sorted.

    As long as none of them shows more than the next one allows, the greatest is all that must be known: the
    others are sorted when they are needed, and kept so if that happens often.
    """
    by_marker = _ascending(boot.firsts)
    shown: list[int] | None = None
    greatest: int | None = None
    gone: set[int] = set()
    behind = needed = 0
    for which in _ascending(boot.begins):
        begin_us, started_us = boot.begins[which], boot.starts[which]
        while behind < len(by_marker) and boot.firsts[by_marker[behind]] <= begin_us:
            shows = boot.shows(by_marker[behind])
            if shown is not None:
                insort(shown, shows)
            greatest = shows if greatest is None else max(greatest, shows)
            behind += 1
        most = started_us + _TICK_US - begin_us
        if greatest is None or greatest >> 32 <= most:
            continue
        if shown is None:
            shown = sorted(boot.shows(one) for one in by_marker[:behind] if one not in gone)
        at = bisect_left(shown, most + 1 << 32)
        mine = facts[boot.places[which]]
        if 2 * (len(shown) - at) > len(shown):
            model = facts[boot.places[shown[-1] & 0xFFFFFFFF]]
            least = begin_us + (shown[-1] >> 32) - _TICK_US
            wanted = f"at least {least}, by the clock that {model.path} shows"
            yield _found("V419", mine, "process.started_us", wanted, started_us, model)
        else:
            against = [one & 0xFFFFFFFF for one in shown[at:]]
            del shown[at:]
            gone.update(against)
            greatest = shown[-1] if shown else None
            for earlier in against:
                wanted = f"at most {boot.firsts[earlier] + most}, by the clock that {mine.path} shows"
                got, said = boot.starts[earlier], facts[boot.places[earlier]]
                yield _found("V419", said, "process.started_us", wanted, got, mine)
        needed += 1
        shown = shown if needed > _RARELY else None


def _found(code: str, facts: Facts, key: str, expected: str, got: object, *others: Facts) -> Found:
    arms = frozenset({facts.arm, *(other.arm for other in others)})
    return Found(code=code, file=facts.path, key=key, expected=expected, got=str(got), arms=arms)


CHECKS = (within_its_attempt, one_boot_per_runner, one_clock_per_boot)
