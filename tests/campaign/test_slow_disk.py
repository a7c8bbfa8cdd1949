"""A disk that takes its time at every call: no wrong timeout, no wrong time in log or record, nothing torn."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mechanism.campaign.standing import read_standing
from tests.campaign.campaign_setup import FAKE, ends, read_events, run, set_fakes
from tests.campaign.test_resume import NATIVE, findings, require_whole

Prepare = Callable[..., Path]
#: What waits for a disk. Processes that the runner forks come to none of these.
CALLS = ("fsync", "rename", "unlink", "mkdir", "rmdir", "ftruncate")


@contextmanager
def slow_disk(seconds: float) -> Iterator[list[str]]:
    """Each of CALLS takes so long in this process; yields the calls that were made."""
    seen: list[str] = []

    def wrap(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **more: Any) -> Any:
            seen.append(name)
            time.sleep(seconds)
            return real(*args, **more)

        return call

    with pytest.MonkeyPatch.context() as patched:
        for name in CALLS:
            patched.setattr(os, name, wrap(name, getattr(os, name)))
        yield seen


def began(out: Path, end: dict[str, Any]) -> int:
    """When the attempt that ended so was started, microseconds."""
    (found,) = (
        event["time_us"]
        for event in read_events(out)
        if event["event"] == "started" and event["attempt"] == end["attempt"]
    )
    return int(found)


def require_true_times(out: Path) -> None:
    """In the log times ascend; to the verifier every process ran while its attempt did, by one clock."""
    times = [event["time_us"] for event in read_events(out)]
    assert times == sorted(times)
    assert findings(out) == []


@pytest.mark.parametrize("seconds", [0.03, pytest.param(1.0, marks=pytest.mark.slow)])
def test_disk_of_the_runner_costs_no_cell_its_time(campaign: Prepare, tmp_path: Path, seconds: float) -> None:
    """What the runner waits for one cell, 15 calls and more, is no part of any cell's limit of 10 s."""
    folder, out = campaign(phases=NATIVE, time_limit_s=10), tmp_path / "out"
    seen: list[Any] = []
    with slow_disk(seconds) as calls:
        assert run(folder, out, observer=seen.append).complete
    assert len(calls) > 40
    require_whole(out, 2)
    require_true_times(out)
    left = [event.progress.left_s for event in seen if event.progress.left_s is not None]
    assert left[-1] == 0
    assert all(0 <= estimate <= 2 * len(calls) * (seconds + 1) for estimate in left)


def test_cell_that_hangs_is_stopped_while_its_runner_waits_for_the_disk(
    campaign: Prepare, tmp_path: Path
) -> None:
    """Its supervisor keeps the time. The cell beside it, which ended long before it was looked at, is valid."""
    folder, out = campaign(phases=NATIVE, time_limit_s=5), tmp_path / "out"
    set_fakes(folder, {"native.H1.1": "sleep"})
    with slow_disk(0.2):
        assert not run(folder, out).complete
    found = ends(out)
    assert found["native.H0.1"]["outcome"] == "valid"
    assert (found["native.H1.1"]["outcome"], found["native.H1.1"]["reason"]) == (
        "timeout",
        "stopped at its limit of 5 s by TERM",
    )
    assert found["native.H1.1"]["time_us"] - began(out, found["native.H1.1"]) >= 5_000_000


def test_disk_of_a_cell_is_told_by_its_markers(campaign: Prepare, tmp_path: Path) -> None:
    """Four files of 0.3 s each, in the cells: slow, valid, and true in every time."""
    folder, out = campaign(phases=NATIVE), tmp_path / "out"
    set_fakes(folder, {"*": "slow-disk=0.3"})
    assert run(folder, out, module=FAKE).complete
    require_whole(out, 2)
    require_true_times(out)
    for name, end in ends(out).items():
        assert end["time_us"] - began(out, end) >= 4 * 300_000, name


def test_status_of_a_run_on_a_slow_disk(campaign: Prepare, tmp_path: Path) -> None:
    """Between any two events a look from outside counts every cell once, and never ahead of the log."""
    folder, out = campaign(phases=NATIVE), tmp_path / "out"
    looks: list[tuple[int, int, int]] = []

    def observer(event: Any) -> None:
        found = read_standing(out)
        looks.append((found.done, len(found.running), event.progress.done))

    with slow_disk(0.03):
        assert run(folder, out, observer=observer).complete
    assert all(done + running <= 2 for done, running, _ in looks)
    assert all(told <= done for done, _, told in looks)
    assert looks[-1] == (2, 0, 2)
