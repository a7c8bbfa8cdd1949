"""One supervisor per cold process: it starts the child, owns its whole process tree, reports its end.

A fork of the runner that never returns to it: an interpreter of its own would cost each cold process 20 ms
of CPU for its start. What it inherits it drops at once: session, descriptors, signal handlers, working
folder. The child it starts is a fresh interpreter by exec and sees nothing of it.

The request is a dictionary: `argv`; `environment`, the whole of it; `limit_us`, `grace_us`, `leave_us`,
`tail` and `hold` as in `mechanism.process.launch`; `contain` as in `mechanism.process.containment`. The
runner keeps stdin open as long as it wants the child to live; when it closes it, or dies, the tree is
killed. The outcome goes to stdout as `marshal`, a fault of the supervisor's own to stderr.

As a child subreaper (prctl(2)) the supervisor inherits every orphan below it, also those that made
sessions of their own. So it only ever kills its direct children, whose pids nobody else can reap and
reuse, and is done when wait(2) says that there are none.
"""

import ctypes
import errno
import fcntl
import gc
import hashlib
import marshal
import os
import select
import signal
import time
import traceback
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

from mechanism.process import contain

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
CANNOT_START = 127
CHUNK = 1 << 16
_HIGHEST = 1 << 20


def supervise(request: dict[str, Any], stdin: int, stdout: int, stderr: int) -> NoReturn:
    """In a process just forked: supervise one child, report, and end. Nothing is raised into the runner."""
    code = 1
    try:
        gc.disable()  # what the runner has is not this process's to finalise
        _detach((stdin, stdout, stderr), request["hold"])
        libc = ctypes.CDLL(None, use_errno=True)
        _prctl(libc, PR_SET_CHILD_SUBREAPER, 1)
        supervision = _Supervision(request, libc)
        supervision.watch()
        os.write(1, marshal.dumps(supervision.outcome()))
        code = 0
    except BaseException:  # noqa: BLE001 - the end of this process
        os.write(2, traceback.format_exc().encode(errors="replace"))
    finally:
        os._exit(code)


