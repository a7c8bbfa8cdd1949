"""Stopping and going on: whatever is killed, every cell is in the bundle exactly once."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ledger.canonical import NO_DIGEST, sha256
from ledger.record import Record
from mechanism.__main__ import cli
from mechanism.campaign.attempts import read_log
from mechanism.campaign.events import CellStarted
from mechanism.campaign.request import CampaignResult
from mechanism.campaign.standing import read_standing
from mechanism.command.run import _show
from mechanism.errors import CampaignError
from mechanism.show.progress import counting
from tests.campaign.campaign_setup import ROOT, ends, read_events, run, set_fakes

Prepare = Callable[..., Path]
NATIVE = """
phases:
  - name: qualification
    cells:
      - {name: native, alignment: constructed, histories: [H0, H1]}
"""

#: When a test gives up; nothing that works comes near it.
TIMEOUT_S = 120


def start(folder: Path, out: Path, *more: str) -> subprocess.Popen[bytes]:
    """A runner of its own, to be stopped or killed."""
    argv = [sys.executable, "-m", "tests.campaign.campaign_setup", str(folder), str(out), *more]
    return subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def wait_until(ready: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not ready():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def lines(out: Path) -> int:
    try:
        return (out / "attempts.jsonl").read_bytes().count(b"\n")
    except FileNotFoundError:
        return 0


def require_whole(out: Path, total: int) -> None:
    """Every cell once, the log chained and closed, every file accounted for by digest."""
    events = read_events(out)
    raw = (out / "attempts.jsonl").read_bytes().splitlines()
    assert [event["previous"] for event in events] == [NO_DIGEST, *(sha256(line) for line in raw[:-1])]
    started = [event["attempt"] for event in events if event["event"] == "started"]
    ended = [event["attempt"] for event in events if event["event"] == "ended"]
    assert started == sorted(set(started))
    assert sorted(ended) == started
    valid = {event["attempt"]: event for event in events if event.get("outcome") == "valid"}
    records = [Record.model_validate_json(path.read_bytes()) for path in (out / "records").iterdir()]
    assert len(records) == total
    assert sorted(record.attempt for record in records) == sorted(valid)
    for record in records:
        assert sha256((out / record.path).read_bytes()) == valid[record.attempt]["record"]
    assert len({record.process.nonce for record in records}) == total
    manifest = [json.loads(line) for line in (out / "files.jsonl").read_bytes().splitlines()]
    assert [item["path"] for item in manifest] == sorted(item["path"] for item in manifest)
    for item in manifest:
        assert sha256((out / item["path"]).read_bytes()) == item["sha256"]
    there = {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}
    assert there == {item["path"] for item in manifest} | {"files.jsonl", "bundle.json"}
    assert not (out / "staging").exists()


def findings(out: Path) -> list[str]:
    """What the verifier finds at files, documents, processes and log; bits and claims are a fake's."""
    argv = [sys.executable, "-m", "verifier", "check", str(out), "--format", "json"]
    done = subprocess.run(argv, cwd=ROOT, check=False, capture_output=True)
    found = json.loads(done.stdout)["findings"]
    return [str(item) for item in found if item["code"][:2] in {"V1", "V2", "V4"}]


def trajectories(out: Path) -> dict[str, str]:
    found = {}
    for path in (out / "records").iterdir():
        found[path.name] = json.loads(path.read_bytes())["trajectory"]
    return found


def test_whole_campaign(campaign: Prepare, tmp_path: Path) -> None:
    folder = campaign(replicates=2)
    result = run(folder, tmp_path / "out")
    assert result == CampaignResult(complete=True, folder=tmp_path / "out", total=16, valid=16)
    require_whole(tmp_path / "out", 16)
    for name, source in (("plan.yaml", "plan.yaml"), ("plan.lock", "plan.lock")):
        assert (tmp_path / "out" / name).read_bytes() == (folder / source).read_bytes()
    order = [
        (event["phase"], event["cell"], event["history"], event["replicate"])
        for event in read_events(tmp_path / "out")
        if event["event"] == "started"
    ]
    cells = json.loads((folder / "plan.lock").read_bytes())["cells"]
    assert order == [(cell["phase"], cell["cell"], cell["history"], cell["replicate"]) for cell in cells]
    same = trajectories(tmp_path / "out")
    assert same["qualification.replay.H0.1.json"] == same["qualification.native.H0.2.json"]
    assert same["transfer.cross-order.H0.1.json"] == same["qualification.native.H1.1.json"]
    assert same["qualification.native.H0.1.json"] != same["qualification.native.H1.1.json"]


