"""Files asked for on the command line: without a place for them nothing is done, and the message names that file."""

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from mechanism.__main__ import cli
from mechanism.command import writing
from mechanism.errors import MechanismError
from mechanism.process import files

ROOT = Path(__file__).parents[2]
QUICK = str(ROOT / "plans" / "quick.yaml")
EXPLAIN = ["explain", "--model", "qwen3-coder-30b-a3b", "--gpu", "rtx-3090", "--tokens", "64"]


@pytest.mark.parametrize(
    ("argv", "option", "name"),
    [
        (["schedule", QUICK], "--svg", "x.svg"),
        (EXPLAIN, "--write-plan", "x.yaml"),
        (["gpu", "plan", "--gpu", "h200"], "--out", "x.yaml"),
        (["package", str(ROOT / "runs" / "route-block")], "--out", "x.zip"),
        (["key", "new"], "--out", "x"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_folder_that_is_not_there(argv: list[str], option: str, name: str, tmp_path: Path) -> None:
    path = tmp_path / "none" / name
    done = CliRunner().invoke(cli, [*argv, option, str(path)])
    assert (done.exit_code, done.stdout) == (4, "")
    assert done.stderr == (
        f"mechanism: refused: {option}: expected a file in a folder that exists, got {path}; make {path.parent} first\n"
    )


def test_claims_in_a_folder_that_is_not_there(tmp_path: Path) -> None:
    """Neither file is written: a plan without its ledger is none."""
    out, claims = tmp_path / "x.yaml", tmp_path / "none" / "x.yaml"
    done = CliRunner().invoke(
        cli, ["gpu", "plan", "--gpu", "h200", "--out", str(out), "--claims", str(claims)]
    )
    assert done.stderr == (
        f"mechanism: refused: --claims: expected a file in a folder that exists, got {claims};"
        f" make {claims.parent} first\n"
    )
    assert not out.exists()


def test_a_place_that_takes_no_files_is_named_and_no_file_beside_it() -> None:
    """A name too long for the file system, also for root; the file beside has a longer one, and is nobody's matter."""
    path = Path(f"/tmp/{'x' * 250}.svg")
    with pytest.raises(MechanismError) as refused:
        writing.write("--svg", path, b"")
    assert str(refused.value) == f"--svg: {path} cannot be written: File name too long; name another place"


def test_a_report_below_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    out = tmp_path / "file" / "page"
    done = subprocess.run(
        [sys.executable, "-m", "mechanism", "report", str(ROOT / "runs" / "route-block"), "--out", str(out)],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "MECHANISM_CACHE": str(tmp_path / "cache")},
    )
    assert done.returncode == 4
    assert done.stderr == (
        f"mechanism: refused: --out: {out} cannot be made: Not a directory; name another place\n"
    )


def no_space(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_plan_and_its_claims_in_one_file(tmp_path: Path) -> None:
    out = str(tmp_path / "mine.yaml")
    done = CliRunner().invoke(cli, ["gpu", "plan", "--gpu", "a100", "--out", out, "--claims", out])
    assert done.stderr == (
        f"mechanism: refused: --claims: expected another file than that of --out, got {out}; name another\n"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("before", [None, b"another plan's claims"])
def test_a_plan_without_room_leaves_no_claims(
    before: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The two need each other: what was there before is there still, and nothing else."""
    out, claims = tmp_path / "mine.yaml", tmp_path / "mine-claims.yaml"
    if before is not None:
        claims.write_bytes(before)
    real = files.replace

    def full(path: Path, data: bytes) -> None:
        real(path, data) if "claims" in path.name else no_space()

    monkeypatch.setattr(files, "replace", full)
    argv = ["gpu", "plan", "--gpu", "a100", "--out", str(out)]
    assert CliRunner().invoke(cli, argv).stderr == (
        f"mechanism: refused: --out: {out} cannot be written: No space left on device; name another place\n"
    )
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [data for data in [before] if data]


def test_a_release_without_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What bagit or zipfile could not write is the file that was asked for; what could not be read, the bundle's."""
    bundle, out = ROOT / "runs" / "route-block", tmp_path / "r.zip"
    argv = ["package", str(bundle), "--out", str(out)]
    monkeypatch.setattr("mechanism.package.release.bagit.make_bag", no_space)
    assert CliRunner().invoke(cli, argv).stderr == (
        f"mechanism: refused: --out: {out} cannot be written: No space left on device; name another place\n"
    )
    record = bundle / "records" / "x.json"

    def unreadable(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(record))

    monkeypatch.setattr("mechanism.package.release.copy_bundle", unreadable)
    assert CliRunner().invoke(cli, argv).stderr == (
        f"mechanism: refused: {record}: cannot be read: Permission denied; see to it\n"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("argv", "option"),
    [
        (["schedule", QUICK, "--svg", ""], "--svg"),
        (["run", QUICK, "--out", ""], "--out"),
        (["key", "new", "--out", ""], "--out"),
        (["gpu", "plan", "--gpu", "a100", "--out", ""], "--out"),
        (["status", ""], "DIR"),
        (["freeze", ""], "PLAN"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_an_empty_path_is_none(argv: list[str], option: str) -> None:
    """A variable that is not set would mean the folder one is in."""
    done = CliRunner().invoke(cli, argv)
    assert done.stderr.splitlines()[-1] == (
        f"Error: Invalid value for '{option}': expected a path, got an empty text"
    )
    assert isinstance(done.exception, SystemExit)


def test_a_key_without_a_name() -> None:
    assert CliRunner().invoke(cli, ["key", "new", "--out", "/"]).stderr == (
        "mechanism: refused: --out: expected the prefix of two file names, got /; add a name to it\n"
    )


def test_a_key_where_one_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is never replaced."""
    (tmp_path / "mine.pem").write_text("kept")
    argv = ["key", "new", "--out", str(tmp_path / "mine")]
    assert CliRunner().invoke(cli, argv).stderr == (
        f"mechanism: refused: --out: expected no file at {tmp_path / 'mine.pem'}, got one; name another\n"
    )
    assert (tmp_path / "mine.pem").read_text() == "kept"
    monkeypatch.setattr("mechanism.package.keys.os.open", no_space)
    assert CliRunner().invoke(cli, argv).stderr == (
        f"mechanism: refused: --out: {tmp_path / 'mine'} cannot be written: No space left on device; name another"
        " place\n"
    )


def test_a_lock_without_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It lies beside its plan: another place for it is another place for the plan."""
    plan = Path(shutil.copy(QUICK, tmp_path))
    monkeypatch.setattr("mechanism.command.writing.files.replace", no_space)
    done = CliRunner().invoke(cli, ["freeze", str(plan)])
    assert done.stderr.splitlines()[-1] == (
        f"mechanism: refused: lock: {tmp_path / 'quick.lock'} cannot be written: No space left on device; copy the"
        " plan to a folder where there is room for it"
    )
