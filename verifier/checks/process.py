"""V406, V407, V412 and V416, the process: isolated, with the plan's environment, all markers passed."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from ledger.record import MARKERS, SYMBOLS, Record
from verifier.bundle import Bundle, Facts
from verifier.checks.check import check, record_check
from verifier.found import Found, show

#: Interpreter flags of an isolated child (-s -P): nothing from the user's site, nothing from its folder.
_FLAGS = {"no_user_site": 1, "safe_path": 1}
_SEED = "PYTHONHASHSEED"


@record_check("V406")
def environment(bundle: Bundle, record: Record) -> Iterator[Found]:
    """V406: the environment is the plan's, whole; the flags isolate; the hash seed is the environment's."""
    wanted, got = bundle.plan.environment, record.process.environment
    for name in sorted(wanted.keys() | got.keys()):
        if wanted.get(name) != got.get(name):
            yield _found(record, f"environment.{show(name)}", _value(wanted.get(name)), _value(got.get(name)))
    for flag, value in _FLAGS.items():
        if record.process.flags.get(flag) != value:
            yield _found(record, f"flags.{flag}", str(value), _value(record.process.flags.get(flag)))
    seed = wanted.get(_SEED) or "random"
    if record.process.hash_seed != seed:
        yield _found(record, "hash_seed", f"{seed}, the plan's {_SEED}", show(record.process.hash_seed))


def _found(record: Record, key: str, expected: str, got: str) -> Found:
    return Found(code="V406", file=record.path, key=f"process.{key}", expected=expected, got=got)


def _value(value: object) -> str:
    return "not set" if value is None else show(str(value))


@record_check("V407")
def markers(_bundle: Bundle, record: Record) -> Iterator[Found]:
    """V407: all seven markers, in their order, at times that never run backwards."""
    names = tuple(marker.name for marker in record.markers)
    if names != MARKERS:
        yield Found(
            code="V407",
            file=record.path,
            key="markers",
            expected=", ".join(MARKERS),
            got=show(", ".join(names)),
        )
        return
    for place, (before, after) in enumerate(pairwise(record.markers), start=1):
        if after.time_us < before.time_us:
            yield Found(
                code="V407",
                file=record.path,
                key=f"markers[{place}].time_us",
                expected=f"at least {before.time_us}, when {before.name} was passed",
                got=f"{after.time_us}",
            )


@record_check("V412")
def command_line(_bundle: Bundle, record: Record) -> Iterator[Found]:
    """V412: the command line starts the interpreter with -s -P, and its paths are symbolic."""
    argv = record.process.argv
    if argv[0] != SYMBOLS[0]:
        yield _argv(record, 0, SYMBOLS[0], argv[0])
    for flag in ("-s", "-P"):
        if flag not in argv[1:]:
            yield _argv(record, None, f"{flag} among the interpreter's options", " ".join(argv))
    for place, word in enumerate(argv[1:], start=1):
        if word.startswith(("/", "~")) or "=/" in word:
            yield _argv(record, place, f"a path that starts with one of {', '.join(SYMBOLS)}", word)


def _argv(record: Record, place: int | None, expected: str, got: str) -> Found:
    key = "process.argv" if place is None else f"process.argv[{place}]"
    return Found(code="V412", file=record.path, key=key, expected=expected, got=show(got))


@check("V416")
def containment(bundle: Bundle) -> Iterator[Found]:
    """V416: all processes of a cohort were held in the same way: none may what others may not."""
    return bundle.look(_containment)


def _containment(records: Sequence[Facts]) -> Iterator[Found]:
    first = records[0] if records else None
    for facts in records:
        if first is None or facts.containment is first.containment or facts.containment == first.containment:
            continue
        mine, theirs = (item.containment.model_dump(mode="json") for item in (facts, first))
        for key in (key for key in mine if mine[key] != theirs[key]):
            yield Found(
                code="V416",
                file=facts.path,
                key=f"process.containment.{key}",
                expected=f"{_value(theirs[key])}, as in {first.path}",
                got=_value(mine[key]),
            )


CHECKS = (environment, markers, command_line, containment)