def test_resuming_what_is_complete_changes_nothing(campaign: Prepare, tmp_path: Path) -> None:
    folder = campaign(phases=NATIVE)
    run(folder, tmp_path / "out")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")}
    result = run(folder, tmp_path / "out", resume=True)
    assert (result.complete, result.valid, result.total) == (True, 2, 2)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")} == before


def test_cell_killed_between_capture_and_record_runs_again(campaign: Prepare, tmp_path: Path) -> None:
    """Case E9: not valid; resume runs it again as a new attempt, and nothing of the first is in the bundle."""
    folder, out = campaign(phases=NATIVE), tmp_path / "out"
    set_fakes(folder, {"native.H1.1": "die-at-record"})
    result = run(folder, out)
    assert (result.valid, result.exit_code) == (1, 5)
    assert ends(out)["native.H1.1"]["outcome"] == "killed"
    set_fakes(folder, {})
    assert run(folder, out, resume=True).complete
    require_whole(out, 2)
    assert [event["event"] for event in read_events(out)].count("started") == 3


@pytest.mark.parametrize("after", [1, 2, 4, 7, 11])
def test_runner_killed_on_the_way(campaign: Prepare, tmp_path: Path, after: int) -> None:
    """SIGKILL once the log has so many lines; then resume: every cell exactly once."""
    folder, out = campaign(), tmp_path / "out"
    runner = start(folder, out)
    wait_until(lambda: lines(out) >= after or runner.poll() is not None)
    runner.kill()
    runner.communicate()
    result = run(folder, out, resume=True)
    assert (result.complete, result.valid) == (True, 8)
    require_whole(out, 8)
    interrupted = [event for event in read_events(out) if event.get("outcome") == "interrupted"]
    assert len(interrupted) <= 2
    assert all(event["reason"] == "its runner stopped before it ended" for event in interrupted)


def test_record_in_place_without_its_end_in_the_log_is_valid(campaign: Prepare, tmp_path: Path) -> None:
    folder, out = campaign(), tmp_path / "out"
    set_fakes(folder, {"forced-grid.H1.1": "exit=1"})
    run(folder, out, jobs=1)
    log = (out / "attempts.jsonl").read_bytes().splitlines(keepends=True)
    last_valid = max(place for place, line in enumerate(log) if b'"outcome":"valid"' in line)
    (out / "attempts.jsonl").write_bytes(b"".join(log[:last_valid]))
    for attempt in log[last_valid + 1 :]:
        name = json.loads(attempt).get("cell", "")
        assert name in {"", "forced-grid"}, "the case needs the last valid cell to be the last but one"
    set_fakes(folder, {})
    result = run(folder, out, resume=True)
    require_whole(out, 8)
    assert result.notes[0].endswith("its record was in place when its runner stopped")
    recovered = [event for event in read_events(out) if event["event"] == "ended" and event["stderr"] is None]
    assert [(event["outcome"], event["exit_code"], event["reason"]) for event in recovered] == [
        ("valid", 0, "")
    ]
    assert findings(out) == []


