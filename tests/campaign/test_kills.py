"""Kills by the hundred, each a real SIGKILL to a runner, a supervisor or a child; nothing is lost or doubled."""

import contextlib
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
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from ledger.record import MARKERS
from mechanism.campaign.request import RunRequest
from mechanism.campaign.runner import run_campaign
from mechanism.fixture.build import build
from mechanism.fixture.place import ROUTING, folder_of
from mechanism.plan.document import load_ledger, load_plan
from mechanism.plan.freeze import read_lock
from tests.campaign.campaign_setup import QUICK, ROOT, ends, read_events, run, set_fakes
from tests.campaign.test_resume import NATIVE, TIMEOUT_S, below, require_whole, start, wait_until

Prepare = Callable[..., Path]
PLAN = ROOT / "plans" / "quick.yaml"
#: Campaigns of the sweep, and kills in each; no victim counts that was gone before the signal came.
CAMPAIGNS, KILLS = 8, 26
VICTIMS = ("runner", "supervisor", "child")


def quick_request(folder: Path, cache: Path) -> RunRequest:
    """plans/quick.yaml as it is committed; what the quick child delivers lies in `folder`/stored."""
    plan = load_plan(PLAN)
    data = PLAN.with_suffix(".lock").read_bytes()
    lock = read_lock(data, name="quick.lock")
    fixture = folder_of(lock.fixture.recipe, cache)
    return RunRequest(
        plan=plan.plan,
        plan_bytes=plan.data,
        lock=lock,
        lock_bytes=data,
        ledger_bytes=load_ledger(plan, PLAN.parent).data,
        routing_bytes=(fixture / ROUTING).read_bytes(),
        fixture_folder=fixture,
        out=folder / "out",
        jobs=2,
        module=QUICK,
    )


@pytest.fixture(scope="session")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the fixture of plans/quick.yaml and one real replicate of every cell of it."""
    folder = tmp_path_factory.mktemp("quick")
    build(load_plan(PLAN).plan.fixture, folder / "cache")
    asked = quick_request(folder, folder / "cache")
    first = tuple(cell for cell in asked.lock.cells if cell.replicate == 1)
    lock = asked.lock.model_copy(update={"cells": first})
    real = replace(asked, lock=lock, out=folder / "stored", module="mechanism.process.child")
    assert run_campaign(real).complete
    (folder / "fakes.json").write_text("{}")
    return folder


def kill_one(runner: int, kind: str, draw: random.Random) -> bool:
    """SIGKILL to a process of that kind. Returns whether there was one."""
    supervisors = below(runner)
    candidates = {
        "runner": [runner],
        "supervisor": supervisors,
        "child": [child for supervisor in supervisors for child in below(supervisor)],
    }[kind]
    if not candidates:
        return False
    try:
        descriptor = os.pidfd_open(draw.choice(candidates))
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    except ProcessLookupError:
        return False
    os.close(descriptor)
    return True


def go(folder: Path) -> subprocess.Popen[bytes]:
    argv = [sys.executable, "-m", "tests.campaign.test_kills", str(folder)]
    return subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def works_or_is_gone(runner: subprocess.Popen[bytes]) -> bool:
    return bool(below(runner.pid)) or runner.poll() is not None


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(CAMPAIGNS))
def test_sweep_of_kills(quick: Path, tmp_path: Path, seed: int) -> None:
    """26 kills in each of 8 campaigns of 70 cells: 208 in all, over runner, supervisor and child."""
    for name in ("cache", "stored", "fakes.json"):
        (tmp_path / name).symlink_to(quick / name)
    draw = random.Random(seed)
    killed: Counter[str] = Counter()
    while sum(killed.values()) < KILLS:
        runner = go(tmp_path)
        while sum(killed.values()) < KILLS and runner.poll() is None:
            kind = min(VICTIMS, key=lambda name: (killed[name], draw.random()))
            if kind != "runner" or draw.random() < 0.7:  # else perhaps before it has begun
                wait_until(partial(works_or_is_gone, runner))
            time.sleep(0.3 * draw.random() ** 2)
            if (tmp_path / "out").exists() and kill_one(runner.pid, kind, draw):
                killed[kind] += 1
                if kind == "runner":
                    break
        _, complaint = runner.communicate(timeout=300)
        assert complaint == b""
        if (tmp_path / "out" / "bundle.json").exists():  # too quick to be killed so often: once more
            require_whole(tmp_path / "out", 70)
            shutil.rmtree(tmp_path / "out")
    last = go(tmp_path)
    assert last.communicate(timeout=300)[1] == b""
    out = tmp_path / "out"
    require_whole(out, 70)
    locked = [
        "{phase}.{cell}.{history}.{replicate}.json".format(**cell)
        for cell in json.loads(PLAN.with_suffix(".lock").read_bytes())["cells"]
    ]
    assert sorted(path.name for path in (out / "records").iterdir()) == sorted(locked)
    told = {event["outcome"] for event in read_events(out) if event["event"] == "ended"}
    assert told <= {"valid", "killed", "interrupted"}, "a kill is told as nothing else"
    assert min(killed[kind] for kind in VICTIMS) >= KILLS // 3, killed
    check = [sys.executable, "-m", "verifier", "check", str(out), "--plan", str(PLAN)]
    assert subprocess.run(check, cwd=ROOT, check=False, stdout=subprocess.DEVNULL).returncode == 0


@pytest.mark.parametrize(
    ("marker", "victim"),
    [
        pytest.param(marker, victim, marks=() if marker == "captured" else pytest.mark.slow)
        for marker in MARKERS
        for victim in VICTIMS
    ],
)
def test_kill_at_every_marker(campaign: Prepare, tmp_path: Path, marker: str, victim: str) -> None:
    """The child waits where it passed the marker; then it, its supervisor or the runner is killed."""
    folder, out = campaign(phases=NATIVE), tmp_path / "out"
    set_fakes(folder, {"native.H1.1": f"pause-at={marker}:{tmp_path / 'pid'}"})
    runner = start(folder, out, "--fake")
    wait_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text() != "")
    child = int((tmp_path / "pid").read_text())
    supervisor = int(Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill({"runner": runner.pid, "supervisor": supervisor, "child": child}[victim], signal.SIGKILL)
    _, complaint = runner.communicate(timeout=TIMEOUT_S)
    assert complaint == b""
    with contextlib.suppress(AssertionError):  # a supervisor without its runner may need a moment
        wait_until(lambda: not Path(f"/proc/{child}").exists())
    assert not Path(f"/proc/{child}").exists()
    set_fakes(folder, {})
    assert run(folder, out, resume=True, module="tests.campaign.fake_child").complete
    require_whole(out, 2)
    first = [event for event in read_events(out) if event["event"] == "ended" and event["outcome"] != "valid"]
    assert {event["outcome"] for event in first} <= {"killed", "interrupted"}
    assert ends(out)["native.H1.1"]["outcome"] == "valid"


if __name__ == "__main__":  # a runner of plans/quick.yaml, to be killed: FOLDER
    here = Path(sys.argv[1])
    out_folder = here / "out"
    asked_for = replace(quick_request(here, here / "cache"), resume=out_folder.exists())
    sys.exit(run_campaign(asked_for).exit_code)
