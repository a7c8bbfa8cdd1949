"""Forked processes share the work of a GEMM; nothing of it shows in the bits, and none stays behind."""

import _thread
import errno
import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from mechanism.kernel import sums
from mechanism.kernel.rounding import bits16
from mechanism.reexecute import forks, shared
from mechanism.reexecute.forks import forked
from mechanism.reexecute.shared import ARITHMETIC
from tests.kernel.kernel_setup import launch, problem

HERE = os.getpid()
#: Scripts of processes of their own: they end with what they print.
ORPHAN = """
import os, sys, time
from mechanism.reexecute.forks import forked

def work(piece):
    with open(sys.argv[1], "a") as seen:
        seen.write(f"{os.getpid()}\\n")
    time.sleep(0.02)
    return bytes(1_000_000)  # more than a pipe holds

forked(work, range(100_000), most=3)
"""
PLAIN = """
import os, time
from mechanism.reexecute.forks import forked

reader, writer = os.pipe()
caller = os.getpid()

def work(piece):
    if os.getpid() != caller:
        os.write(writer, b"x")
    elif piece == 0:
        os.read(reader, 1)  # until another one has a piece
    return os.getpid()

print(len(set(forked(work, range(100), most=2))))
"""
STORM = """
import os, random, signal
from mechanism.reexecute.forks import forked

random.seed(1)
files, interrupted = len(os.listdir("/proc/self/fd")), 0
for _ in range(400):
    signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-5, 4e-3))
    try:
        try:
            forked(lambda piece: bytes(100), range(30), most=4)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:
        interrupted += 1
try:
    print("left", os.waitpid(-1, os.WNOHANG))
except ChildProcessError:
    pass
print(interrupted > 20, len(os.listdir("/proc/self/fd")) - files, signal.pthread_sigmask(signal.SIG_BLOCK, []))
"""
FEW_FILES = """
import os, resource
from mechanism.reexecute.forks import forked

free = min(set(range(100)) - {int(name) for name in os.listdir("/proc/self/fd")})
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
for more in range(12):
    resource.setrlimit(resource.RLIMIT_NOFILE, (free + more, hard))
    assert forked(abs, range(-50, 0), most=4) == list(range(50, 0, -1)), more
print("done")
"""


def open_files() -> set[str]:
    return {path.name for path in Path("/proc/self/fd").iterdir()}


def children() -> set[str]:
    """Those that ended and were not waited for too: the fourth field of every /proc/<pid>/stat."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if fields_of(stat)[1] == str(HERE):
                found.add(stat.parent.name)
    return found


def fields_of(stat: Path) -> list[str]:
    """State, parent and the rest, behind the name, in which anything may stand."""
    return stat.read_text().rpartition(")")[2].split()


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever runs the tests may have threads of its own. Afterwards no child and no file is left."""
    monkeypatch.setattr(forks, "_alone", lambda: True)
    files, before = open_files(), children()
    yield
    assert open_files() <= files  # fewer where a test before threw some away
    assert children() <= before


@pytest.mark.parametrize("most", [1, 2, 5, 200])
def test_results_are_in_the_order_of_the_pieces(most: int, tmp_path: Path) -> None:
    """Those of other processes too, of which there is one at least: this one waits for it."""
    helped = tmp_path / "helped"

    def work(piece: int) -> tuple[int, int]:
        if os.getpid() != HERE:
            helped.touch()
        while most > 1 and not helped.exists():
            time.sleep(0.001)
        return piece * piece, os.getpid()

    found = forked(work, range(300), most=most)
    assert [square for square, _ in found] == [piece * piece for piece in range(300)]
    assert ({pid for _, pid in found} != {HERE}) == (most > 1)


@pytest.mark.parametrize("count", [0, 1, 2, 1024, 1025, 5000])
def test_every_piece_is_done_once(count: int) -> None:
    """A pipe that holds as little as any holds all the turns."""
    assert forked(abs, range(-count, 0), most=3) == list(range(count, 0, -1))


def test_an_exception_is_met_here() -> None:
    """Whoever met it first; here it has the caller's own stack."""

    def work(piece: int) -> int:
        if piece == 7:
            raise KeyError(piece)
        return piece

    for most in (1, 3):
        with pytest.raises(KeyError, match="7"):
            forked(work, range(1000), most=most)


def test_a_ctrl_c_here_ends_the_others() -> None:
    """The fixture sees that none is left."""

    def work(piece: int) -> int:
        if os.getpid() != HERE:
            time.sleep(600)
        if piece > 3:
            raise KeyboardInterrupt
        time.sleep(0.05)
        return piece

    with pytest.raises(KeyboardInterrupt):
        forked(work, range(1000), most=4)


@pytest.mark.parametrize("ending", ["killed", "exception", "exit"])
def test_what_a_process_leaves_undone_is_done_here(ending: str) -> None:
    def work(piece: int) -> int:
        if os.getpid() != HERE:
            if ending == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            if ending == "exit":
                sys.exit(3)
            raise MemoryError
        time.sleep(0.01)  # one at least is taken
        return piece

    assert forked(work, range(30), most=3) == list(range(30))


