"""Where a campaign stands, from its folder alone: while its runner works, and after it is gone.

Nothing is written, and the runner does not notice.
"""

import contextlib
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from ledger.bundle import (
    DOCUMENTS,
    MANIFEST,
    Attempt,
    AttemptEnded,
    AttemptStarted,
    LogResumed,
    ManifestLine,
)
from ledger.canonical import CanonicalError, parse_canonical
from ledger.fault import FaultsError
from ledger.lock import Lock, LockedCell
from ledger.model import read_json
from ledger.record import record_path
from mechanism.campaign import bundle, folder_lock
from mechanism.campaign.attempts import read_log
from mechanism.campaign.damage import PUT_BACK, damaged
from mechanism.campaign.order import name_of, path_of
from mechanism.campaign.recover import UnvouchedError, recover
from mechanism.errors import CampaignError
from mechanism.values import frozen

State = Literal["complete", "damaged", "running", "ending", "stopped"]


@frozen
class Standing:
    """One moment of a campaign, in cells.

    Attributes:
        state: `complete`: the bundle is finished; `damaged`: it was, and lost files or bytes; `running`: its
            runner works; `ending`: that is gone, and processes it started are being ended; `stopped`: nobody
            works, the rest waits for --resume.
        runner: The runner's pid, if one works.
        total: Cells of the lock.
        done: Cells with a record in its place.
        running: Names of the cells at work.
        failed: (name, outcome and reason) of every cell that the last runner tried and that has no record.
        interrupted: Likewise for cells that were stopped with it.
        attempts: Processes started so far.
        runners: How many runners have worked on it.
        torn: Bytes after the last whole line of the log.
        left_s: Estimated seconds to the end; None unless a runner works and a cell of its has ended.
        missing: Files that the finished bundle had and that are gone; captures do not count.
        changed: Those that are there with other bytes.
        refusal: Why --resume would refuse what is stopped; None if it would go on.
        unvouched: Records whose lines the log has lost, if that is why.
    """

    state: State
    runner: int | None
    total: int
    done: int
    running: tuple[str, ...]
    failed: tuple[tuple[str, str], ...]
    interrupted: tuple[tuple[str, str], ...]
    attempts: int
    runners: int
    torn: int
    left_s: float | None
    missing: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    refusal: str | None = None
    unvouched: tuple[str, ...] = ()


def read_standing(folder: Path, *, now_us: int | None = None) -> Standing:
    """Read a campaign's folder. Raises CampaignError if there is none, or its lock or log was changed.

    `now_us`: the monotonic clock, microseconds, for tests.
    """
    lock = _lock(folder)
    runner, free = folder_lock.looked_at(folder)
    complete = bundle.is_complete(folder)
    records = {f"records/{path.name}" for path in (folder / "records").glob("*.json")}
    # after the records: what is recorded meanwhile, the log tells
    log = read_log(_bytes(bundle.log_path(folder)), name=str(bundle.log_path(folder)))
    clock = time.monotonic_ns() // 1000 if now_us is None else now_us
    missing = _missing(folder, lock) if complete else ()
    changed = tuple(path for path in damaged(folder) if (folder / path).exists()) if complete else ()
    finished: State = "damaged" if missing or changed else "complete"
    found = standing(
        lock.cells,
        log.events,
        records=records,
        state=finished if complete else "running" if runner else "stopped" if free else "ending",
        runner=None if complete else runner,
        torn=len(log.torn),
        now_us=clock,
    )
    if found.state != "stopped":
        return replace(found, missing=missing, changed=changed)
    try:  # as --resume would, which changes nothing before it has looked
        recover(folder, log, now_us=lambda: clock)
    except UnvouchedError as fault:
        return replace(found, refusal=str(fault), unvouched=fault.paths)
    except CampaignError as fault:
        return replace(found, refusal=str(fault))
    return found


def _missing(folder: Path, lock: Lock) -> tuple[str, ...]:
    """What a finished bundle must hold and does not: its documents, a record per cell, what it lists."""
    wanted = {MANIFEST, *DOCUMENTS, *(path_of(cell) for cell in lock.cells)}
    for line in _bytes(folder / MANIFEST).splitlines():
        with contextlib.suppress(ValidationError):  # what a line says amiss is the verifier's to find
            wanted.add(ManifestLine.model_validate_json(line).path)
    # captures may be left out of a release
    return tuple(
        sorted(path for path in wanted if not path.startswith("objects/") and not (folder / path).exists())
    )


def standing(
    cells: tuple[LockedCell, ...],
    events: tuple[Attempt, ...],
    *,
    records: set[str],
    state: State,
    runner: int | None,
    torn: int,
    now_us: int,
) -> Standing:
    """The same from what was read. Pure. Only what the last runner did counts as failed or at work."""
    known = {path_of(cell): cell for cell in cells}
    resumed = [place for place, event in enumerate(events) if isinstance(event, LogResumed)]
    session = events[resumed[-1] if resumed else 0 :]
    started = {event.attempt: event for event in session if isinstance(event, AttemptStarted)}
    ended = [event for event in session if isinstance(event, AttemptEnded) and event.attempt in started]
    finished = {event.attempt for event in ended}
    working = [_path(event) for event in started.values() if event.attempt not in finished]
    without = {_path(started[event.attempt]): event for event in ended if event.outcome != "valid"}
    valid = {_path(started[event.attempt]) for event in ended if event.outcome == "valid"}
    done = known.keys() & (records | valid if state == "running" else records)
    at_work = [path for path in working if path in known and path not in done and state == "running"]
    left = len(known) - len(done) - len(without.keys() - done)
    began = session[0].time_us if session else now_us
    pace = (now_us - began) / 1e6 / len(ended) if ended and state == "running" else None
    return Standing(
        state=state,
        runner=runner,
        total=len(known),
        done=len(done),
        running=tuple(name_of(known[path]) for path in at_work),
        failed=tuple(_told(known, without, done, interrupted=False)),
        interrupted=tuple(_told(known, without, done, interrupted=True)),
        attempts=sum(isinstance(event, AttemptStarted) for event in events),
        runners=len(resumed) + 1,
        torn=torn,
        left_s=None if pace is None else pace * left,
    )


def _told(
    known: Mapping[str, LockedCell],
    ended: Mapping[str, AttemptEnded],
    done: Collection[str],
    *,
    interrupted: bool,
) -> Iterator[tuple[str, str]]:
    """Name and reason of cells without a record: those that were interrupted, or those that failed."""
    for path, event in ended.items():
        if path not in done and (event.outcome == "interrupted") == interrupted:
            yield name_of(known[path]), f"{event.outcome}: {event.reason}"


def _path(event: AttemptStarted) -> str:
    return record_path(event.phase, event.cell, event.history, event.replicate)


def _lock(folder: Path) -> Lock:
    try:
        return read_json(Lock, parse_canonical((folder / "plan.lock").read_bytes()), name="plan.lock")
    except (FileNotFoundError, NotADirectoryError) as fault:
        got = "a folder without plan.lock" if folder.is_dir() else "no folder"
        raise CampaignError(
            f"{folder}: expected the folder of a campaign, got {got}; check the path"
        ) from fault
    except (CanonicalError, FaultsError) as fault:
        raise CampaignError(f"{folder / 'plan.lock'}: {fault}; it was damaged: {PUT_BACK}") from fault


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
