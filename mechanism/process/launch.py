"""The parent's side of a cold process: a launch in, an outcome out. Nothing here waits or polls.

A failing child is data, not an exception. What the supervisor does in between is in `supervisor.py`.
"""

import contextlib
import ctypes
import marshal
import os
import select
import signal
import sys
import warnings
from collections.abc import Collection, Mapping
from pathlib import Path

from ledger.canonical import sha256
from mechanism.process.containment import FREE, Containment, as_request
from mechanism.process.supervisor import PR_SET_CHILD_SUBREAPER, children, supervise
from mechanism.values import frozen

PR_GET_CHILD_SUBREAPER = 37
CHILD = "mechanism.process.child"
#: Bytes of stderr that are looked at; what is kept of them is shorter, see `mechanism.campaign.attempts`.
TAIL = 1 << 16


@frozen
class Launch:
    """One cold process to start. Times in microseconds of the monotonic clock.

    Attributes:
        python: Absolute path of the interpreter.
        module: The child's module, started with `-s -P -m`.
        request: Absolute path of the request file, the child's only argument.
        environment: The whole environment; nothing is inherited.
        limit_us: From the fork to TERM.
        grace_us: From TERM to KILL.
        leave_us: How long helpers of a child that ended may take to leave before they are killed.
        hold: Descriptors that the supervisor keeps open until the child's tree is gone.
        contain: What it may write and reach.
    """

    python: str
    module: str = CHILD
    request: str
    environment: Mapping[str, str]
    limit_us: int
    grace_us: int = 1_000_000
    leave_us: int = 500_000
    hold: tuple[int, ...] = ()
    contain: Containment = FREE

    @property
    def argv(self) -> tuple[str, ...]:
        """The child's argument list. `-I` would make Python ignore PYTHONHASHSEED."""
        return (self.python, "-s", "-P", "-m", self.module, self.request)


@frozen
class Outcome:
    """How a cold process ended. Exactly one of `exit_code` and `signal` is set.

    Attributes:
        pid: Of the child; 0 if none was started.
        timed_out: It was stopped at its limit.
        stopped: It was stopped because the runner wanted it.
        descendants_killed: Processes of its tree that still lived when it had ended.
        duration_us: From the fork to the end of the child.
        stderr_size: Bytes written to stderr.
        stderr_sha256: Of all those bytes.
        stderr_tail: The last of them.
        fault: What happened to the supervisor, if it did not report; empty otherwise. The code or signal
            is then the supervisor's; the kernel killed the child with it.
    """

    pid: int
    exit_code: int | None
    signal: int | None
    timed_out: bool
    stopped: bool
    descendants_killed: int
    duration_us: int
    stderr_size: int
    stderr_sha256: str
    stderr_tail: bytes
    fault: str = ""


class Running:
    """A supervisor at work. Wait until `fileno()` is readable, then call `finish` once."""

    def __init__(self, launch: Launch) -> None:
        stdin, self._stdin = os.pipe()
        self._stdout, stdout = os.pipe()
        self._stderr, stderr = os.pipe()
        os.set_blocking(self._stdout, False)
        request = {
            "argv": list(launch.argv),
            "environment": dict(launch.environment),
            "limit_us": launch.limit_us,
            "grace_us": launch.grace_us,
            "leave_us": launch.leave_us,
            "tail": TAIL,
            "hold": list(launch.hold),
            "contain": as_request(launch.contain),
        }
        self._report = b""
        with warnings.catch_warnings():
            # Python warns of forks beside threads, as of a progress bar's; the fork takes no lock of theirs
            warnings.simplefilter("ignore", DeprecationWarning)
            self._pid = os.fork()
        if self._pid == 0:
            supervise(request, stdin, stdout, stderr)
        for descriptor in (stdin, stdout, stderr):
            os.close(descriptor)

    @property
    def pid(self) -> int:
        """The supervisor's pid."""
        return self._pid

    def fileno(self) -> int:
        """Readable when there is something to `read`."""
        return self._stdout

    def read(self) -> bool:
        """Take what the supervisor wrote so far. Returns whether it has ended."""
        try:
            data = os.read(self._stdout, TAIL * 2)
        except BlockingIOError:
            return False
        self._report += data
        return not data

    def stop(self) -> None:
        """Ask the supervisor to kill its tree and to report; harmless when it is done."""
        if self._stdin >= 0:
            os.close(self._stdin)
            self._stdin = -1

    def finish(self, timeout_s: float | None = None) -> Outcome:
        """The outcome, after the supervisor has gone. Raises TimeoutError if it does not go in time."""
        poll = select.poll()
        poll.register(self._stdout, select.POLLIN)
        while not self.read():
            if not poll.poll(None if timeout_s is None else int(timeout_s * 1000)):
                raise TimeoutError(f"supervisor {self.pid} does not end")
        with open(self._stderr, "rb") as stderr:  # noqa: PTH123 - a descriptor
            complaint = stderr.read()
        code = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        self.stop()
        os.close(self._stdout)
        if code == 0 and self._report:
            return Outcome(**marshal.loads(self._report))  # noqa: S302 - from a fork of this very process
        how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
        return Outcome(
            pid=0,
            exit_code=None if code < 0 else code,
            signal=-code if code < 0 else None,
            timed_out=False,
            stopped=False,
            descendants_killed=0,
            duration_us=0,
            stderr_size=len(complaint),
            stderr_sha256=sha256(complaint),
            stderr_tail=complaint[-TAIL:],
            fault=f"the supervisor itself ended {how} before it reported",
        )


def end_orphans(keep: Collection[int]) -> int:
    """Kill and reap our direct children but those in `keep`; returns how many there were.

    For the caller who is a subreaper and whose supervisor was killed: what that left behind is ours now.
    """
    ended: set[int] = set()
    while orphans := [pid for pid in children() if pid not in keep]:
        for pid in orphans:
            ended.add(pid)
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
    return len(ended)


def set_subreaper(*, wanted: bool) -> bool:
    """Whether orphans below this process become its children, prctl(2); returns how it was before."""
    libc = ctypes.CDLL(None, use_errno=True)
    before = ctypes.c_int(0)
    for option, value in (
        (PR_GET_CHILD_SUBREAPER, ctypes.byref(before)),
        (PR_SET_CHILD_SUBREAPER, int(wanted)),
    ):
        if libc.prctl(option, value, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl: child subreaper")
    return bool(before.value)


def interpreter() -> str:
    """The interpreter that runs this, as an absolute path; a virtual environment's own, not its target."""
    return str(Path(sys.executable).absolute())