@pytest.mark.parametrize(
    "refusal",
    [
        BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN)),
        RuntimeError("can't fork at interpreter shutdown"),
    ],
    ids=lambda refusal: type(refusal).__name__,
)
def test_refused_processes_are_done_without(refusal: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit on processes, as a cell may have one; an interpreter that is ending."""

    def refuse() -> int:
        raise refusal

    monkeypatch.setattr(os, "fork", refuse)
    assert set(forked(lambda _: os.getpid(), range(50), most=3)) == {HERE}


def script(text: str, prelude: str = "") -> str:
    """What a process of its own prints."""
    done = subprocess.run([sys.executable, "-c", prelude + text], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def test_a_plain_process_forks() -> None:
    """With all threads that numpy has of its own."""
    assert script(PLAIN, "import numpy\n") == "2"


def test_beside_other_threads_nothing_is_forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """They may hold a lock, and nobody would let go of it in the child. `threading` does not know this one."""
    monkeypatch.undo()
    started, held, ended = (_thread.allocate_lock() for _ in range(3))
    for lock in (started, held, ended):
        lock.acquire()

    def other() -> None:
        started.release()
        held.acquire()
        ended.release()

    _thread.start_new_thread(other, ())
    started.acquire()
    try:
        assert set(forked(lambda _: os.getpid(), range(50), most=3)) == {HERE}
    finally:
        held.release()
        ended.acquire()


def test_few_files_are_enough() -> None:
    """None free at first, then one more each time."""
    assert script(FEW_FILES) == "done"


def test_interrupted_at_any_moment_nothing_stays() -> None:
    """A Ctrl-C some microseconds to milliseconds after the call, four hundred times: no child, file or mask."""
    assert (
        script(STORM, "import signal\nsignal.signal(signal.SIGALRM, signal.default_int_handler)\n")
        == "True 0 set()"
    )


def test_a_second_ctrl_c_leaves_none_either(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the middle of ending the others, which the fixture looks for."""
    kill = os.kill

    def interrupted(pid: int, number: int) -> None:
        monkeypatch.setattr(os, "kill", kill)
        kill(pid, number)
        raise KeyboardInterrupt

    def work(_piece: int) -> None:
        if os.getpid() != HERE:
            time.sleep(600)
        raise ValueError

    monkeypatch.setattr(os, "kill", interrupted)
    with pytest.raises(KeyboardInterrupt):
        forked(work, range(10), most=4)


def test_what_the_caller_threw_away_is_not_finalised_again(tmp_path: Path) -> None:
    """Only the caller says goodbye, whatever a child collects."""
    log = tmp_path / "log"

    class Circle:
        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            with log.open("a") as file:
                file.write(f"{os.getpid()}\n")

    thresholds = gc.get_threshold()
    gc.disable()
    try:
        Circle()
        gc.set_threshold(1)
        forked(lambda piece: [[piece] for _ in range(1000)], range(300), most=3)
    finally:
        gc.set_threshold(*thresholds)
        gc.enable()
    gc.collect()
    assert log.read_text().split() == [str(HERE)]


def test_children_taken_away_by_the_system_are_no_fault() -> None:
    """Who ignores SIGCHLD has no child to wait for."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert forked(abs, range(-50, 0), most=3) == list(range(50, 0, -1))
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_signals_are_let_through_again() -> None:
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    inside = forked(lambda _: signal.pthread_sigmask(signal.SIG_BLOCK, []), range(8), most=4)
    assert all(seen == mask for seen in inside)
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == mask


def test_nobody_goes_on_for_a_caller_that_was_killed(tmp_path: Path) -> None:
    """Real processes: the caller is killed, and its child ends after the piece it has."""
    seen = tmp_path / "seen"
    caller = subprocess.Popen([sys.executable, "-c", ORPHAN, str(seen)])
    others: set[int] = set()
    while not others:
        time.sleep(0.01)
        assert caller.poll() is None
        others = {int(line) for line in seen.read_text().split()} - {caller.pid} if seen.exists() else set()
    caller.kill()
    caller.wait()
    while any(_runs(pid) for pid in others):
        time.sleep(0.01)
    assert len(seen.read_text().split()) < 100_000


def _runs(pid: int) -> bool:
    """Whether it is there and no zombie, which it may stay where nobody takes orphans away."""
    try:
        return fields_of(Path(f"/proc/{pid}/stat"))[0] != "Z"
    except FileNotFoundError:
        return False


def test_processes_change_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor which slices are written down."""
    given = problem(21, tokens=40, n=512, k=512, spread=2)
    monkeypatch.setattr(sums, "ROWS", 4)
    monkeypatch.setattr(sums, "WIDTH", 256)
    monkeypatch.setattr(shared, "FORK_FROM", 0)
    monkeypatch.setattr(os, "fork", counted := _Counted())
    runs = []
    for count in ("1", "4"):
        monkeypatch.setenv("MECHANISM_THREADS", count)
        runs.append(
            ARITHMETIC.multiply(
                given.a, given.weights, given.alignment, launch(64, 128, 9), top_k=given.top_k, arch="sm_86"
            )
        )
    assert counted.times == 3
    assert np.array_equal(bits16(runs[0].output), bits16(runs[1].output))
    assert runs[0].executed == runs[1].executed


class _Counted:
    """`os.fork`, counted."""

    def __init__(self) -> None:
        self.times, self._fork = 0, os.fork

    def __call__(self) -> int:
        self.times += 1
        return self._fork()


def test_small_gemms_are_not_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    given = problem(21, tokens=8, n=256, k=256)
    monkeypatch.setattr(os, "fork", counted := _Counted())
    monkeypatch.setenv("MECHANISM_THREADS", "4")
    ARITHMETIC.multiply(
        given.a, given.weights, given.alignment, launch(64, 128, 9), top_k=given.top_k, arch="sm_86"
    )
    assert counted.times == 0
