"""Whether what came back from a cold process is a valid replicate: all is checked before anything moves.

The checks, in order; the first that fails is the attempt's reason:
1 the process ended by itself with exit code 0 and left nobody behind; 2 it wrote one record and the files
that belong to it, and nothing else; 3 the record is canonical and of its schema; 4 it is the record of
this very process; 5 the treatment is the one asked for; 6 capture and alignment are what it names; 7 its
software is the cohort's, and it was held as the cohort was.
"""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ledger.bundle import Outcome as Verdict
from ledger.canonical import CanonicalError, parse_canonical, sha256
from ledger.fault import FaultsError
from ledger.model import ModelT, read_json
from ledger.record import MARKERS, AlignmentFile, BuildFile, Containment, Record
from mechanism.campaign.bundle import Staged
from mechanism.campaign.interrupt import STOPPING
from mechanism.process.launch import Launch, Outcome
from mechanism.process.request import BUILD, REQUEST, CellRequest
from mechanism.process.symbols import Symbols
from mechanism.values import frozen

PATH_MAX = 4096  # bytes, limits.h


@frozen
class Refused:
    """An attempt without a valid record.

    `foreign`: its software or containment is not the cohort's, and no further process's would be.
    """

    verdict: Verdict
    reason: str
    foreign: bool = False


@frozen
class Cohort:
    """What all processes of a bundle share: its build.json, and how they were held. None before the first."""

    build: bytes | None
    containment: Containment | None


@frozen
class Accepted:
    """A valid replicate: its record, the bytes of it and of the cohort's build.json, the files to promote."""

    record: Record
    data: bytes
    build: bytes
    staged: Staged


class _Unfit(Exception):  # noqa: N818 - never leaves this module
    """One failed check, in words."""


def examine(
    outcome: Outcome, launch: Launch, request: CellRequest, symbols: Symbols, cohort: Cohort
) -> Accepted | Refused:
    """Judge one process."""
    refused = _ended_well(outcome, launch, symbols)
    if refused is not None:
        return refused
    try:
        return _accept(outcome, launch, request, symbols, cohort)
    except _Unfit as fault:
        return Refused(verdict="invalid", reason=symbols.hide(str(fault)))


def _ended_well(outcome: Outcome, launch: Launch, symbols: Symbols) -> Refused | None:
    """Check 1."""
    code, number, many = outcome.exit_code, outcome.signal, outcome.descendants_killed
    limit = f"stopped at its limit of {launch.limit_us / 1e6:g} s"
    how = "by KILL, since it did not heed TERM" if number == signal.SIGKILL else "by TERM"
    last = said(outcome, symbols).strip().rpartition("\n")[2][:1500] or "nothing on stderr"
    rows: tuple[tuple[bool, Verdict, str], ...] = (
        (outcome.stopped, "interrupted", "stopped with its runner"),
        (bool(outcome.fault) and number in STOPPING, "interrupted", outcome.fault),  # meant for the runner
        (bool(outcome.fault), "failed" if number is None else "killed", outcome.fault),
        (outcome.timed_out, "timeout", f"{limit} {how}"),
        (number is not None, "killed", f"ended by {signal_name(number or 0)}"),
        (code != 0, "failed", f"exit code {code}: {last}"),
        (many > 0, "invalid", f"it left {many} process{'es' if many > 1 else ''} behind, killed since"),
    )
    return next((Refused(verdict=verdict, reason=why) for fits, verdict, why in rows if fits), None)


def said(outcome: Outcome, symbols: Symbols) -> str:
    """The end of what the process wrote to stderr, as text without real paths."""
    tail = outcome.stderr_tail
    if len(tail) < outcome.stderr_size:
        tail = tail[PATH_MAX:]  # a path that was cut in two would not be known for one
    return symbols.hide(tail.decode("utf-8", errors="replace"))


def signal_name(number: int) -> str:
    """SIGSEGV (signal 11); real-time signals have no name."""
    try:
        return f"{signal.Signals(number).name} (signal {number})"
    except ValueError:
        return f"signal {number}"


