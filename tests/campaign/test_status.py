"""Where a campaign stands, told from outside: while it runs, after it died, when it is complete."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ledger.bundle import Attempt, AttemptEnded, AttemptStarted, LogResumed
from ledger.canonical import NO_DIGEST
from mechanism.campaign.events import CellEnded
from mechanism.campaign.standing import Standing, read_standing, standing
from mechanism.errors import CampaignError
from tests.campaign.campaign_setup import ROOT, request, run, set_fakes
from tests.campaign.test_order import CELLS
from tests.campaign.test_resume import NATIVE, lines, start, wait_until

Prepare = Callable[..., Path]
SECOND = 1_000_000


def began(attempt: int, place: int, time_s: int) -> AttemptStarted:
    cell = CELLS[place]
    return AttemptStarted(
        event="started",
        previous=NO_DIGEST,
        attempt=attempt,
        phase=cell.phase,
        cell=cell.cell,
        history=cell.history,
        replicate=cell.replicate,
        nonce="0" * 32,
        time_us=time_s * SECOND,
    )


def ended(attempt: int, time_s: int, *, valid: bool = True) -> AttemptEnded:
    return AttemptEnded(
        event="ended",
        previous=NO_DIGEST,
        attempt=attempt,
        outcome="valid" if valid else "killed",
        reason="" if valid else "ended by SIGSEGV (signal 11)",
        exit_code=0 if valid else None,
        signal=None if valid else 11,
        descendants_killed=0,
        stderr=None,
        record="0" * 64 if valid else None,
        time_us=time_s * SECOND,
    )


def resumed(time_s: int) -> LogResumed:
    return LogResumed(event="resumed", previous=NO_DIGEST, torn="", time_us=time_s * SECOND)


FIRST = "records/p.native.H0.1.json"
EVENTS: tuple[Attempt, ...] = (
    began(1, 0, 100),
    began(2, 1, 100),
    ended(1, 103),
    ended(2, 104, valid=False),
    began(3, 2, 104),
)


def at(events: tuple[Attempt, ...], now_s: int, *, records: set[str], runner: int | None = 7) -> Standing:
    return standing(
        CELLS,
        events,
        records=records,
        state="stopped" if runner is None else "running",
        runner=runner,
        torn=0,
        now_us=now_s * SECOND,
    )


def test_standing_while_a_runner_works() -> None:
    """Two of five have ended in 6 s, one of them failed; one is at work: three are left, at 3 s each."""
    now = at(EVENTS, 106, records={FIRST})
    assert (now.done, now.total, now.attempts, now.runners) == (1, 5, 3, 1)
    assert now.failed == (("p.native.H1.1", "killed: ended by SIGSEGV (signal 11)"),)
    assert now.running == ("p.replay.H1.1",)
    assert now.left_s == 9.0


def test_standing_after_the_runner_died() -> None:
    """Nothing is at work and there is no time left to tell; what was at work has no record."""
    now = at(EVENTS, 10**6, records={FIRST}, runner=None)
    assert (now.done, now.running, now.left_s) == (1, (), None)


def test_standing_of_a_runner_that_went_on_counts_its_own_work_alone() -> None:
    """The pace is its own, though its clock may read less; a cell that failed before is to be run again."""
    later = (*EVENTS, resumed(10), began(4, 1, 11), ended(4, 14))
    now = at(later, 14, records={FIRST, "records/p.native.H1.1.json"})
    assert (now.done, now.failed, now.runners, now.attempts) == (2, (), 2, 4)
    assert now.left_s == 12.0  # three left, 4 s each


def test_record_in_place_before_its_end_is_logged_is_done_and_not_at_work() -> None:
    now = at(EVENTS, 106, records={FIRST, "records/p.replay.H1.1.json"})
    assert (now.done, now.running) == (2, ())


def test_status_says_what_the_runner_says(
    campaign: Prepare, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the end of every cell: the observer's counts and those read from the folder are the same.

    Ten seconds pass when a cell has ended, and none otherwise.
    """
    now = [1000]
    monkeypatch.setattr("mechanism.campaign.slots.time.monotonic", lambda: float(now[0]))
    monkeypatch.setattr("mechanism.campaign.slots.time.monotonic_ns", lambda: now[0] * 10**9)
    folder, out = campaign(), tmp_path / "out"
    set_fakes(folder, {"replay.H0.1": "exit=1"})
    seen: list[tuple[Any, Standing]] = []

    def observer(event: object) -> None:
        if isinstance(event, CellEnded):
            seen.append((event.progress, read_standing(out, now_us=now[0] * SECOND)))
            now[0] += 10

    run(folder, out, observer=observer)
    assert len(seen) == 8
    for told, found in seen:
        assert (found.done, len(found.failed), found.total) == (told.done, told.failed, told.total)
        assert len(found.running) == told.running
        assert found.state == "running"
        assert found.left_s == pytest.approx(told.left_s)
    assert read_standing(out).state == "stopped"


