"""Clocks that jump and machines that sleep: no wrong timeout, no wrong time in a log or a record."""

import ast
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mechanism.campaign import slots
from mechanism.process import supervisor
from tests.campaign.campaign_setup import ROOT, read_events, run, set_fakes

Prepare = Callable[..., Path]
NATIVE = """
phases:
  - name: qualification
    cells:
      - {name: native, alignment: constructed, histories: [H0, H1]}
"""
ROOMS = ("mechanism/campaign", "mechanism/process", "mechanism/engine", "mechanism/show")
STEADY = {"monotonic", "monotonic_ns", "sleep"}


@pytest.mark.parametrize("room", ROOMS)
def test_no_room_that_waits_or_records_reads_the_wall_clock(room: str) -> None:
    """Of the module time they use the monotonic clock and sleep, and of datetime nothing."""
    for path in (ROOT / room).glob("*.py"):
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = {alias.name for alias in node.names} | {getattr(node, "module", None)}
                assert "datetime" not in names, path
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.value.id == "time"
            ):
                assert node.attr in STEADY, (path, node.lineno)


def test_clock_is_the_one_that_stands_still_while_the_machine_sleeps() -> None:
    """CLOCK_MONOTONIC, not CLOCK_BOOTTIME: hours of sleep are no part of a cell's time limit."""
    for read in (supervisor._now_us, slots.now_us):
        before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        got = read()
        assert before <= got <= time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000


def test_wall_clock_that_jumps_is_not_noticed(
    campaign: Prepare, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It leaps by years, forth and back, at every look: cells of 0.5 s with a limit of 5 s still end well."""
    folder, out = campaign(phases=NATIVE, time_limit_s=5), tmp_path / "out"
    set_fakes(folder, {"*": "slow=0.5"})
    leaps = iter(range(10**9))
    real = time.time

    def leaping() -> float:
        return real() + (1 - 2 * (next(leaps) % 2)) * 3e8

    monkeypatch.setattr(time, "time", leaping)
    before = slots.now_us()
    seen: list[Any] = []
    assert run(folder, out, observer=seen.append).complete
    times = [event["time_us"] for event in read_events(out)]
    assert times == sorted(times)
    assert before <= times[0]
    assert times[-1] <= slots.now_us()
    estimates = [event.progress.left_s for event in seen if event.progress.left_s is not None]
    assert all(0 <= left < 60 for left in estimates)


def test_sleep_of_the_machine_is_no_time_of_the_cells(
    campaign: Prepare, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock that counts sleep is ahead by a day all at once: nobody looks at it."""
    folder, out = campaign(phases=NATIVE, time_limit_s=5), tmp_path / "out"
    real = time.clock_gettime_ns
    monkeypatch.setattr(
        time, "clock_gettime_ns", lambda clock: real(clock) + (clock == time.CLOCK_BOOTTIME) * 86_400 * 10**9
    )
    assert run(folder, out).complete
    assert {event.get("outcome") for event in read_events(out)} == {None, "valid"}


def test_estimate_follows_the_injected_clock(
    campaign: Prepare, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten seconds pass at every event: after the first of two cells has ended, its pace is what is left."""
    folder = campaign(phases=NATIVE)
    now = [1000.0]
    monkeypatch.setattr("mechanism.campaign.slots.time.monotonic", lambda: now[0])
    left: list[float | None] = []

    def observer(event: Any) -> None:
        if type(event).__name__ != "CampaignFinished":
            left.append(event.progress.left_s)
        now[0] += 10

    run(folder, tmp_path / "out", jobs=1, observer=observer)
    # started; first cell starts at 10 s and ends at 20 s; the second starts at 30 s, and ends the campaign
    assert left == [None, None, 20.0, 30.0, 0.0]
