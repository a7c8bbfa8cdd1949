"""V408 to V415, the attempts log: every process started, chained, ended once, one record per valid one."""

from collections import defaultdict
from collections.abc import Iterator

from ledger.bundle import ATTEMPTS
from verifier.bundle import AttemptLine, Bundle, Ended, Facts, Resumed, Started
from verifier.checks.check import check
from verifier.checks.ran import joined
from verifier.found import Found
from verifier.layout import Slot
from verifier.store import disk
from verifier.store.table import Table, hashed

_MOST_OPEN = 4096  # attempts at once; of more the checks themselves must tell


@check("V408")
def chain(bundle: Bundle) -> Iterator[Found]:
    """V408: each line holds the sha256 of the line before, the first one zeros: nothing was taken out."""
    for number, expected, got in bundle.whole_log.breaks:
        what = f"{expected}, the digest of the line before"
        yield Found(code="V408", file=ATTEMPTS, key=f"{number}.previous", expected=what, got=got)


@check("V409")
def pairs(bundle: Bundle) -> Iterator[Found]:
    """V409: attempts are numbered upwards, started once, then ended once, none left open, as time goes on."""
    if _sound(bundle):
        return
    # where each attempt that is not ended yet was started: since when it is open, and the last time
    since, latest = Table(), Table()
    opened = highest = clock = 0
    for place, line in enumerate(bundle.log, start=1):
        event = line.event
        if isinstance(event, Resumed):
            clock = event.time_us  # another runner, perhaps after a boot: its clock starts anew
        elif event.time_us < clock:
            yield _found(
                "V409",
                line,
                "time_us",
                f"at least {clock}, as in the line before",
                str(event.time_us),
            )
        clock = max(clock, event.time_us)
        if isinstance(event, Started):
            if event.attempt <= highest:
                yield _found("V409", line, "attempt", f"a number above {highest}", str(event.attempt))
            highest = max(highest, event.attempt)
            opened += not since.first(event.attempt, place)
            latest.set(event.attempt, place)
        elif isinstance(event, Ended):
            if not since.get(event.attempt):
                yield _found(
                    "V409", line, "attempt", "an attempt started and not ended yet", str(event.attempt)
                )
            else:
                since.set(event.attempt, 0)
                opened -= 1
    if opened:
        yield from _open(bundle, since, latest)


def _open(bundle: Bundle, since: Table, latest: Table) -> Iterator[Found]:
    """V409: the attempts that were never ended."""
    for place, line in enumerate(bundle.log, start=1):
        event = line.event
        if isinstance(event, Started) and since.get(event.attempt) == place:
            last, number = bundle.log[latest.get(event.attempt) - 1], event.attempt
            yield _found("V409", last, "attempt", f"an end of attempt {number} in a finished bundle", "none")


@check("V410")
def records_and_attempts(bundle: Bundle) -> Iterator[Found]:
    """V410: a record's attempt is in the log: valid, of the same process, with the record's digest."""
    log = bundle.whole_log
    if (
        _sound(bundle)
        and len(joined(bundle)) == len(bundle.facts)
        and all(one.agrees for one in joined(bundle))
    ):
        return
    for facts in bundle.facts:
        begin, end = log.start_of(facts.attempt), log.end_of(facts.attempt)
        if begin is None or end is None:
            yield _record(facts, "attempt", "an attempt in the log, started and ended", str(facts.attempt))
            continue
        slot = begin.slot
        pairs = (
            ("attempt", "valid", end.outcome),
            (
                "attempt",
                f"the attempt of {'.'.join(map(str, facts.slot))}",
                f"that of {'.'.join(map(str, slot))}",
            ),
            ("process.nonce", begin.nonce, facts.nonce),
            ("attempt", f"sha256 {end.record}, as the log says", f"sha256 {facts.sha256}"),
        )
        same = (
            end.outcome == "valid",
            slot == facts.slot,
            begin.nonce == facts.nonce,
            end.record == facts.sha256,
        )
        for (key, expected, got), agrees in zip(pairs, same, strict=True):
            if not agrees:
                yield _record(facts, key, expected, got)


@check("V411")
def one_valid_attempt(bundle: Bundle) -> Iterator[Found]:
    """V411: a process of the plan has one valid attempt at most: which of two is meant cannot be told."""
    if _sound(bundle):
        return
    first, several = Table(), set[int]()
    for _, slot in _valid(bundle):
        if first.first(hashed(slot), 1):
            several.add(hashed(slot))
    valid: dict[Slot, list[int]] = defaultdict(list)
    for number, slot in _valid(bundle) if several else ():
        if hashed(slot) in several:
            valid[slot].append(number)
    for slot, numbers in valid.items():
        if len(numbers) > 1:
            yield Found(
                code="V411",
                file=ATTEMPTS,
                expected=f"one valid attempt of {'.'.join(map(str, slot))}",
                got=f"attempts {', '.join(map(str, numbers))}",
                arms=frozenset({(slot[1], slot[2])}),
            )