def status(out: Path, *more: str) -> tuple[int, str]:
    argv = [sys.executable, "-m", "mechanism", "status", str(out), *more]
    done = subprocess.run(argv, cwd=ROOT, check=False, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def test_command_while_it_runs_after_it_died_and_when_it_is_complete(
    campaign: Prepare, tmp_path: Path
) -> None:
    folder, out = campaign(phases=NATIVE), tmp_path / "out"
    set_fakes(folder, {"native.H1.1": "sleep"})
    runner = start(folder, out)
    wait_until(lambda: lines(out) >= 3)
    code, text = status(out)
    assert code == 6
    assert re.sub(r"about \d+ s", "about ... s", text) == (
        "out: 1 of 2 cells, 0 failed, 1 running, about ... s left\n"
        f"process {runner.pid} runs it\n2 processes started by 1 runner\nrunning: qualification.native.H1.1\n"
    )
    runner.kill()
    runner.communicate()
    wait_until(lambda: read_standing(out).state == "stopped")
    with (out / "attempts.jsonl").open("ab") as log:
        log.write(b'{"half')
    assert status(out) == (
        5,
        "out: 1 of 2 cells, 0 failed, 0 running\n"
        f"nobody runs it; go on with: mechanism run PLAN --out {out} --resume\n"
        "2 processes started by 1 runner\n"
        "the last 6 bytes of the log are torn; --resume keeps them and goes on\n",
    )
    set_fakes(folder, {})
    assert run(folder, out, resume=True).complete
    code, text = status(out, "--format", "json")
    told = json.loads(text)
    assert (code, told["state"], told["done"], told["attempts"], told["runners"]) == (0, "complete", 2, 3, 2)


def test_complete_bundle_that_lost_files_is_damaged(campaign: Prepare, tmp_path: Path) -> None:
    folder, out = campaign(phases=NATIVE), tmp_path / "out"
    assert run(folder, out).complete
    assert status(out)[0] == 0
    way_out = "put back what is missing from a copy, or run the plan again into another folder"
    (out / "records" / "qualification.native.H1.1.json").unlink()
    assert status(out) == (
        5,
        "out: 1 of 2 cells, 0 failed, 0 running\n"
        "it was complete and is damaged: 1 file is missing (records/qualification.native.H1.1.json); "
        f"{way_out}\n2 processes started by 1 runner\n",
    )
    for path in ("files.jsonl", "build.json", "routing.json"):
        (out / path).unlink()
    code, text = status(out)
    assert (code, text.splitlines()[1]) == (
        5,
        "it was complete and is damaged: 4 files are missing (build.json, files.jsonl,"
        f" records/qualification.native.H1.1.json and 1 more); {way_out}",
    )
    told = json.loads(status(out, "--format", "json")[1])
    assert (told["state"], len(told["missing"])) == ("damaged", 4)


@pytest.mark.parametrize("kept", [0, -200])
def test_complete_bundle_whose_log_was_cut_is_damaged(campaign: Prepare, kept: int, tmp_path: Path) -> None:
    """--resume changes nothing in it, so nothing is said of that."""
    folder, out = campaign(phases=NATIVE), tmp_path / "out"
    assert run(folder, out).complete
    log = out / "attempts.jsonl"
    log.write_bytes(log.read_bytes()[:kept])
    code, text = status(out)
    assert (code, text.splitlines()[1]) == (
        5,
        "it was complete and is damaged: 1 file has other bytes (attempts.jsonl); put back what is changed from a"
        " copy, or run the plan again into another folder",
    )
    assert "resume" not in text
    (out / "build.json").unlink()
    assert status(out)[1].splitlines()[1] == (
        "it was complete and is damaged: 1 file is missing (build.json) and 1 file has other bytes"
        " (attempts.jsonl); put back what is missing or changed from a copy, or run the plan again into another"
        " folder"
    )
    told = json.loads(status(out, "--format", "json")[1])
    assert (told["missing"], told["changed"]) == (["build.json"], ["attempts.jsonl"])


def test_captures_may_be_left_out_of_what_is_complete(campaign: Prepare, tmp_path: Path) -> None:
    folder, out = campaign(phases=NATIVE), tmp_path / "out"
    assert run(folder, out).complete
    for capture in (out / "objects").iterdir():
        capture.unlink()
    assert read_standing(out).state == "complete"
    next((out / "alignments").iterdir()).unlink()
    assert read_standing(out).state == "damaged"


def test_status_says_that_resume_will_refuse(campaign: Prepare, tmp_path: Path) -> None:
    """A log cut in its first line: what is torn is told, and that records are there of which it has no line."""
    folder, out = campaign(phases=NATIVE), tmp_path / "out"
    assert run(folder, out).complete
    (out / "bundle.json").unlink()
    (out / "attempts.jsonl").write_bytes((out / "attempts.jsonl").read_bytes()[:100])
    assert status(out) == (
        5,
        "out: 2 of 2 cells, 0 failed, 0 running\n"
        f"nobody runs it, and --resume will refuse: {out}/records: expected only records that the log calls valid, got"
        " 2 records of which it has no line (qualification.native.H0.1.json, qualification.native.H1.1.json): no crash"
        f" of a runner loses those; move them away, for example to {out}.aside, then --resume runs the cells again;"
        f" `mechanism status {out} --format json` lists them all under unvouched\n"
        "0 processes started by 1 runner\n"
        "the last 100 bytes of the log are torn; --resume will keep them once it can go on\n",
    )


def test_folder_without_a_campaign(tmp_path: Path) -> None:
    with pytest.raises(CampaignError) as refusal:
        read_standing(tmp_path / "none")
    assert str(refusal.value) == (
        f"{tmp_path / 'none'}: expected the folder of a campaign, got no folder; check the path"
    )
    with pytest.raises(CampaignError, match=r"got a folder without plan\.lock"):
        read_standing(tmp_path)


def test_reading_changes_nothing(campaign: Prepare, tmp_path: Path) -> None:
    folder, out = campaign(phases=NATIVE), tmp_path / "out"
    run(folder, out)
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    read_standing(out)
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*")} == before
    assert request(folder, out).out == out