def _accept(
    outcome: Outcome, launch: Launch, request: CellRequest, symbols: Symbols, cohort: Cohort
) -> Accepted | Refused:
    build = cohort.build
    staging = Path(request.staging)
    found = {path.relative_to(staging).as_posix() for path in staging.rglob("*") if not path.is_dir()}
    name = request.record
    _one_record(found, name)
    data = (staging / name).read_bytes()
    record = _read(Record, data, name)
    for key, expected, got in _this_process(record, outcome, launch, request, symbols):
        if expected != got:
            raise _Unfit(f"{name}: {key}: expected {_show(expected)}, got {_show(got)}")
    capture = f"objects/{record.capture}.safetensors"
    alignment = f"alignments/{record.treatment.alignment.sha256}.json"
    own_alignment = {alignment} if request.injected is None else set()
    wanted = {REQUEST, BUILD, name, capture} | own_alignment
    if found != wanted:
        raise _Unfit(f"expected the files {_list(wanted)}, got {_list(found)}")
    for path in (capture, *own_alignment):
        content = (staging / path).read_bytes()
        if (digest := sha256(content)) != Path(path).stem:
            raise _Unfit(f"{path}: expected the content its name says, got sha256 {digest}")
        if path == alignment:
            _read(AlignmentFile, content, path)
    identity = (staging / BUILD).read_bytes()
    if identity != build:
        _read(BuildFile, identity, BUILD)
    if sha256(identity) != record.software:
        raise _Unfit(
            f"{name}: software: expected {sha256(identity)}, which {BUILD} has, got {record.software}"
        )
    if build is not None and build != identity:
        return Refused(verdict="invalid", reason=_foreign(build, identity), foreign=True)
    held = record.process.containment
    if cohort.containment not in (None, held):
        return Refused(verdict="invalid", reason=_otherwise(cohort.containment, held), foreign=True)
    staged = Staged(
        build=staging / BUILD if build is None else None,
        alignment=staging / alignment if own_alignment else None,
        capture=staging / capture,
        record=staging / name,
    )
    return Accepted(record=record, data=data, build=identity, staged=staged)


def _one_record(found: set[str], name: str) -> None:
    """Check 2, the part that decides which file is the record."""
    records = {path for path in found if path.startswith("records/")}
    if not records:
        raise _Unfit("it exited 0 without a record")
    if len(records) > 1:
        raise _Unfit(f"expected one record from one process, got {len(records)}: {_list(records)}")
    if records != {name}:
        raise _Unfit(f"expected the record {name}, got {_list(records)}")


def _this_process(
    record: Record, outcome: Outcome, launch: Launch, request: CellRequest, symbols: Symbols
) -> Iterator[tuple[str, Any, Any]]:
    """Checks 4 and 5 as (key, expected, got)."""
    for key in ("plan", "engine", "phase", "cell", "history", "replicate", "attempt", "surfaces"):
        got = getattr(record, key)
        if key == "surfaces":
            got = tuple(surface.name for surface in got)
        yield key, getattr(request, key), got
    process = record.process
    yield "fixture", request.fixture["digest"], record.fixture
    yield "process.nonce", request.nonce, process.nonce
    yield "process.pid", outcome.pid, process.pid
    yield "process.argv", tuple(symbols.hide(part) for part in launch.argv), process.argv
    yield "process.containment.by", request.containment, process.containment.by
    yield "process.environment", dict(request.environment), process.environment
    yield "markers", MARKERS, tuple(marker.name for marker in record.markers)
    times = [marker.time_us for marker in record.markers]
    yield "markers, their times", sorted(times), times
    treatment = record.treatment
    yield "treatment.alignment.source", _source(request), treatment.alignment.source
    if request.injected is not None:
        yield "treatment.alignment.sha256", request.injected, treatment.alignment.sha256
    for asked, got in zip(request.launches, treatment.gemms, strict=True):
        for key in ("name", "tile_k", "tile_n", "threads", "grid"):
            yield f"treatment.gemms.{asked.name}.{key}", getattr(asked, key), getattr(got, key)


def _source(request: CellRequest) -> str:
    return "constructed" if request.injected is None else "injected"


def _read(model: type[ModelT], data: bytes, name: str) -> ModelT:
    """Check 3."""
    try:
        return read_json(model, parse_canonical(data), name=name)
    except (CanonicalError, FaultsError) as fault:
        raise _Unfit(f"{name}: {fault}") from fault


def _foreign(cohort: bytes, identity: bytes) -> str:
    """Check 7, in words: what differs between the cohort's software and this process's."""
    left, right = parse_canonical(cohort), parse_canonical(identity)
    differing = [
        key if not isinstance(left[key], dict) else f"{key} ({_list(_differing(left[key], right[key]))})"
        for key in left
        if left[key] != right[key]
    ]
    return f"its software is not the cohort's: expected what {BUILD} has, got other {', '.join(differing)}"


def _otherwise(cohort: Containment | None, held: Containment) -> str:
    """Check 7, in words: how this process was held otherwise than the cohort."""
    left, right = {} if cohort is None else cohort.model_dump(), held.model_dump()
    differing = (f"{key} {left[key]}, got {right[key]}" for key in left if left[key] != right[key])
    return f"it was not held as the cohort was: expected {', '.join(differing)}"


def _differing(left: dict[str, Any], right: dict[str, Any]) -> set[str]:
    return {key for key in left.keys() | right.keys() if left.get(key) != right.get(key)}


def _list(names: set[str]) -> str:
    some = sorted(names)
    return ", ".join(some[:12]) + (f" and {len(some) - 12} more" if len(some) > 12 else "")


def _show(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= 300 else text[:297] + "..."
