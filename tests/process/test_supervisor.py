"""Real children that misbehave, under the real supervisor: what is reported, and that nobody survives."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from mechanism.process.launch import (
    Launch,
    Outcome,
    Running,
    end_orphans,
    interpreter,
    set_subreaper,
)
from mechanism.process.supervisor import children

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", "LC_ALL": "C.UTF-8"}
#: When a child is surely where it says that it is, on a machine with better things to do.
LATER_S = 4
#: When a test gives up; nothing that works comes near it.
TIMEOUT_S = 120


def launch(behaviour: str, *, limit_s: float = 20, environment: dict[str, str] | None = None) -> Launch:
    return Launch(
        python=interpreter(),
        module="tests.process.bad_child",
        request=behaviour,
        environment=ENVIRONMENT if environment is None else environment,
        limit_us=int(limit_s * 1e6),
        grace_us=300_000,
        leave_us=400_000,
    )


def outcome(behaviour: str, *, limit_s: float = 20) -> Outcome:
    return Running(launch(behaviour, limit_s=limit_s)).finish(timeout_s=TIMEOUT_S)


def alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def wait_for(path: Path) -> str:
    deadline = time.monotonic() + TIMEOUT_S
    while not (path.exists() and path.read_text()):
        assert time.monotonic() < deadline, f"{path} was not written"
        time.sleep(0.01)
    return path.read_text()


def test_child_finds_itself_in_a_listed_world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Session of its own, cwd /, umask 022, stdin empty, no descriptor of ours, not one variable of ours."""
    monkeypatch.setenv("JUNK", "1")
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.chdir(tmp_path)
    before = os.umask(0o077)
    try:
        with (tmp_path / "held").open("w") as held:
            os.set_inheritable(held.fileno(), True)
            got = outcome("facts")
    finally:
        os.umask(before)
    facts = json.loads(got.stderr_tail)
    assert got.exit_code == 0
    assert facts["environment"] == ENVIRONMENT
    assert facts["argv"] == ["-s", "-P", "-m", "tests.process.bad_child", "facts"]
    assert (facts["cwd"], facts["umask"], facts["session"], facts["stdin"]) == ("/", 0o022, True, "")
    assert facts["descriptors"] == [0, 1, 2, 3]  # 3 is the listing's own


@pytest.mark.parametrize("code", [0, 1, 42, 255])
def test_exit_code_is_reported(code: int) -> None:
    got = outcome(f"exit={code}")
    assert (got.exit_code, got.signal, got.timed_out, got.stopped) == (code, None, False, False)
    assert (got.stderr_size, got.stderr_sha256) == (0, hashlib.sha256(b"").hexdigest())


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGKILL, signal.SIGTERM, signal.SIGABRT])
def test_death_by_a_signal_of_its_own_is_reported(number: int) -> None:
    got = outcome(f"signal={number}")
    assert (got.exit_code, got.signal, got.timed_out) == (None, number, False)


def test_time_limit_ends_a_child() -> None:
    got = outcome("sleep", limit_s=0.5)
    assert (got.timed_out, got.signal, got.exit_code) == (True, signal.SIGTERM, None)
    assert got.duration_us >= 500_000


def test_child_that_ignores_term_is_killed_after_its_grace(tmp_path: Path) -> None:
    got = outcome(f"ignore-term={tmp_path / 'ready'}", limit_s=LATER_S)
    assert (tmp_path / "ready").exists(), "the child was stopped before it ignored anything"
    assert (got.timed_out, got.signal) == (True, signal.SIGKILL)
    assert got.duration_us >= LATER_S * 1_000_000 + 300_000


def test_grandchild_in_its_own_session_does_not_outlive_the_limit(tmp_path: Path) -> None:
    """Case C1."""
    got = outcome(f"grandchild={tmp_path / 'pid'}", limit_s=LATER_S)
    assert (got.timed_out, got.descendants_killed) == (True, 1)
    assert not alive(int((tmp_path / "pid").read_text()))


def test_child_that_forks_and_leaves(tmp_path: Path) -> None:
    got = outcome(f"leave={tmp_path / 'pid'}")
    assert (got.exit_code, got.descendants_killed) == (0, 1)
    assert not alive(int((tmp_path / "pid").read_text()))


def test_helper_that_leaves_by_itself_is_not_killed() -> None:
    got = Running(replace(launch("helper"), leave_us=60_000_000)).finish(timeout_s=TIMEOUT_S)
    assert (got.exit_code, got.descendants_killed) == (0, 0)


def test_a_whole_tree_of_sessions_is_gone() -> None:
    """3 children, each with a child of its own session, each of which forks once more."""
    got = outcome("tree")
    assert (got.exit_code, got.descendants_killed) == (0, 9)


def test_fifty_megabytes_of_stderr_neither_block_nor_stay() -> None:
    text = b"x" * 50 * 2**20 + b"the end"
    got = outcome("flood")
    assert (got.exit_code, got.stderr_size) == (0, len(text))
    assert got.stderr_sha256 == hashlib.sha256(text).hexdigest()
    assert got.stderr_tail == text[-(2**16) :]


def test_stopping_kills_at_once(tmp_path: Path) -> None:
    running = Running(launch(f"grandchild={tmp_path / 'pid'}"))
    pid = int(wait_for(tmp_path / "pid"))
    running.stop()
    got = running.finish(timeout_s=TIMEOUT_S)
    assert (got.stopped, got.timed_out, got.signal) == (True, False, signal.SIGKILL)
    assert not alive(pid)


def test_interpreter_that_is_not_there() -> None:
    """The supervisor starts, the child cannot: a failed exit with its reason, not a crash."""
    got = Running(replace(launch("exit=0"), python="/no/such/python")).finish(timeout_s=TIMEOUT_S)
    assert (got.exit_code, got.signal, got.fault) == (127, None, "")
    assert got.stderr_tail.startswith(b"cannot start /no/such/python: [Errno 2]")


def test_runner_that_dies_takes_the_tree_along(tmp_path: Path) -> None:
    """SIGKILL to the process that holds the supervisor's stdin: child and grandchild are gone."""
    script = (
        "import sys, time; sys.path.insert(0, sys.argv[1]);"
        "from tests.process.test_supervisor import launch;"
        "from mechanism.process.launch import Running;"
        "Running(launch('grandchild=' + sys.argv[2])); time.sleep(100)"
    )
    place = tmp_path / "pid"
    runner = subprocess.Popen([sys.executable, "-c", script, str(ROOT), str(place)])
    pid = int(wait_for(place))
    runner.kill()
    runner.wait()
    deadline = time.monotonic() + TIMEOUT_S
    while alive(pid):
        assert time.monotonic() < deadline, "the grandchild outlived the runner"
        time.sleep(0.01)


def test_killed_supervisor_is_told_and_its_orphans_can_be_ended(tmp_path: Path) -> None:
    """The child dies with the supervisor; the grandchild becomes ours, the nearest subreaper's."""
    before = set_subreaper(wanted=True)
    bystanders = set(children())
    try:
        running = Running(launch(f"grandchild={tmp_path / 'pid'}"))
        pid = int(wait_for(tmp_path / "pid"))
        os.kill(running.pid, signal.SIGKILL)
        got = running.finish(timeout_s=TIMEOUT_S)
        assert got.fault == "the supervisor itself ended by SIGKILL before it reported"
        assert (got.exit_code, got.signal) == (None, signal.SIGKILL)
        assert end_orphans(bystanders) >= 1
        assert not alive(pid)
    finally:
        set_subreaper(wanted=before)
    assert set(children()) == bystanders
