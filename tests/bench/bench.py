"""`make bench`: whole commands, timed; every row beside a named baseline that runs right after it.

Prints a table and writes bench.json: `machine`, and `rows` with name, median, unit, baseline, ratio. Ratios
travel better than seconds: quote them, with the machine.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[2]
PLAN = ROOT / "plans" / "route_block.yaml"
PROGRESS = Console(stderr=True)

Timed = Callable[[], float]


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One line of bench.json. `ratio` is this row's median over its baseline's."""

    name: str
    median: float
    unit: str
    baseline: str
    ratio: float


def seconds(argv: list[str], **environment: str) -> float:
    """Wall time of one whole command; its output is thrown away, its failure is not."""
    start = time.perf_counter()
    done = subprocess.run(
        argv, cwd=ROOT, env={**os.environ, **environment}, check=False, capture_output=True, text=True
    )
    taken = time.perf_counter() - start
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(argv)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return taken


def row(name: str, command: Timed, baseline: str, beside: Timed, *, repeat: int) -> Row:
    """Command and baseline in turn, `repeat` times each; medians."""
    took, base = [], []
    for turn in range(repeat):
        PROGRESS.print(f"{name}: {turn + 1} of {repeat}")
        took.append(command())
        base.append(beside())
    median = statistics.median(took)
    return Row(
        name=name,
        median=round(median, 4),
        unit="s",
        baseline=baseline,
        ratio=round(median / statistics.median(base), 3),
    )


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def mechanism(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "mechanism", *map(str, arguments)]


def verifier(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "verifier", *map(str, arguments)]


def cold_processes(bundle: Path) -> float:
    """Median wall time of the bundle's cold processes, from the runner's own log."""
    lines = [
        json.loads(line) for line in (bundle / "attempts.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    started = {line["attempt"]: line["time_us"] for line in lines if line["event"] == "started"}
    taken = [line["time_us"] - started[line["attempt"]] for line in lines if line["event"] == "ended"]
    return float(statistics.median(taken)) / 1e6


def rows(folder: Path, repeat: int) -> list[Row]:
    """All rows, cheapest baselines that still say something."""
    bundles: list[Path] = []

    def campaign() -> float:
        bundles.append(folder / f"run-{len(bundles)}")
        return seconds(mechanism("run", PLAN, "--out", bundles[-1]))

    seventy = python(
        "import subprocess, sys\nfor _ in range(70): subprocess.run([sys.executable, '-c', 'import numpy'], check=True)"
    )
    seconds(mechanism("fixture", "build", PLAN))
    found = [
        row(
            "campaign-route-block",
            campaign,
            "70 processes that import numpy, one by one",
            lambda: seconds(seventy),
            repeat=repeat,
        )
    ]
    bundle = bundles[-1]
    found.append(
        row(
            "cold-process",
            lambda: cold_processes(bundle),
            "a process that imports numpy",
            lambda: seconds(python("import numpy")),
            repeat=5,
        )
    )
    imports = python("import pydantic, yaml, rfc8785, click")
    found.append(
        row(
            "verify-records",
            lambda: seconds(verifier("check", bundle, "--level", "records")),
            "a process that imports the verifier's libraries",
            lambda: seconds(imports),
            repeat=5,
        )
    )
    sums = ["sh", "-c", f"find '{bundle}' -type f -print0 | xargs -0 sha256sum"]
    found.append(
        row(
            "verify-raw",
            lambda: seconds(verifier("check", bundle, "--level", "raw")),
            "sha256sum over the same bytes",
            lambda: seconds(sums),
            repeat=5,
        )
    )
    draws = python("from numpy.random import PCG64\nfor _ in range(128): PCG64(1).random_raw(128 * 2**14)")

    def build() -> float:
        with tempfile.TemporaryDirectory(dir=folder) as cache:
            return seconds(mechanism("fixture", "build", PLAN), MECHANISM_CACHE=cache)

    found.append(row("fixture-build", build, "2^28 raw draws of PCG64", lambda: seconds(draws), repeat=3))
    return found


def machine() -> dict[str, str | int]:
    """What the numbers were measured on, without a name."""
    cpu = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    return {
        "cpu": cpu,
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "system": platform.system(),
    }


def main() -> None:
    """Measure, print, write."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--repeat", type=int, default=3, help="runs of the whole campaign (default 3)")
    options.add_argument("--out", type=Path, default=ROOT / "bench.json")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = rows(Path(folder), given.repeat)
    described = machine()
    given.out.write_text(
        json.dumps({"machine": described, "rows": [asdict(item) for item in found]}, indent=1) + "\n"
    )
    table = Table(
        "row", "median", "ratio", "to", title=", ".join(f"{key} {value}" for key, value in described.items())
    )
    for item in found:
        table.add_row(item.name, f"{item.median:.3f} {item.unit}", f"{item.ratio:.2f}", item.baseline)
    Console().print(table)


if __name__ == "__main__":
    main()
