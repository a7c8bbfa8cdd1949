"""README commands do what they say: every `sh` block is run, line by line, in a copy of the project's data."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
LINES = [
    line.split("  #")[0]
    for block in re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
    for line in block.splitlines()
]
MAKE = [line.removeprefix("make ") for line in LINES if line.startswith("make ")]


def test_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    assert MAKE
    assert {target.strip() for target in MAKE} <= targets


def test_links_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", README)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


@pytest.mark.slow
def test_commands_run(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "plans", tmp_path / "plans")
    shutil.copytree(ROOT / "runs" / "route-block", tmp_path / "runs" / "route-block")
    (tmp_path / "runs" / "local").mkdir()
    commands = [line for line in LINES if not line.startswith("make ")]
    assert len(commands) >= 6
    for line in commands:
        argv = shlex.split(line)
        if argv[0].startswith(".venv/bin/"):
            argv = [sys.executable, "-m", argv[0].removeprefix(".venv/bin/"), *argv[1:]]
        done = subprocess.run(argv, cwd=tmp_path, check=False, capture_output=True, text=True)
        assert done.returncode == 0, f"{line} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
