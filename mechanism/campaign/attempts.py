"""The attempts log: one chained line before a process starts, one after it ended, and nothing rewritten.

A line is the canonical JSON of one event, then a line feed; `previous` is the sha256 of the line before.
A crash can only cut the last line short: what is whole is kept, what was torn is told.
"""

import errno
import functools
import os
from pathlib import Path

from pydantic import BaseModel, TypeAdapter, ValidationError

from ledger.bundle import Attempt, AttemptEnded, AttemptStarted, LogResumed
from ledger.canonical import NO_DIGEST, CanonicalError, canonical, parse_canonical, sha256
from mechanism.campaign.damage import PUT_BACK
from mechanism.errors import CampaignError
from mechanism.process import files
from mechanism.values import frozen

_TORN_KEPT = 40_000


@frozen
class Log:
    """A log as read. `whole`: the bytes of its whole lines; `torn`: what follows them."""

    events: tuple[Attempt, ...]
    whole: bytes
    torn: bytes

    @property
    def last(self) -> str:
        """The digest that the next line carries."""
        return sha256(self.whole.rpartition(b"\n")[0].rpartition(b"\n")[2]) if self.whole else NO_DIGEST

    @property
    def next_attempt(self) -> int:
        """The number of the next process; they count from 1."""
        return 1 + max(
            (event.attempt for event in self.events if isinstance(event, AttemptStarted)), default=0
        )

    def open_attempts(self) -> tuple[AttemptStarted, ...]:
        """Processes of which no end is logged."""
        ended = {event.attempt for event in self.events if isinstance(event, AttemptEnded)}
        return tuple(
            event for event in self.events if isinstance(event, AttemptStarted) and event.attempt not in ended
        )


def read_log(data: bytes, *, name: str) -> Log:
    """Read a log that may be torn at any byte. Pure.

    Raises CampaignError if a line other than the last is not what it must be: that is no crash's doing.
    """
    events: list[Attempt] = []
    position = 0
    last = NO_DIGEST
    while (end := data.find(b"\n", position)) >= 0:
        line = data[position:end]
        try:
            parse_canonical(line)
            event = _line().validate_json(line)
        except (CanonicalError, ValidationError) as fault:
            if end + 1 == len(data):
                break  # a tail that never reached the disk may read as anything
            raise _broken(name, len(events) + 1, "it is not an event of a log") from fault
        if event.previous != last:
            raise _broken(name, len(events) + 1, f"expected previous {last}, got {event.previous}")
        events.append(event)
        last = sha256(line)
        position = end + 1
    return Log(events=tuple(events), whole=data[:position], torn=data[position:])


@functools.cache
def _line() -> TypeAdapter[Attempt]:
    return TypeAdapter(Attempt)


def _broken(name: str, line: int, why: str) -> CampaignError:
    return CampaignError(f"{name}:{line}: the log was changed after it was written: {why}; {PUT_BACK}")


class LogWriter:
    """Appends to a log; every line is on disk before the call returns. After a torn write nothing is."""

    def __init__(self, path: Path, log: Log) -> None:
        self._name = str(path)
        self._last = log.last
        self._length = len(log.whole)
        self._torn = False
        new = not path.exists()
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        if new:  # its lines are synced one by one; its name, here
            files.sync_folder(path.parent)

    def close(self) -> None:
        """Close the file; nothing is pending."""
        os.close(self._descriptor)

    def append(self, event: BaseModel) -> None:
        """Write one event, whose `previous` is set here. Raises OSError, and then leaves no part of it."""
        if self._torn:
            raise OSError(errno.EIO, "the end of the log is torn", self._name)
        line, digest = encode(event, self._last)
        try:
            left = memoryview(line)
            while left:
                left = left[os.write(self._descriptor, left) :]
            os.fsync(self._descriptor)
        except OSError as fault:
            self._torn = True
            os.ftruncate(self._descriptor, self._length)
            self._torn = False
            raise OSError(fault.errno, fault.strerror, self._name) from fault
        self._last = digest
        self._length += len(line)


def encode(event: BaseModel, previous: str) -> tuple[bytes, str]:
    """A line for `event` after the line with digest `previous`, and the digest of the new line."""
    line = canonical({**event.model_dump(mode="json"), "previous": previous})
    return line + b"\n", sha256(line)


def mend(path: Path, log: Log, *, time_us: int) -> Log:
    """Have the log on disk say that another runner goes on, and what was torn. Returns it as it is now."""
    torn = log.torn.decode("utf-8", errors="backslashreplace")[:_TORN_KEPT]
    event = LogResumed(event="resumed", previous=log.last, torn=torn, time_us=time_us)
    line, _ = encode(event, log.last)
    whole = log.whole + line
    files.replace(path, whole)  # at once: a second crash must not lose what the first one tore
    return Log(events=(*log.events, event), whole=whole, torn=b"")
