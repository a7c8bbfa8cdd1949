"""The bundle's folder: who may use it, and what happens when it cannot be written."""

import errno
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ledger.canonical import sha256
from mechanism.campaign import folder_lock
from mechanism.campaign.damage import damaged
from mechanism.campaign.runner import run_campaign
from mechanism.errors import CampaignError, EngineError
from mechanism.process import files
from mechanism.process.launch import interpreter
from tests.campaign.campaign_setup import FAKE, ends, request, run, set_fakes
from tests.campaign.test_resume import NATIVE, TIMEOUT_S, lines, require_whole, start, wait_until

Prepare = Callable[..., Path]


def refusal(folder: Path, out: Path, **more: Any) -> str:
    with pytest.raises(CampaignError) as found:
        run(folder, out, **more)
    return str(found.value)


def test_folder_that_exists(campaign: Prepare, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    assert refusal(campaign(phases=NATIVE), out) == (
        f"{out}: expected a folder that does not exist, got one that exists;"
        " go on with it by --resume, or choose another by --out"
    )
    assert not list(out.iterdir())


def test_nothing_to_resume(campaign: Prepare, tmp_path: Path) -> None:
    folder, out = campaign(phases=NATIVE), tmp_path / "out"
    assert refusal(folder, out, resume=True) == (
        f"{out}: expected a run to resume, got no folder; leave out --resume"
    )
    out.mkdir()
    (out / "letters").write_text("mine")
    message = (
        f"{out}: expected a run to resume, got a folder that is none; check --out, or leave out --resume and name a"
        " new one"
    )
    assert refusal(folder, out, resume=True) == message
    assert [path.name for path in out.iterdir()] == ["letters"]


def test_folder_that_a_killed_runner_only_just_made(campaign: Prepare, tmp_path: Path) -> None:
    """Empty, or with a lock and some documents: resuming finishes what creating began."""
    folder, out = campaign(phases=NATIVE), tmp_path / "out"
    out.mkdir()
    (out / folder_lock.LOCK).write_text("1 1\n")
    (out / "plan.yaml").write_bytes((folder / "plan.yaml").read_bytes())
    (out / ".plan.lock.new").write_bytes(b"half")
    assert run(folder, out, resume=True).complete
    require_whole(out, 2)


def test_resume_with_another_plan(campaign: Prepare, tmp_path: Path) -> None:
    out = tmp_path / "out"
    folder = campaign(phases=NATIVE)
    set_fakes(folder, {"native.H1.1": "exit=1"})
    run(folder, out)
    message = refusal(campaign(phases=NATIVE, time_limit_s=29), out, resume=True)
    assert message.startswith(f"{out}/plan.yaml: expected what the run was begun with, sha256 ")
    assert message.endswith("; resume with the plan.yaml of then, or start a new run")


@pytest.mark.parametrize("name", ["plan.yaml", "ledger.yaml", "plan.lock", "routing.json"])
def test_resume_with_a_damaged_document(campaign: Prepare, tmp_path: Path, name: str) -> None:
    """The plan given is the one of then: what lies in the bundle is at fault, and is left as it is."""
    folder, out = campaign(phases=NATIVE), tmp_path / "out"
    run(folder, out)
    there = (out / name).read_bytes()
    (out / name).write_bytes(there[:-5])
    assert refusal(folder, out, resume=True) == (
        f"{out}/{name}: expected sha256 {sha256(there)}, with which the run was begun, got sha256"
        f" {sha256(there[:-5])}: it was damaged since; put it back from a copy, or run the plan again into another"
        " folder"
    )
    assert (out / name).read_bytes() == there[:-5]


def test_what_is_damaged_in_a_finished_bundle(campaign: Prepare, tmp_path: Path) -> None:
    """Gone or other bytes, by path; without summary or manifest nothing more can be told."""
    folder, out = campaign(phases=NATIVE), tmp_path / "out"
    run(folder, out)
    assert damaged(out) == ()
    record, capture = next((out / "records").iterdir()), next((out / "objects").iterdir())
    record.write_bytes(record.read_bytes()[:-1])
    capture.unlink()
    assert damaged(out) == tuple(sorted(path.relative_to(out).as_posix() for path in (record, capture)))
    (out / "files.jsonl").write_bytes(b"")
    assert damaged(out) == ("files.jsonl",)
    (out / "bundle.json").write_bytes(b"{")
    assert damaged(out) == ("bundle.json",)


def test_two_runners(campaign: Prepare, tmp_path: Path) -> None:
    """The second is refused with the first one's pid, whether it resumes or not; the first goes on."""
    folder, out = campaign(phases=NATIVE), tmp_path / "out"
    set_fakes(folder, {"native.H0.1": f"until={tmp_path / 'both refused'}"})
    first = start(folder, out)
    wait_until(lambda: lines(out) >= 1)
    assert refusal(folder, out, resume=True) == (
        f"{out}: expected a folder that no runner works in, got one where process {first.pid} does;"
        " wait for it, or stop it"
    )
    assert f"got one where process {first.pid} runs a campaign;" in refusal(folder, out)
    (tmp_path / "both refused").touch()
    first.communicate(timeout=TIMEOUT_S)
    assert first.returncode == 0
    require_whole(out, 2)
    assert folder_lock.holder(out) is None


def test_resume_waits_until_the_dead_runners_children_are_gone(campaign: Prepare, tmp_path: Path) -> None:
    """Its supervisors hold the lock for as long as their trees live."""
    folder, out = campaign(phases=NATIVE), tmp_path / "out"
    set_fakes(folder, {"*": f"grandchild={tmp_path / 'pid'}"})
    runner = start(folder, out)
    wait_until((tmp_path / "pid").exists)
    runner.kill()
    runner.wait()  # a runner that is still dying is a runner: --resume would rightly be refused
    set_fakes(folder, {})
    gone: list[bool] = []

    def observer(event: object) -> None:
        if type(event).__name__ == "CellStarted":
            gone.append(not Path(f"/proc/{(tmp_path / 'pid').read_text()}").exists())

    assert run(folder, out, resume=True, observer=observer).complete
    runner.communicate()
    assert all(gone)


def test_runner_that_was_killed_leaves_a_lock_that_binds_nobody(tmp_path: Path) -> None:
    (tmp_path / folder_lock.LOCK).write_text(f"{os.getpid()} 1\n")
    with folder_lock.held(tmp_path):
        assert folder_lock.holder(tmp_path) == os.getpid()
    assert not (tmp_path / folder_lock.LOCK).exists()


@pytest.mark.parametrize("where", ["records", "objects", "attempts.jsonl"])
def test_disk_that_fills_up(
    campaign: Prepare, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """One message, children stopped, what is recorded kept; with room again, resume completes it."""
    folder, out = campaign(), tmp_path / "out"
    left = iter(range(5))

    def full(path: Path | int) -> None:
        if (where in str(path)) and next(left, None) is None:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))

    real_sync, real_fsync = files.sync, os.fsync

    def sync(path: Path) -> None:
        full(path)
        real_sync(path)

    def fsync(descriptor: int) -> None:
        full(Path(f"/proc/self/fd/{descriptor}").readlink())
        real_fsync(descriptor)

    monkeypatch.setattr(files, "sync", sync)
    monkeypatch.setattr("mechanism.campaign.attempts.os.fsync", fsync)
    result = run(folder, out)
    monkeypatch.undo()
    assert result.stopped.endswith(
        ": No space left on device; what is recorded is kept: see to it, then --resume"
    )
    assert where in result.stopped
    assert (result.complete, result.exit_code) == (False, 5)
    again = run(folder, out, resume=True)
    assert (again.complete, again.valid) == (True, 8)
    require_whole(out, 8)


