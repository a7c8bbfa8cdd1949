"""`mechanism run`: what it says, where it puts things, and what it does not replace."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click.testing
import pytest

from ledger.bundle import SUMMARY
from mechanism.__main__ import cli
from mechanism.campaign import folder_lock
from mechanism.campaign.request import CampaignResult
from mechanism.command import run as command
from mechanism.command import verdict
from tests.campaign.campaign_setup import ROOT, set_fakes
from tests.campaign.test_resume import NATIVE, TIMEOUT_S, lines, wait_until
from tests.plan.one_replicate import write_once_each

Prepare = Callable[..., Path]


@pytest.fixture(scope="module")
def frozen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """plans/quick.yaml with every cell once, frozen, beside the cache that has its fixture."""
    folder = tmp_path_factory.mktemp("frozen")
    write_once_each(folder, name="quick")
    argv = [sys.executable, "-m", "mechanism", "freeze", str(folder / "quick.yaml")]
    environment = {**os.environ, "MECHANISM_CACHE": str(folder / "cache")}
    subprocess.run(argv, cwd=ROOT, env=environment, check=True, capture_output=True)
    return folder / "quick.yaml"


@pytest.fixture
def plan(frozen: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """That plan, with its cache for this process and those it starts."""
    monkeypatch.setenv("MECHANISM_CACHE", str(frozen.parent / "cache"))
    return frozen


def invoke(*arguments: object) -> click.testing.Result:
    return click.testing.CliRunner().invoke(cli, ["run", *map(str, arguments)])


def ended(complete: Any, valid: int, **more: Any) -> Callable[[Any], CampaignResult]:
    """A campaign that ends at once."""

    def campaign(request: Any) -> CampaignResult:
        request.out.mkdir(exist_ok=True)
        return CampaignResult(complete=complete, folder=request.out.absolute(), total=14, valid=valid, **more)

    return campaign


def test_finished_run_is_verified_again_and_left_as_it_is(plan: Path, tmp_path: Path) -> None:
    """By the program itself: the same report, the same paths as they were given, the same files."""
    argv = [sys.executable, "-m", "mechanism", "run", str(plan), "--out", "out"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}

    def run(*more: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run([*argv, *more], cwd=tmp_path, env=environment, check=False, capture_output=True)

    def told(*more: str) -> tuple[int, list[str]]:
        done = run(*more)
        return done.returncode, done.stdout.decode().splitlines()

    code, text = told()
    assert code == 0
    assert text[-3:-1] == ["bundle:  out", "picture: out.svg"]
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    assert told("--resume") == (code, [*text[:-1], "14 cold processes in all; this call took 0 s"])
    assert {path: path.stat().st_mtime_ns for path in before} == before
    code, again = told("--resume", "--format", "json")
    facts = json.loads("".join(again))
    assert (code, facts["bundle"], facts["picture"], facts["complete"]) == (0, "out", "out.svg", True)
    assert (facts["report"]["level"], facts["damaged"]) == ("raw", [])
    paths = sorted(
        path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out").rglob("*.json")
    )
    lost = next(path for path in paths if path.startswith("records/"))
    (tmp_path / "out" / lost).write_bytes(b"{}")
    done = run("--resume")
    assert (done.returncode, done.stderr.decode().splitlines()[-1]) == (
        2,
        f"mechanism: out was finished, and was damaged since: {lost}; --resume changes nothing in a finished bundle: put back from a copy what is damaged, or run the plan again into another folder",
    )
    done = run("--resume", "--format", "json")
    assert json.loads(done.stdout)["damaged"] == [lost]
    assert (tmp_path / "out" / lost).read_bytes() == b"{}"


def test_picture_that_is_there_is_not_replaced(plan: Path, tmp_path: Path) -> None:
    """Said before anything is started; nothing is made."""
    (tmp_path / "out.svg").write_text("mine")
    result = invoke(plan, "--out", tmp_path / "out")
    assert (result.exit_code, result.stderr) == (
        4,
        f"mechanism: refused: {tmp_path}/out.svg: expected no such file, since the run's picture goes there, got"
        " one; move it away, or choose another folder by --out\n",
    )
    assert (tmp_path / "out.svg").read_text() == "mine"
    assert not (tmp_path / "out").exists()


def test_resume_keeps_another_picture_and_says_so(
    plan: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "out.svg").write_text("mine")
    monkeypatch.setattr(command, "run_campaign", ended(True, 14))
    monkeypatch.setattr(verdict.Verifier, "report", lambda *_: (0, b"all is well\n"))
    result = invoke(plan, "--out", tmp_path / "out", "--resume")
    assert (result.exit_code, result.stdout) == (
        0,
        f"all is well\n\nbundle:  {tmp_path}/out\n"
        f"picture: {tmp_path}/out.svg; it was there, is not this run's, and was kept\n"
        "14 cold processes in all; this call took 0 s\n",
    )
    assert (tmp_path / "out.svg").read_text() == "mine"


@pytest.mark.parametrize(
    ("out", "picture"),
    [("runs/a", "runs/a.svg"), ("a.b", "a.b.svg"), ("..", "{parent}.svg"), (".", "{here}.svg")],
)
def test_picture_lies_beside_the_bundle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, out: str, picture: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert str(command.picture_of(Path(out))) == picture.format(parent=tmp_path.parent, here=tmp_path)


def test_how_to_go_on_can_be_typed(plan: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = (("qualification.native.H1.1", "killed: ended by SIGSEGV (signal 11)"),)
    monkeypatch.setattr(command, "run_campaign", ended(False, 13, failed=failed))
    result = invoke(plan, "--out", tmp_path / "my run")
    assert (result.exit_code, result.stderr.partition("mechanism: ")[2]) == (
        5,
        "the bundle is not complete: 13 of 14 cells have a valid record\n"
        "qualification.native.H1.1: killed: ended by SIGSEGV (signal 11)\n"
        f"go on with: mechanism run {plan} --out '{tmp_path}/my run' --resume\n",
    )


@pytest.mark.parametrize(
    ("number", "code", "how"),
    [(signal.SIGINT, 130, "Ctrl-C"), (signal.SIGTERM, 143, "SIGTERM"), (None, 130, "Ctrl-C")],
)
def test_second_signal_still_says_how_to_go_on(
    plan: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int | None, code: int, how: str
) -> None:
    """Python's own handler, before the runner's is set, gives no number."""

    def campaign(request: Any) -> CampaignResult:
        request.out.mkdir()
        raise KeyboardInterrupt(*([] if number is None else [number]))

    monkeypatch.setattr(command, "run_campaign", campaign)
    result = invoke(plan, "--out", tmp_path / "out")
    assert (result.exit_code, result.stderr.partition("mechanism: ")[2]) == (
        code,
        f"stopped by {how}\ngo on with: mechanism run {plan} --out {tmp_path}/out --resume\n",
    )


def test_ctrl_c_twice(plan: Path, tmp_path: Path) -> None:
    """A cell that does not heed TERM makes the first one wait; the second does not, and the run can go on."""
    out = tmp_path / "out"
    argv = [sys.executable, "-m", "mechanism", "run", str(plan), "--out", str(out), "--jobs", "1"]
    runner = subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    wait_until(lambda: lines(out) >= 1)
    os.kill(runner.pid, signal.SIGSTOP)  # so that both signals are there when it looks
    runner.send_signal(signal.SIGINT)
    runner.send_signal(signal.SIGTERM)
    os.kill(runner.pid, signal.SIGCONT)
    _, said = runner.communicate(timeout=TIMEOUT_S)
    assert runner.returncode in (130, 143)
    assert said.decode().endswith(f"go on with: mechanism run {plan} --out {out} --resume\n")


def test_what_the_run_names_is_what_the_ledger_names() -> None:
    assert verdict.SUMMARY == SUMMARY


@pytest.mark.parametrize(
    ("files", "resume", "early"),
    [
        ([SUMMARY], True, True),
        ([SUMMARY], False, False),
        ([], True, False),
        ([SUMMARY, folder_lock.LOCK], True, False),
    ],
)
def test_verifier_starts_first_where_nothing_else_is_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, files: list[str], resume: bool, early: bool
) -> None:
    for name in files:
        (tmp_path / name).touch()
    seen: list[Path] = []
    monkeypatch.setattr(verdict.Verifier, "start", lambda _self, folder: seen.append(folder))
    with verdict.verifier(tmp_path / "plan.yaml", tmp_path, resume=resume, as_json=False):
        assert seen == [tmp_path] * early


def test_verifier_of_a_refused_run_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / SUMMARY).touch()
    script = tmp_path / "slow"
    script.write_text(f"#!/bin/sh\nexec {sys.executable} -c 'import time; time.sleep(60)'\n")
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    with (
        pytest.raises(LookupError),
        verdict.verifier(tmp_path / "plan.yaml", tmp_path, resume=True, as_json=False) as started,
    ):
        raise LookupError
    child = started._started
    assert child is not None
    assert child.returncode == -signal.SIGKILL


def test_status_quotes_the_folder(campaign: Prepare, tmp_path: Path) -> None:
    folder = campaign(phases=NATIVE)
    out = tmp_path / "my run"
    set_fakes(folder, {"native.H1.1": "exit=1"})
    argv = [sys.executable, "-m", "tests.campaign.campaign_setup", str(folder), str(out)]
    subprocess.run(argv, cwd=ROOT, check=False, capture_output=True)
    told = click.testing.CliRunner().invoke(cli, ["status", str(out)]).stdout
    assert f"go on with: mechanism run PLAN --out '{out}' --resume\n" in told