def _detach(standard: tuple[int, int, int], hold: list[int]) -> None:
    """Keep nothing of the runner but the three pipes, and what is to be held until the tree is gone."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if callable(signal.getsignal(number)):  # nohup ignores HUP, and means it
            signal.signal(number, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    os.setsid()  # Ctrl-C in a terminal is for the runner, which then stops its children
    os.chdir("/")
    above = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, 3) for descriptor in standard]
    for standing, descriptor in enumerate(above):
        os.dup2(descriptor, standing, inheritable=False)
    kept = [2, *sorted(hold), _HIGHEST]
    for low, high in pairwise(kept):
        os.closerange(low + 1, high)
    for descriptor in hold:
        os.set_inheritable(descriptor, False)  # a lock that outlives the runner, and not this process


class _Supervision:
    """The child from its start to the last of its descendants."""

    def __init__(self, request: dict[str, Any], libc: ctypes.CDLL) -> None:
        self.request = request
        self.output = _Output(request["tail"])
        self.timed_out = self.stopped = False
        self.killed = 0
        self.started = _now_us()
        reader, writer = os.pipe()
        me = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            _become(request, libc, writer, parent=me)
        os.close(writer)
        os.set_blocking(reader, False)
        self.reader = reader
        self.status = 0
        self.duration = 0

    def watch(self) -> None:
        """Wait for the child's end, its time limit, or the runner's, whichever comes first."""
        ended = os.pidfd_open(self.pid)
        poll = select.poll()
        for descriptor in (ended, self.reader, 0):
            poll.register(descriptor, select.POLLIN)
        deadline = self.started + self.request["limit_us"]
        while True:
            # rounded up: waking a moment early would spin
            ready = dict(poll.poll(max(0, -(-(deadline - _now_us()) // 1000))))
            if self.reader in ready and self.output.drain(self.reader):
                poll.unregister(self.reader)
            if ended in ready:
                break
            if 0 in ready and not self.stopped:
                poll.unregister(0)
                self.stopped = True
                deadline = 0
            if _now_us() >= deadline:
                deadline = self._end_child()
        self.duration = _now_us() - self.started
        os.close(ended)
        self.status = os.waitpid(self.pid, 0)[1]
        self._end_descendants()
        self.output.drain(self.reader)

    def _end_child(self) -> int:
        """TERM first, and KILL when that was not enough or the runner wants it. Returns the next deadline."""
        if self.stopped or self.timed_out:
            os.kill(self.pid, signal.SIGKILL)
            return _now_us() + 3_600_000_000  # nothing is left to do but to wait for the kernel
        self.timed_out = True
        try:
            os.killpg(self.pid, signal.SIGTERM)
        except ProcessLookupError:  # it has not called setsid yet: as good as ended
            os.kill(self.pid, signal.SIGTERM)
        return _now_us() + int(self.request["grace_us"])

    def _end_descendants(self) -> None:
        """Kill and reap until no child is left.

        The helpers of a child that ended by itself have `leave_us` to leave by themselves.
        """
        patience = 0 if self.stopped or self.timed_out else _now_us() + self.request["leave_us"]
        signalled: set[int] = set()
        while _reap():
            if _now_us() >= patience:
                for pid in children():
                    os.kill(pid, signal.SIGKILL)
                    signalled.add(pid)
            self.output.drain(self.reader)
            time.sleep(0.001)
        self.killed = len(signalled)

    def outcome(self) -> dict[str, Any]:
        """What the runner is told."""
        signalled = os.WIFSIGNALED(self.status)
        return {
            "pid": self.pid,
            "exit_code": None if signalled else os.WEXITSTATUS(self.status),
            "signal": os.WTERMSIG(self.status) if signalled else None,
            "timed_out": self.timed_out,
            "stopped": self.stopped,
            "descendants_killed": self.killed,
            "duration_us": self.duration,
            "stderr_size": self.output.size,
            "stderr_sha256": self.output.hash.hexdigest(),
            "stderr_tail": self.output.tail,
        }


class _Output:
    """What the child wrote to stderr: all of it counted and hashed, the last of it kept."""

    def __init__(self, keep: int) -> None:
        self.keep = keep
        self.size = 0
        self.tail = b""
        self.hash = hashlib.sha256()

    def drain(self, descriptor: int) -> bool:
        """Take what is there without waiting, 1 MiB at most. Returns whether it was the end."""
        for _ in range(16):
            try:
                data = os.read(descriptor, CHUNK)
            except BlockingIOError:
                return False
            if not data:
                return True
            self.hash.update(data)
            self.size += len(data)
            self.tail = (self.tail + data)[-self.keep :]
        return False


def _become(request: dict[str, Any], libc: ctypes.CDLL, stderr: int, *, parent: int) -> NoReturn:
    """In the forked process: turn into the child, or end with CANNOT_START and a line on stderr."""
    try:
        os.dup2(stderr, 2)  # first: what fails below is said there
        os.setsid()
        contain.hold(libc, request["contain"])
        _prctl(libc, PR_SET_PDEATHSIG, signal.SIGKILL)  # after that: a change of credentials would undo it
        if os.getppid() != parent:
            os._exit(CANNOT_START)  # the supervisor died before the line above took effect
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(null, 1)
        os.umask(0o022)
        contain.limit(request["contain"])
        for ignored in (
            signal.SIGPIPE,
            signal.SIGXFSZ,
        ):  # Python ignores these two, and exec would pass that on
            libc.signal(ignored, None)
        os.execve(request["argv"][0], request["argv"], request["environment"])  # noqa: S606
    except BaseException as fault:  # noqa: BLE001 - this is another process; nothing may leave it
        os.write(2, f"cannot start {request['argv'][0]}: {fault}\n".encode(errors="replace"))
    os._exit(CANNOT_START)


def _reap() -> bool:
    """Reap all children that ended. Returns whether any is left."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def children() -> list[int]:
    """Our direct children that still live, from the fourth field of every /proc/<pid>/stat."""
    found = []
    mine = str(os.getpid()).encode()
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        try:
            fields = (process / "stat").read_bytes().rpartition(b")")[2].split()
        except OSError:
            continue  # ended meanwhile
        if fields[1] == mine and fields[0] != b"Z":
            found.append(int(process.name))
    return found


def _prctl(libc: ctypes.CDLL, option: int, value: int) -> None:
    if libc.prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}): {errno.errorcode.get(number, number)}")


def _now_us() -> int:
    return time.monotonic_ns() // 1000