def _valid(bundle: Bundle) -> Iterator[tuple[int, Slot]]:
    """The attempts that ended as valid, by their first ends and starts; a second one is V409."""
    log = bundle.whole_log
    for place, line in enumerate(log.lines, start=1):
        end = line.event
        if not isinstance(end, Ended) or end.outcome != "valid" or log.ended.get(end.attempt) != place:
            continue
        if (begin := log.start_of(end.attempt)) is not None:
            yield end.attempt, begin.slot


@check("V413")
def planned_attempts(bundle: Bundle) -> Iterator[Found]:
    """V413: every attempt is one at a process of the plan: no cohort is mixed with another."""
    planned = bundle.planned.cells
    for line in bundle.log if not _sound(bundle) else ():
        if isinstance(line.event, Started) and planned.get(line.event.slot) is None:
            name = ".".join(map(str, line.event.slot))
            yield _found("V413", line, "cell", "a process of the plan", name)


@check("V414")
def outcomes(bundle: Bundle) -> Iterator[Found]:
    """V414: outcome, exit, signal, record and reason of an attempt say the same (ledger/bundle.py)."""
    for line in bundle.log if not _sound(bundle) else ():
        if isinstance(line.event, Ended):
            yield from _outcome(line, line.event)


def _outcome(line: AttemptLine, event: Ended) -> Iterator[Found]:
    """V414 for one end."""
    valid = event.outcome == "valid"
    rules = (
        (
            "record",
            "a record's digest" if valid else "no record",
            event.record,
            (event.record is None) != valid,
        ),
        (
            "exit_code",
            "0",
            event.exit_code,
            event.outcome not in {"valid", "invalid"} or event.exit_code == 0,
        ),
        (
            "exit_code",
            "an exit that is not 0",
            event.exit_code,
            event.outcome != "failed" or event.exit_code != 0,
        ),
        ("signal", "the signal", event.signal, event.outcome != "killed" or event.signal is not None),
        ("signal", "no signal", event.signal, not valid or event.signal is None),
        ("reason", "a reason in words", event.reason, valid or event.reason.strip()),
        ("reason", "no reason", event.reason, not valid or not event.reason),
    )
    for key, expected, got, holds in rules:
        if not holds:
            yield _found("V414", line, key, f"{expected}, for outcome {event.outcome}", str(got))


@check("V415")
def order(bundle: Bundle) -> Iterator[Found]:
    """V415: processes were first started in the lock's order, so that drift cannot pose as a treatment."""
    planned = bundle.planned.cells
    seen = bytearray(len(planned))
    last = -1
    for line in bundle.log if not _sound(bundle) else ():
        if not isinstance(line.event, Started) or (place := planned.place(line.event.slot)) is None:
            continue
        if seen[place]:
            continue
        seen[place] = 1
        if place < last:
            expected = f"a process after number {last} of the lock"
            got = f"number {place}, {'.'.join(map(str, line.event.slot))}"
            yield _found("V415", line, "cell", expected, got)
        last = max(last, place)


def _sound(bundle: Bundle) -> bool:
    """Whether V409, V411 and V413 to V415 find nothing, as far as one look at every line can tell."""
    many = len(bundle.log) > disk.MANY and bundle.plan_workings is not None
    return many and bundle.once("sound log", lambda: _is_sound(bundle))


def _is_sound(bundle: Bundle) -> bool:
    planned = bundle.planned.cells
    started, valid = bytearray(len(planned)), bytearray(len(planned))
    open_: dict[int, int] = {}  # the places in the plan of attempts not ended yet
    highest = clock = 0
    last = -1
    for line in bundle.log:
        event = line.event
        if isinstance(event, Resumed):
            clock = event.time_us
            continue
        if event.time_us < clock:
            return False
        clock = event.time_us
        if isinstance(event, Started):
            place = planned.place(event.slot)
            if event.attempt <= highest or place is None or len(open_) > _MOST_OPEN:
                return False
            if not started[place] and place < last:
                return False
            started[place], last, highest = 1, max(place, last), event.attempt
            open_[event.attempt] = place
        else:
            place = open_.pop(event.attempt, None)
            if place is None or next(_outcome(line, event), None) is not None:
                return False
            if event.outcome == "valid":
                if valid[place]:
                    return False
                valid[place] = 1
    return not open_


def _record(facts: Facts, key: str, expected: str, got: str) -> Found:
    return Found(code="V410", file=facts.path, key=key, expected=expected, got=got)


def _found(code: str, line: AttemptLine, key: str, expected: str, got: str) -> Found:
    return Found(code=code, file=ATTEMPTS, key=f"{line.number}.{key}", expected=expected, got=got)


CHECKS = (chain, pairs, records_and_attempts, one_valid_attempt, planned_attempts, outcomes, order)
