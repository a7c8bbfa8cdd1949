"""The verifier on every case, the plan of the cases against the codes, and the committed files against the plan."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.evidence.base_bundle import HERE
from tests.evidence.generate import generate
from tests.evidence.materialise import below, materialise
from verifier.codes import CODES
from verifier.report import check

FOLDERS = sorted((HERE / "cases").iterdir())
#: Codes that never come alone, and with which: README.md says why.
TOGETHER = {"V402": {"V402", "V413"}, "V852": {"V603", "V852"}, "V854": {"V501", "V854"}}
#: Codes about the machine that verifies.
ELSEWHERE = {"V124", "V855", "V999"}


def codes(folder: Path) -> set[str]:
    expected = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
    return {item["code"] for item in expected["findings"]}


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_case(folder: Path, tmp_path: Path) -> None:
    """A case yields exactly what it lists."""
    expected = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
    path = materialise(folder, tmp_path / "bundle")
    key = (HERE / expected["key"]).read_bytes() if expected["key"] else None
    checked = check(path, level=expected["level"], anchor=expected["expect_plan"], key=key)
    found = sorted((item.code, item.where) for item in checked.report.findings)
    assert found == sorted((item["code"], item["where"]) for item in expected["findings"])
    assert checked.exit_code == expected["exit_code"]


def test_names_say_what_must_fail() -> None:
    """`_fail` where something must be found, and a README with a reason in each."""
    assert len(FOLDERS) >= 80
    assert sum(folder.name.endswith("_fail") for folder in FOLDERS) >= 55
    for folder in FOLDERS:
        assert folder.name.endswith("_fail") == bool(codes(folder))
        assert len((folder / "README.md").read_text(encoding="utf-8").splitlines()) >= 5


def test_every_code_has_a_case_of_its_own() -> None:
    sets = [codes(folder) for folder in FOLDERS]
    for code in CODES.keys() - ELSEWHERE:
        assert TOGETHER.get(code, {code}) in sets, code


def test_the_committed_cases_are_those_of_the_plan(tmp_path: Path) -> None:
    """Written anew, byte for byte the same."""
    generate(tmp_path)
    assert (tmp_path / "key.pub.pem").read_bytes() == (HERE / "key.pub.pem").read_bytes()
    for name in ("base", "cases"):
        anew, here = below(tmp_path / name), below(HERE / name)
        assert sorted(path for path in {*anew, *here} if anew.get(path) != here.get(path)) == []


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, str(HERE / "run.py"), *arguments]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120)


def test_another_verifier_is_tried_by_its_command_line() -> None:
    """The protocol: the right answer on a good and a bad case; a verifier that accepts everything is told."""
    chosen = ("--case", "good", "--case", "nan_fail")
    done = run(*chosen, "--", sys.executable, "-m", "verifier")
    assert (done.returncode, done.stdout) == (0, "2 cases, 0 wrong\n")
    done = run(*chosen, "--", sys.executable, "-c", "print('{\"findings\": []}')")
    assert done.returncode == 1
    assert "nan_fail: expected exit code 2 and [['V202', " in done.stdout
    assert done.stdout.endswith("2 cases, 1 wrong\n")
    assert run("--case", "nothing", "--", "true").returncode == 1


def test_one_case_can_be_made_to_look_at(tmp_path: Path) -> None:
    argv = [
        sys.executable,
        str(HERE / "materialise.py"),
        str(HERE / "cases" / "fifo_fail"),
        str(tmp_path / "b"),
    ]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.stdout == f"{tmp_path / 'b'}\n"
    assert (tmp_path / "b" / "records" / "fifo").is_fifo()
    again = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert again.stderr.startswith("expected a DIR that does not exist, got ")
