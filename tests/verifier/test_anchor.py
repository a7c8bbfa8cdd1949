"""What a caller anchors a bundle with: which file is at fault, and what is no plan of anybody."""

import os
import shutil
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ledger.canonical import sha256
from tests.verifier import forge
from verifier.__main__ import cli, main
from verifier.report import check


def quick(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, ["check", *map(str, arguments)], standalone_mode=False)


@pytest.fixture
def copy(good_folder: Path, tmp_path: Path) -> Path:
    """A copy of the good bundle to damage, and its own plan and lock beside it, as the caller keeps them."""
    for name in ("plan.yaml", "plan.lock"):
        shutil.copy(good_folder / name, tmp_path / name)
    return Path(shutil.copytree(good_folder, tmp_path / "bundle"))


@pytest.mark.parametrize("name", ["plan.yaml", "plan.lock"])
@pytest.mark.parametrize("how", ["cut", "gone"])
def test_what_was_damaged_is_named(copy: Path, how: str, name: str) -> None:
    """bundle.json still names the lock that the caller has: the plan is no other one."""
    file = copy / name
    data = file.read_bytes()[:100]
    file.unlink()
    if how == "cut":
        file.write_bytes(data)
    anchor = sha256((copy.parent / name).read_bytes())
    found = [i for i in check(copy, level="records", anchor=anchor).report.findings if i.code == "V301"]
    if (name, how) == ("plan.yaml", "gone"):
        assert found == []  # there is no plan to compare; that it is missing says V102
        return
    got = f"sha256 {sha256(data)}" if how == "cut" else "no file"
    also = "of plan.yaml or plan.lock, as the caller expects"
    if name == "plan.lock":
        also = "as the caller expects and bundle.json names it"
    assert [(item.where, item.expected, item.got) for item in found] == [
        (name, f"sha256 {anchor}, {also}", got)
    ]


def test_what_sinks_every_claim_is_said_once(copy: Path) -> None:
    """Before the claims; then in full, among the findings, with the claims that it sinks."""
    (copy / "plan.lock").unlink()
    said = quick(copy, "--plan", copy.parent / "plan.yaml").output
    assert said.splitlines()[3:12] == [
        "plan: its lock is not the one that was expected",
        "signature: unsigned",
        "scope: One synthetic layer of a toy geometry, one pinned build; histories H0 and H1 as the plan",
        "       gives them; five cold processes per cell and history.",
        "",
        "every claim judged here falls to findings that are listed below:",
        "     - missing: V102 plan.lock",
        "     - malformed: V301 plan.lock",
        "C01  MALFORMED  History selects the trajectory: with their own constructed alignments, H0 and H1",
    ]
    assert said.count("V102 plan.lock") == said.count("V301 plan.lock") == 2
    verbose = quick(copy, "--plan", copy.parent / "plan.yaml", "--verbose").output
    assert verbose.count("V301 plan.lock") == 11, "once per claim at this level, and the finding"


def test_what_sinks_some_claims_is_said_with_each(copy: Path) -> None:
    (copy / "records" / "transfer.canonical.H0.1.json").unlink()
    said = quick(copy).output
    assert "falls to findings" not in said
    assert said.count("- findings: missing: V102 records/transfer.canonical.H0.1.json") == 3, "C08, C09, C10"


def ended(
    arguments: list[str | Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[object, str]:
    """Exit code and last line on stderr."""
    monkeypatch.setattr(sys, "argv", ["verifier", "check", *map(str, arguments)])
    with pytest.raises(SystemExit) as left:
        main()
    return left.value.code, capsys.readouterr().err.splitlines()[-1]


NEITHER = [
    (
        "README.md",
        b"# A plan\n\nnot: this: one\n",
        "README.md:3: expected YAML, got a syntax error: mapping values are not allowed here",
    ),
    ("plan.yaml", b"name: mine\n", "plan.yaml:1: schema_version: expected this key, found none"),
    ("empty.yaml", b"", "empty.yaml:1: expected a YAML document, got an empty file"),
    ("plan.yaml", b"\xff\xfe", "plan.yaml:1: expected UTF-8 without a byte order mark, got one; save the file without BOM"),
    ("mine.lock", b"{}", "mine.lock:1: schema_version: expected this key, found none"),
    ("mine.lock", b"plan", "expected one JSON value, got something else: Expecting value: line 1 column 1 (char 0)"),
    ("mine.json", b'{"a":1}', "mine.json:1: schema_version: expected this key, found none"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "data", "fault"), NEITHER, ids=range(len(NEITHER)))
def test_a_file_that_is_no_plan_is_the_callers_mistake(
    name: str,
    data: bytes,
    fault: str,
    good_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Not the bundle's fault: usage, with the option and the file."""
    file = tmp_path / name
    file.write_bytes(data)
    said = f"Error: --plan: expected a plan or its lock in {file}, got neither: {fault}"
    assert ended([good_folder, "--plan", file], monkeypatch, capsys) == (4, said)


def test_a_lock_beside_a_plan_that_is_none_is_named(
    good_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plan, lock = tmp_path / "mine.yaml", tmp_path / "mine.lock"
    shutil.copy(forge.ROOT / "plans" / "quick.yaml", plan)
    lock.write_bytes(b"")
    said = (
        f"Error: --plan: expected a plan or its lock in {lock}, got neither: expected one JSON value, got"
        " something else: Expecting value: line 1 column 1 (char 0)"
    )
    assert ended([good_folder, "--plan", plan], monkeypatch, capsys) == (4, said)


def test_a_plan_changed_after_it_was_frozen_anchors_nothing(
    good_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its lock would pass, and the file that was given be another than the one that was run."""
    plan, lock = tmp_path / "mine.yaml", tmp_path / "mine.lock"
    plan.write_bytes((good_folder / "plan.yaml").read_bytes() + b"# mine\n")
    shutil.copy(good_folder / "plan.lock", lock)
    said = (
        f"Error: --plan: expected {plan} as {lock} froze it, got a file that was changed since, with sha256"
        f" {sha256(plan.read_bytes())}; undo the change or freeze it again, or give the lock itself"
    )
    assert ended([good_folder, "--plan", plan], monkeypatch, capsys) == (4, said)
    assert quick(good_folder, "--plan", lock).return_value == 0


def test_a_fifo_is_not_waited_for(
    good_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(tmp_path / "fifo")
    said = f"Error: --plan: expected a file, got a FIFO or a device at {tmp_path / 'fifo'}; copy it to a file"
    assert ended([good_folder, "--plan", tmp_path / "fifo"], monkeypatch, capsys) == (4, said)


@pytest.mark.parametrize("name", ["route_block.yaml", "route_block.lock"])
def test_a_bundle_of_another_plan_is_no_mistake_of_the_caller(name: str, good_folder: Path) -> None:
    result = quick(good_folder, "--plan", forge.ROOT / "plans" / name)
    assert (result.return_value, result.output.splitlines()[3]) == (2, "plan: not the one that was expected")
