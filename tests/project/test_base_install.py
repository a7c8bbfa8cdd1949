"""The verifier installs and runs with the base dependencies alone: no numpy, no torch, no mechanism."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

LOOK = """
import importlib.util, json
names = ("numpy", "torch", "safetensors", "mechanism", "rich", "pydantic", "yaml", "rfc8785", "click")
print(json.dumps({name: importlib.util.find_spec(name) is not None for name in names}))
"""


def run(*argv: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*map(str, argv)], check=False, capture_output=True, text=True, cwd="/")


@pytest.mark.slow
def test_the_verifier_runs_in_an_empty_environment(tmp_path: Path) -> None:
    """Install the base from a copy, take mechanism out of it, audit the committed evidence with its raw bytes."""
    source = tmp_path / "source"
    source.mkdir()
    for name in ("mechanism", "ledger", "verifier", "pyproject.toml", "README.md", "LICENSE"):
        item = ROOT / name
        if item.is_dir():
            shutil.copytree(item, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(item, source / name)
    shutil.rmtree(source / "mechanism")
    (source / "mechanism").mkdir()  # the wheel's list of packages still names it
    python = tmp_path / "venv" / "bin" / "python"
    assert run(sys.executable, "-m", "venv", tmp_path / "venv").returncode == 0
    installed = run(python, "-m", "pip", "install", "--quiet", source)
    assert installed.returncode == 0, installed.stderr
    found = json.loads(run(python, "-c", LOOK).stdout)
    assert found == {
        "numpy": False,
        "torch": False,
        "safetensors": False,
        "mechanism": False,
        "rich": False,
        "pydantic": True,
        "yaml": True,
        "rfc8785": True,
        "click": True,
    }
    bundle = ROOT / "runs" / "route-block"
    checked = run(python, "-m", "verifier", "check", bundle, "--level", "raw", "--format", "json")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert json.loads(checked.stdout)["verdict"] == "supported"
