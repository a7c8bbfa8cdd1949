"""Seven thousand cold processes: the runner's memory does not grow with them, and status reads them all."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mechanism.campaign.standing import read_standing
from tests.campaign.campaign_setup import ROOT

Prepare = Callable[..., Path]
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
result = run(Path(sys.argv[1]), Path(sys.argv[2]), observer=observer)
print(result.complete, result.total, *sizes)
"""


@pytest.mark.slow
def test_memory_is_flat_over_seven_thousand_cells(campaign: Prepare, tmp_path: Path) -> None:
    """What grows is the list of what is valid: less than 1 KiB for each cell."""
    argv = [sys.executable, "-c", CODE, str(campaign(replicates=REPLICATES)), str(tmp_path / "out")]
    done = subprocess.run(argv, cwd=ROOT, check=True, capture_output=True, text=True)
    complete, total, early, late = done.stdout.split()
    print(f"{total} cells: {early} KiB after 500, {late} KiB at the end")
    assert (complete, total) == ("True", "7000")
    assert int(late) - int(early) < 6500
    found = read_standing(tmp_path / "out")
    assert (found.state, found.done, found.attempts) == ("complete", 7000, 7000)
