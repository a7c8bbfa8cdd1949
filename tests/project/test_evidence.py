"""The committed evidence verifies on every change, and one cell of each kind gives the same bits again."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def rerun_evidence() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "rerun_evidence", Path(__file__).with_name("rerun_evidence.py")
    )
    if spec is None or spec.loader is None:
        raise FileNotFoundError("rerun_evidence.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["rerun_evidence"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("cohort", ["route-block", "stable-construction"])
def test_committed_evidence_is_supported_at_level_raw(cohort: str) -> None:
    plan = f"plans/{cohort.replace('-', '_')}.yaml"
    argv = ["check", f"runs/{cohort}", "--level", "raw", "--plan", plan, "--format", "json"]
    done = subprocess.run(
        [sys.executable, "-m", "verifier", *argv], cwd=ROOT, check=False, capture_output=True, text=True
    )
    report = json.loads(done.stdout)
    assert (done.returncode, report["verdict"]) == (0, "supported"), report["findings"][:3]
    assert report["evidence"] == "simulated"
    assert report["plan"]["identity"] == "anchored"
    assert {claim["verdict"] for claim in report["claims"]} == {"supported"}


@pytest.mark.slow
def test_one_cell_of_each_kind_gives_the_same_bits_again(tmp_path: Path, rerun_evidence: ModuleType) -> None:
    compared = list(rerun_evidence.rerun(tmp_path))
    assert {item.cell.split(".")[0] for item in compared} == {
        "native",
        "replay",
        "cross-order",
        "canonical",
        "within-block",
        "block-boundary",
        "forced-grid",
    }
    assert [item for item in compared if item.recorded != item.again] == []
