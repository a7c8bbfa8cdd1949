"""One small bundle for all reports: the quick matrix with one replicate, really run."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.plan.one_replicate import write_once_each

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """14 processes of the quick plan; claims that need replicates are not supported by them."""
    folder = tmp_path_factory.mktemp("report")
    write_once_each(folder, name="small")
    environment = {**os.environ, "MECHANISM_CACHE": str(folder / "cache")}
    for args in (["freeze", "small.yaml"], ["run", "small.yaml", "--out", "evidence"]):
        done = subprocess.run(
            [sys.executable, "-m", "mechanism", *args],
            cwd=folder,
            env={**environment, "PYTHONPATH": str(ROOT)},
            check=False,
            capture_output=True,
            text=True,
        )
    assert (folder / "evidence" / "bundle.json").exists(), done.stdout + done.stderr
    return folder / "evidence"


@pytest.fixture
def copied(bundle: Path, tmp_path: Path) -> Callable[[], Path]:
    """A copy of the bundle to damage."""
    import shutil  # noqa: PLC0415

    def copy() -> Path:
        return Path(shutil.copytree(bundle, tmp_path / "evidence"))

    return copy
