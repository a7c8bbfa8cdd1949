"""Resuming: from a log that may be torn, and a folder, to what is valid and what an end has yet to be told.

A record in its place is what makes a process valid, since it is moved there last; a log line may be
missing for it, never the other way round.
"""

import shlex
from collections.abc import Callable, Container, Mapping
from pathlib import Path

from ledger.bundle import AttemptEnded, AttemptStarted
from ledger.canonical import NO_DIGEST, CanonicalError, parse_canonical, sha256
from ledger.fault import FaultsError
from ledger.model import read_json
from ledger.record import Containment, Record, record_path
from mechanism.campaign.attempts import Log
from mechanism.campaign.damage import PUT_BACK
from mechanism.errors import CampaignError
from mechanism.process import files
from mechanism.values import frozen


class UnvouchedError(CampaignError):
    """There are records whose lines the log has lost; `paths`: all of them, below the bundle's folder."""

    def __init__(self, folder: Path, paths: tuple[str, ...]) -> None:
        self.paths = paths
        some = ", ".join(path.removeprefix("records/") for path in paths[:3])
        more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
        whose, them = ("1 record", "it") if len(paths) == 1 else (f"{len(paths)} records", "them")
        aside = shlex.quote(f"{folder}.aside")
        super().__init__(
            f"{folder / 'records'}: expected only records that the log calls valid, got {whose} of which it"
            f" has no line ({some}{more}): no crash of a runner loses those; move {them} away, for example to"
            f" {aside}, then --resume runs the cells again; `mechanism status"
            f" {shlex.quote(str(folder))} --format json` lists them all under unvouched"
        )


@frozen
class Recovered:
    """What a log and its records give.

    Attributes:
        valid: The alignment digest of every valid process, by the path of its record.
        ends: What to append for processes of which no end was logged.
        notes: The same for people.
        containment: How the processes recorded so far were held; None if there are none.
    """

    valid: Mapping[str, str]
    ends: tuple[AttemptEnded, ...]
    notes: tuple[str, ...]
    containment: Containment | None = None


def recover(folder: Path, log: Log, *, now_us: Callable[[], int]) -> Recovered:
    """Read every record that the log calls valid, and decide on the attempts that it left open.

    Raises CampaignError if a valid attempt's record is missing or is not what the log says, UnvouchedError if
    there are records that no valid attempt wrote. Nothing is changed.
    """
    valid: dict[str, str] = {}
    held: Containment | None = None
    started = {event.attempt: event for event in log.events if isinstance(event, AttemptStarted)}
    for event in log.events:
        if isinstance(event, AttemptEnded) and event.outcome == "valid":
            path, record = _record(folder, started[event.attempt], expected=event.record)
            if record is None:
                raise CampaignError(
                    f"{folder / path}: the log says it is valid, but there is no such file; {PUT_BACK}"
                )
            valid[path] = record.treatment.alignment.sha256
            held = record.process.containment
    ends: list[AttemptEnded] = []
    notes: list[str] = []
    for attempt in log.open_attempts():
        path, record = _record(folder, attempt, expected=None)
        if record is not None and record.attempt == attempt.attempt:
            valid[path] = record.treatment.alignment.sha256
            held = record.process.containment
            reason = "its record was in place when its runner stopped"
            # a valid end has no reason in the log; that it follows `resumed`, without stderr, tells it
            ends.append(_ended(attempt, "", sha256((folder / path).read_bytes()), now_us()))
        else:
            reason = "its runner stopped before it ended"
            ends.append(_ended(attempt, reason, None, now_us()))
        notes.append(f"attempt {attempt.attempt} ({path}): {reason}")
    require_vouched(folder, valid)
    return Recovered(valid=valid, ends=tuple(ends), notes=tuple(notes), containment=held)


def require_vouched(folder: Path, valid: Container[str]) -> None:
    """Raise UnvouchedError if there are records but those of `valid`: who can tell what wrote the others?"""
    there = sorted(path.name for path in (folder / "records").glob("*"))
    found = [f"records/{name}" for name in there if not name.endswith(files.BESIDE)]
    if others := tuple(path for path in found if path not in valid):
        raise UnvouchedError(folder, others)


def _record(folder: Path, attempt: AttemptStarted, *, expected: str | None) -> tuple[str, Record | None]:
    path = record_path(attempt.phase, attempt.cell, attempt.history, attempt.replicate)
    try:
        data = (folder / path).read_bytes()
    except FileNotFoundError:
        return path, None
    if expected is not None and sha256(data) != expected:
        raise CampaignError(
            f"{folder / path}: expected sha256 {expected}, which the log has, got {sha256(data)}; {PUT_BACK}"
        )
    try:
        return path, read_json(Record, parse_canonical(data), name=path)
    except (CanonicalError, FaultsError) as fault:
        raise CampaignError(f"{folder / path}: the record was changed: {fault}; {PUT_BACK}") from fault


def _ended(attempt: AttemptStarted, reason: str, record: str | None, time_us: int) -> AttemptEnded:
    return AttemptEnded(
        event="ended",
        previous=NO_DIGEST,
        attempt=attempt.attempt,
        outcome="interrupted" if record is None else "valid",
        reason=reason,
        exit_code=None if record is None else 0,  # a record is moved into place after exit 0 only
        signal=None,
        descendants_killed=0,
        stderr=None,
        record=record,
        time_us=time_us,
    )
