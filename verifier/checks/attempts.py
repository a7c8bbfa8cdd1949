"""V408 to V415, the attempts log: every process started, chained, ended once, one record per valid one."""

from collections import defaultdict
from collections.abc import Iterator, Mapping

from ledger.bundle import ATTEMPTS
from verifier.bundle import AttemptLine, Bundle, Ended, Facts, Resumed, Started
from verifier.checks.check import check
from verifier.found import Found
from verifier.layout import Slot


@check("V408")
def chain(bundle: Bundle) -> Iterator[Found]:
    """V408: each line holds the sha256 of the line before, the first one zeros: nothing was taken out."""
    for number, expected, got in bundle.whole_log.breaks:
        what = f"{expected}, the digest of the line before"
        yield Found(code="V408", file=ATTEMPTS, key=f"{number}.previous", expected=what, got=got)


@check("V409")
def pairs(bundle: Bundle) -> Iterator[Found]:
    """V409: attempts are numbered upwards, started once, then ended once, none left open, as time goes on."""
    open_: dict[int, AttemptLine] = {}
    highest, clock = 0, 0
    for line in bundle.log:
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
            open_[event.attempt] = line
        elif isinstance(event, Ended) and open_.pop(event.attempt, None) is None:
            yield _found("V409", line, "attempt", "an attempt started and not ended yet", str(event.attempt))
    for number, line in open_.items():
        yield _found("V409", line, "attempt", f"an end of attempt {number} in a finished bundle", "none")


@check("V410")
def records_and_attempts(bundle: Bundle) -> Iterator[Found]:
    """V410: a record's attempt is in the log: valid, of the same process, with the record's digest."""
    started, ended = _by_number(bundle)
    for facts in bundle.facts:
        begin, end = started.get(facts.attempt), ended.get(facts.attempt)
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
    started, ended = _by_number(bundle)
    valid: dict[Slot, list[int]] = defaultdict(list)
    for number, end in ended.items():
        if end.outcome == "valid" and number in started:
            valid[started[number].slot].append(number)
    for slot, numbers in valid.items():
        if len(numbers) > 1:
            yield Found(
                code="V411",
                file=ATTEMPTS,
                expected=f"one valid attempt of {'.'.join(map(str, slot))}",
                got=f"attempts {', '.join(map(str, numbers))}",
                arms=frozenset({(slot[1], slot[2])}),
            )


@check("V413")
def planned_attempts(bundle: Bundle) -> Iterator[Found]:
    """V413: every attempt is one at a process of the plan: no cohort is mixed with another."""
    planned = bundle.planned.slots
    for line in bundle.log:
        if isinstance(line.event, Started) and line.event.slot not in planned:
            name = ".".join(map(str, line.event.slot))
            yield _found("V413", line, "cell", "a process of the plan", name)


@check("V414")
def outcomes(bundle: Bundle) -> Iterator[Found]:
    """V414: outcome, exit, signal, record and reason of an attempt say the same (ledger/bundle.py)."""
    for line in bundle.log:
        event = line.event
        if not isinstance(event, Ended):
            continue
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
    place = {slot: position for position, slot in enumerate(bundle.planned.slots)}
    seen: set[Slot] = set()
    last = -1
    for line in bundle.log:
        if not isinstance(line.event, Started) or (slot := line.event.slot) in seen or slot not in place:
            continue
        seen.add(slot)
        if place[slot] < last:
            expected = f"a process after number {last} of the lock"
            yield _found("V415", line, "cell", expected, f"number {place[slot]}, {'.'.join(map(str, slot))}")
        last = max(last, place[slot])


def _by_number(bundle: Bundle) -> tuple[Mapping[int, Started], Mapping[int, Ended]]:
    """The first start and the first end of every attempt; a second one is V409."""
    started: dict[int, Started] = {}
    ended: dict[int, Ended] = {}
    for line in bundle.log:
        if isinstance(line.event, Started):
            started.setdefault(line.event.attempt, line.event)
        elif isinstance(line.event, Ended):
            ended.setdefault(line.event.attempt, line.event)
    return started, ended


def _record(facts: Facts, key: str, expected: str, got: str) -> Found:
    return Found(code="V410", file=facts.path, key=key, expected=expected, got=got)


def _found(code: str, line: AttemptLine, key: str, expected: str, got: str) -> Found:
    return Found(code=code, file=ATTEMPTS, key=f"{line.number}.{key}", expected=expected, got=got)


CHECKS = (chain, pairs, records_and_attempts, one_valid_attempt, planned_attempts, outcomes, order)