def sampled_cuts(data: bytes, count: int) -> list[int]:
    """Every line's end and the byte on each side of it, and others from a seed."""
    edges = {0, len(data)}
    for place, byte in enumerate(data):
        if byte == ord("\n"):
            edges |= {place, place + 1, place + 2}
    inside = random.Random(2607).sample(range(len(data)), count)
    some = sorted(edges)[:: max(1, len(edges) // count)]
    return sorted(edge for edge in {*some, *inside} if edge <= len(data))


@pytest.mark.parametrize("count", [2, pytest.param(50, marks=pytest.mark.slow)])
def test_resume_from_a_log_cut_anywhere(campaign: Prepare, tmp_path: Path, count: int) -> None:
    """Case C4. Every cut is read; those sampled are really resumed, each to a whole bundle."""
    folder, whole = campaign(phases=NATIVE), tmp_path / "whole"
    run(folder, whole, jobs=1)
    data = (whole / "attempts.jsonl").read_bytes()
    for cut in range(len(data) + 1):
        log = read_log(data[:cut], name="log")
        assert (log.whole + log.torn, len(log.events)) == (data[:cut], data[:cut].count(b"\n"))
    cuts = sampled_cuts(data, count)
    assert len(cuts) >= count
    for place, cut in enumerate(cuts):
        out = tmp_path / f"cut-{place}"
        shutil.copytree(whole, out)
        (out / "bundle.json").unlink()
        (out / "attempts.jsonl").write_bytes(data[:cut])
        # what the crash that tore the log could have left: records of processes that were started
        begun = [json.loads(line) for line in data[:cut].split(b"\n")[:-1] if b'"started"' in line]
        kept = {"{phase}.{cell}.{history}.{replicate}.json".format(**event) for event in begun}
        for record in (out / "records").iterdir():
            if record.name not in kept:
                record.unlink()
        result = run(folder, out, resume=True)
        assert result.complete, (cut, result)
        require_whole(out, 2)
        resumed = [event for event in read_events(out) if event["event"] == "resumed"]
        torn = data[:cut].rpartition(b"\n")[2].decode()
        assert [event["torn"] for event in resumed] == ([torn] if cut else [])


@pytest.mark.parametrize("cut", ["nothing", "1", "100", "half", "two lines"])
def test_log_that_lost_whole_lines_is_not_believed(campaign: Prepare, tmp_path: Path, cut: str) -> None:
    """No crash loses lines: said with their number by resume and status alike; moved away, the cells run again."""
    folder, out = campaign(phases=NATIVE, replicates=2), tmp_path / "out"
    run(folder, out, jobs=1)
    (out / "bundle.json").unlink()
    (out / "files.jsonl").unlink()
    data = (out / "attempts.jsonl").read_bytes()
    two = len(b"".join(data.splitlines(keepends=True)[:2]))
    kept = data[: {"nothing": 0, "1": 1, "100": 100, "half": len(data) // 2, "two lines": two}[cut]]
    (out / "attempts.jsonl").write_bytes(kept)
    begun = [json.loads(line) for line in kept.split(b"\n")[:-1] if b'"started"' in line]
    known = {"{phase}.{cell}.{history}.{replicate}.json".format(**event) for event in begun}
    lost = sorted(path.name for path in (out / "records").iterdir() if path.name not in known)
    assert len(lost) == {"nothing": 4, "1": 4, "100": 4, "half": 2, "two lines": 3}[cut]
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    with pytest.raises(CampaignError) as refusal:
        run(folder, out, resume=True)
    more = " and 1 more" if len(lost) == 4 else ""
    assert str(refusal.value) == (
        f"{out / 'records'}: expected only records that the log calls valid, got {len(lost)} records of which it has"
        f" no line ({', '.join(lost[:3])}{more}): no crash of a runner loses those; move them away, for example to"
        f" {out}.aside, then --resume runs the cells again; `mechanism status {out} --format json` lists them all"
        " under unvouched"
    )
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before
    now = read_standing(out)
    assert (now.state, now.refusal) == ("stopped", str(refusal.value))
    assert now.unvouched == tuple(f"records/{name}" for name in lost)
    Path(f"{out}.aside").mkdir()
    for name in lost:
        (out / "records" / name).rename(Path(f"{out}.aside") / name)
    assert read_standing(out).refusal is None
    assert run(folder, out, resume=True).complete
    require_whole(out, 4)
    assert findings(out) == []


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("unlink", "the log says it is valid, but there is no such file"),
        ("flip", "expected sha256 "),
    ],
)
def test_damaged_record_of_a_valid_process_is_refused(
    campaign: Prepare, tmp_path: Path, damage: str, message: str
) -> None:
    """Running the cell again would give a bundle with two valid attempts of it; nothing is changed."""
    folder, out = campaign(phases=NATIVE), tmp_path / "out"
    run(folder, out)
    (out / "bundle.json").unlink()
    record = out / "records" / "qualification.native.H0.1.json"
    if damage == "unlink":
        record.unlink()
    else:
        data = bytearray(record.read_bytes())
        data[40] ^= 1
        record.write_bytes(data)
    with pytest.raises(CampaignError) as refusal:
        run(folder, out, resume=True)
    assert message in str(refusal.value)
    assert str(refusal.value).startswith(str(record))
    assert str(refusal.value).endswith("; put it back from a copy, or run the plan again into another folder")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signal_to_the_runner(campaign: Prepare, tmp_path: Path, number: signal.Signals, code: int) -> None:
    """Children are stopped and logged as interrupted, everything so far is kept, and it can be resumed."""
    folder, out = campaign(), tmp_path / "out"
    set_fakes(folder, {"replay.H0.1": "sleep", "forced-grid.H0.1": f"grandchild={tmp_path / 'pid'}"})
    runner = start(folder, out)
    wait_until(lambda: (tmp_path / "pid").exists() and lines(out) >= 6)
    runner.send_signal(number)
    told, complaint = runner.communicate(timeout=TIMEOUT_S)
    assert (runner.returncode, complaint) == (code, b"")
    assert json.loads(told) == {"complete": False, "valid": 2}
    stopped = [event for event in read_events(out) if event.get("outcome") == "interrupted"]
    assert {event["reason"] for event in stopped} == {"stopped with its runner"}
    standing = read_standing(out)
    assert (standing.failed, len(standing.interrupted)) == ((), len(stopped))
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text()}").exists()
    set_fakes(folder, {})
    assert run(folder, out, resume=True).complete
    require_whole(out, 8)


def test_what_was_interrupted_is_not_called_failed(
    campaign: Prepare, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One cell failed by itself, one was stopped by Ctrl-C: in events, result, progress line and status."""
    folder, out = campaign(phases=NATIVE), tmp_path / "out"
    set_fakes(folder, {"native.H1.1": "exit=1", "native.H0.1": "sleep"})
    seen: list[Any] = []
    with counting("quick", unit="cells") as shown:

        def observer(event: Any) -> None:
            seen.append(event.progress)
            _show(shown, event)
            if isinstance(event, CellStarted) and event.name == "qualification.native.H0.1":
                signal.raise_signal(signal.SIGINT)

        result = run(folder, out, observer=observer, jobs=1)
    assert (result.exit_code, len(result.failed), len(result.interrupted)) == (130, 1, 1)
    assert result.interrupted == (("qualification.native.H0.1", "interrupted: stopped with its runner"),)
    assert (seen[-1].done, seen[-1].failed, seen[-1].interrupted, seen[-1].running) == (0, 1, 1, 0)
    assert capsys.readouterr().err.splitlines()[-2:] == [
        "qualification.native.H0.1: interrupted: stopped with its runner",
        "quick: 0 of 2 cells, 1 failed, 1 interrupted",
    ]
    told = CliRunner().invoke(cli, ["status", str(out)]).output.splitlines()
    assert told[0] == "out: 0 of 2 cells, 1 failed, 1 interrupted, 0 running"
    assert told[-1] == "interrupted: qualification.native.H0.1: stopped with its runner"


def test_supervisor_killed_by_somebody(campaign: Prepare, tmp_path: Path) -> None:
    """The attempt is a killed one, its grandchild is gone, the other cells go on."""
    folder, out = campaign(phases=NATIVE), tmp_path / "out"
    set_fakes(folder, {"native.H1.1": f"grandchild={tmp_path / 'pid'}"})
    runner = start(folder, out)
    wait_until((tmp_path / "pid").exists)
    pid = int((tmp_path / "pid").read_text())
    (supervisor,) = [child for child in below(runner.pid) if pid in below(child)]
    os.kill(supervisor, signal.SIGKILL)
    runner.communicate(timeout=TIMEOUT_S)
    end = ends(out)["native.H1.1"]
    assert (end["outcome"], end["signal"]) == ("killed", 9)
    assert end["reason"] == "the supervisor itself ended by SIGKILL before it reported"
    assert not Path(f"/proc/{pid}").exists()
    assert ends(out)["native.H0.1"]["outcome"] == "valid"


def test_signal_that_reaches_a_supervisor_is_no_fault_of_the_cell(campaign: Prepare, tmp_path: Path) -> None:
    """As `pkill -f`, or Ctrl-C in the moment after the fork: interrupted, like what the runner stops."""
    folder, out = campaign(phases=NATIVE), tmp_path / "out"
    set_fakes(folder, {"native.H1.1": "sleep"})
    runner = start(folder, out)
    # the other cell has ended, and this one's supervisor has a child: it is no longer a copy of its runner
    wait_until(lambda: lines(out) >= 3 and len(members(runner.pid)) == 3)
    os.kill(members(runner.pid)[1], signal.SIGTERM)
    runner.communicate(timeout=TIMEOUT_S)
    end = ends(out)["native.H1.1"]
    assert (end["outcome"], end["signal"]) == ("interrupted", signal.SIGTERM)
    assert end["reason"] == "the supervisor itself ended by SIGTERM before it reported"
    set_fakes(folder, {})
    assert run(folder, out, resume=True).complete
    require_whole(out, 2)


def test_events_count_right_at_every_moment(campaign: Prepare, tmp_path: Path) -> None:
    folder = campaign()
    set_fakes(folder, {"replay.H0.1": "exit=1"})
    seen: list[Any] = []
    run(folder, tmp_path / "out", observer=seen.append)
    names = [type(event).__name__ for event in seen]
    assert Counter(names) == {"CampaignStarted": 1, "CellStarted": 8, "CellEnded": 8}  # nothing is finished
    for event in seen:
        now = event.progress
        assert now.done + now.failed + now.running <= now.total == 8
    last = seen[-1].progress
    assert (last.done, last.failed, last.running, last.left_s) == (7, 1, 0, 0.0)


def test_files_that_no_record_names_are_told_and_not_only_removed(campaign: Prepare, tmp_path: Path) -> None:
    """As after a kill between the capture's move and the record's."""
    folder, out = campaign(phases=NATIVE), tmp_path / "out"
    set_fakes(folder, {"native.H1.1": "exit=1"})
    run(folder, out)
    left = ("alignments/" + "0" * 64 + ".json", "objects/" + "1" * 64 + ".safetensors")
    for path in left:
        (out / path).write_bytes(b"{}")
    set_fakes(folder, {})
    seen: list[Any] = []
    result = run(folder, out, resume=True, observer=seen.append)
    told = tuple(f"{path}: no record names it; a process that was stopped left it, removed" for path in left)
    assert result.notes[-2:] == told
    assert seen[-1].notes == told
    require_whole(out, 2)


def members(runner: int) -> list[int]:
    """The runner and all below it."""
    found = [runner]
    for pid in found:
        found += below(pid)
    return found


def below(pid: int) -> list[int]:
    """The children of a process; none if it is gone."""
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def descriptors(pid: int) -> int:
    """How many descriptors a process has open."""
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


def test_second_signal_does_not_wait(campaign: Prepare, tmp_path: Path) -> None:
    """The runner ends at once; its supervisors end their trees without it, and resume waits for that."""
    folder, out = campaign(phases=NATIVE), tmp_path / "out"
    set_fakes(folder, {"*": f"grandchild={tmp_path / 'pid'}"})
    runner = start(folder, out)
    wait_until(lambda: (tmp_path / "pid").exists() and lines(out) == 2)
    stopped = below(runner.pid)
    assert len(stopped) == 2
    for supervisor in stopped:
        os.kill(supervisor, signal.SIGSTOP)  # they do not answer
    open_before = descriptors(runner.pid)
    runner.send_signal(signal.SIGINT)
    wait_until(lambda: descriptors(runner.pid) <= open_before - 2)  # it told them, by closing two pipes
    assert runner.poll() is None, "the first signal waits for the supervisors"
    runner.send_signal(signal.SIGINT)
    runner.communicate(timeout=TIMEOUT_S)
    assert runner.returncode in {1, -signal.SIGINT}
    for supervisor in stopped:
        os.kill(supervisor, signal.SIGCONT)
    set_fakes(folder, {})
    assert run(folder, out, resume=True).complete
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text()}").exists()
    require_whole(out, 2)
