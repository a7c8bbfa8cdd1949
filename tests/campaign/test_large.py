"""Seven thousand cold processes: the runner's memory does not grow with them, and status reads them all."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ledger.canonical import canonical, sha256
from mechanism.campaign.standing import read_standing
from mechanism.plan.document import load_plan
from tests.campaign.campaign_setup import ROOT

Prepare = Callable[..., Path]
MODULE = "tests.campaign.lean_child"
REPLICATES = 875  # of eight cells
#: The runner's resident size in KiB after 500 cells, and after the last, which stands for the whole way.
CODE = """
import resource, sys
from pathlib import Path
from mechanism.campaign.events import CellEnded
from tests.campaign.campaign_setup import run

def observer(event):
    if isinstance(event, CellEnded) and event.progress.done in (500, event.progress.total):
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        sizes.append(pages * resource.getpagesize() // 1024)

sizes = []
result = run(Path(sys.argv[1]), Path(sys.argv[2]), observer=observer, module="tests.campaign.lean_child")
print(result.complete, result.total, *sizes)
"""


def templates(stored: Path, folder: Path, plan: Path) -> None:
    """For `lean_child`: every stored record with holes where a process fills in its own, then its files."""
    folder.mkdir()
    loaded = load_plan(plan)
    for path in (stored / "records").iterdir():
        record = json.loads(path.read_bytes())
        names = ["build.json", f"objects/{record['capture']}.safetensors"]
        if record["treatment"]["alignment"]["source"] == "constructed":
            names.append(f"alignments/{record['treatment']['alignment']['sha256']}.json")
        record |= {"plan": sha256(loaded.data), "attempt": "@attempt@", "replicate": "@replicate@"}
        record["process"] |= {
            "pid": "@pid@",
            "started_us": "@started_us@",
            "nonce": "@nonce@",
            "environment": dict(loaded.plan.environment),
        }
        record["process"]["argv"][-2:] = [MODULE, "$BUNDLE/staging/@attempt@/request.json"]
        for marker in record["markers"]:
            marker["time_us"] = "@time_us@"
        text = canonical(record)
        for number in ("attempt", "replicate", "pid", "started_us", "time_us"):
            text = text.replace(f'"@{number}@"'.encode(), f"@{number}@".encode())
        (folder / path.name.removesuffix(".1.json")).write_bytes("\n".join([text.decode(), *names]).encode())


@pytest.mark.slow
def test_memory_is_flat_over_seven_thousand_cells(campaign: Prepare, stored: Path, tmp_path: Path) -> None:
    """What grows is the list of what is valid: less than 1 KiB for each cell."""
    folder = campaign(replicates=REPLICATES, environment={"TEMPLATES": str(tmp_path / "templates")})
    templates(stored, tmp_path / "templates", folder / "plan.yaml")
    argv = [sys.executable, "-c", CODE, str(folder), str(tmp_path / "out")]
    done = subprocess.run(argv, cwd=ROOT, check=True, capture_output=True, text=True)
    complete, total, early, late = done.stdout.split()
    print(f"{total} cells: {early} KiB after 500, {late} KiB at the end")
    assert (complete, total) == ("True", str(8 * REPLICATES))
    assert int(late) - int(early) < 6500
    found = read_standing(tmp_path / "out")
    assert (found.state, found.done, found.attempts) == ("complete", 8 * REPLICATES, 8 * REPLICATES)
