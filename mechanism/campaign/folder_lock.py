"""One runner to a folder: a lock file with the runner's pid, held until the last of its children is gone.

The lock is flock(2) on an open file that supervisors inherit. So when a runner is killed, the folder
stays locked for the moment that they need to end their trees, and the next runner waits for that.
"""

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from mechanism.errors import CampaignError

LOCK = "runner.lock"
WAIT_S = 15.0


class Lease:
    """A held lock. `descriptor` is for supervisors to inherit; `abandoned`: some of them may still work."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.abandoned = False


@contextlib.contextmanager
def held(folder: Path) -> Iterator[Lease]:
    """Hold the folder's lock.

    Raises CampaignError if another runner holds it, or its children do not end.
    """
    path = folder / LOCK
    descriptor = _acquire(path)
    lease = Lease(descriptor)
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()} {_start_ticks(os.getpid())}\n".encode(), 0)
        yield lease
    except (KeyboardInterrupt, SystemExit):
        lease.abandoned = True
        raise
    finally:
        if not lease.abandoned:  # else the file stays, for the next runner to wait on
            with contextlib.suppress(OSError):  # the folder may have become read-only, or be gone
                path.unlink()
        os.close(descriptor)


def clear(folder: Path) -> None:
    """Remove the lock of a runner that was killed when all was done. Raises CampaignError if one works."""
    if (folder / LOCK).exists():
        with held(folder):
            pass


def holder(folder: Path) -> int | None:
    """The pid of the runner that works in the folder; None if none does."""
    return looked_at(folder)[0]


def looked_at(folder: Path) -> tuple[int | None, bool]:
    """The runner's pid as `holder` has it, and whether the lock is free: not even its processes hold it."""
    try:
        descriptor = os.open(folder / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None, True
    try:
        free = _try(descriptor, fcntl.LOCK_SH)  # shared: two who look do not see each other
        return (None if free else _owner(descriptor)), free
    finally:
        os.close(descriptor)


def _acquire(path: Path) -> int:
    deadline = time.monotonic() + WAIT_S
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        if _try(descriptor):
            # a runner that was done may have removed the file between our open and our lock
            if path.exists() and os.path.samestat(os.fstat(descriptor), path.stat()):
                return descriptor
            os.close(descriptor)
            continue
        owner = _owner(descriptor)
        os.close(descriptor)
        if owner is not None:
            raise CampaignError(
                f"{path.parent}: expected a folder that no runner works in, got one where process {owner}"
                " does; wait for it, or stop it"
            )
        if time.monotonic() > deadline:
            raise CampaignError(
                f"{path.parent}: the runner that worked here is gone, but processes it started do not end;"
                " end them, then --resume"
            )
        time.sleep(0.02)  # the dead runner's supervisors are ending their trees


def _try(descriptor: int, mode: int = fcntl.LOCK_EX) -> bool:
    try:
        fcntl.flock(descriptor, mode | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _owner(descriptor: int) -> int | None:
    """The pid in the lock file, if that very process still lives."""
    pid, _, ticks = os.pread(descriptor, 64, 0).decode("ascii", errors="replace").strip().partition(" ")
    if pid.isdigit() and ticks and _start_ticks(int(pid)) == ticks:
        return int(pid)
    return None


def _start_ticks(pid: int) -> str:
    """When a process started, in clock ticks from boot (proc(5), field 22); empty if there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return ""
    return stat.rpartition(b")")[2].split()[19].decode("ascii")