def test_child_without_room(campaign: Prepare, tmp_path: Path) -> None:
    """The limit on file size stands for a full disk: the child says so, with a code of its own."""
    folder, out = campaign(phases=NATIVE), tmp_path / "out"
    set_fakes(folder, {"native.H0.1": "file-size-limit=1000"})
    run(folder, out, module=FAKE)
    end = ends(out)["native.H0.1"]
    assert (end["outcome"], end["exit_code"]) == ("failed", 6)
    assert end["reason"].startswith("exit code 6: OSError: [Errno 27] File too large")


def test_folder_that_cannot_be_made(campaign: Prepare, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    assert refusal(campaign(phases=NATIVE), file / "out") == (
        f"{file}: Not a directory; no cell was started: see to it, or name another place by --out"
    )


def test_read_only_folder(campaign: Prepare, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root writes where it likes, so the system's answer is put in its mouth."""

    def refuse(path: Path, _data: bytes) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    monkeypatch.setattr(files, "write_once", refuse)
    folder, out = campaign(phases=NATIVE), tmp_path / "out"
    assert refusal(folder, out) == (
        f"{out}/plan.yaml: Read-only file system; no cell was started: see to it, or name another place by --out"
    )
    monkeypatch.undo()
    assert run(folder, out, resume=True).complete


def test_path_that_is_not_utf8(campaign: Prepare, tmp_path: Path) -> None:
    out = tmp_path / "out\udcff"
    assert refusal(campaign(phases=NATIVE), out).endswith(
        "\\udcff': expected a path of printable UTF-8, got another; rename it"
    )


def test_engine_that_this_machine_cannot_run(campaign: Prepare, tmp_path: Path) -> None:
    """Said before anything is made or started."""
    asked = request(campaign(phases=NATIVE), tmp_path / "out")
    plan = asked.plan.model_copy(update={"engine": "vllm"})
    with pytest.raises(EngineError) as found:
        run_campaign(replace(asked, plan=plan))
    assert str(found.value) == (
        "engine vllm: expected torch 2.11.0, found none; install the extra `gpu` in an environment of its own"
    )
    assert not (tmp_path / "out").exists()


def test_refusal_by_the_system_leaves_nothing(
    campaign: Prepare, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No way of holding a cell works: the ways are named, and the folder is gone again."""
    monkeypatch.setattr("mechanism.campaign.holding._TRIAL", "mechanism.no_such_module")
    folder, out = campaign(phases=NATIVE), tmp_path / "out"
    assert refusal(folder, out) == (
        "containment: expected cells held by namespaces or landlock or modes, got a system that does not let them"
        f" be: {interpreter()}: No module named mechanism.no_such_module"
    )
    assert not out.exists()
    monkeypatch.undo()
    assert run(folder, out).complete


def test_refusal_of_a_resume_leaves_what_was_there(
    campaign: Prepare, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, out = campaign(phases=NATIVE), tmp_path / "out"
    set_fakes(folder, {"native.H1.1": "exit=1"})
    run(folder, out, containment="modes")
    monkeypatch.setattr("mechanism.campaign.holding._TRIAL", "mechanism.no_such_module")
    assert refusal(folder, out, resume=True) == (
        "containment: expected cells held by modes, got a system that does not let them be:"
        f" {interpreter()}: No module named mechanism.no_such_module"
    )
    monkeypatch.undo()
    set_fakes(folder, {})
    assert run(folder, out, resume=True).complete
    require_whole(out, 2)
