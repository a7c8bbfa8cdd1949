"""The benchmark's own words: which rows there are, and that a row which cannot be measured is said, not left out."""

import json
import subprocess
import sys
from pathlib import Path

BENCH = Path(__file__).with_name("bench.py")
ROWS = [
    "campaign-route-block",
    "cold-process",
    "verify-records",
    "verify-raw",
    "fixture-build",
    "gemm-numpy",
    "gemm-numba-1-thread",
    "gemm-numba-2-threads",
    "gemm-mmasim",
    "layer-numpy-cold",
    "layer-numba-warm",
]


def bench(*arguments: object) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, str(BENCH), *map(str, arguments)]
    return subprocess.run(argv, check=False, capture_output=True, text=True)


def test_every_row_can_be_named() -> None:
    done = bench("--help")
    assert done.stdout.splitlines()[-1] == f"rows: {', '.join(ROWS)}"


def test_a_row_that_there_is_not_is_refused() -> None:
    done = bench("gemm-abacus")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == (
        f"bench.py: error: ROW: expected some of {', '.join(ROWS)}, got gemm-abacus"
    )


def test_a_row_without_its_environment_says_what_is_missing(tmp_path: Path) -> None:
    out, cross = tmp_path / "bench.json", tmp_path / "none"
    done = bench("gemm-mmasim", "--cross", cross, "--out", out)
    assert done.returncode == 0, done.stderr
    told = json.loads(out.read_text())
    assert sorted(told) == ["machine", "not_measured", "rows"]
    assert told["rows"] == []
    assert told["not_measured"] == {
        "gemm-mmasim": f"MMA-Sim is not installed in {cross}: `make cross` makes that environment"
    }
