"""`make bench`: whole commands, GEMMs and layers, timed; every row beside a named baseline that runs with it.

Prints a table and writes bench.json: `machine`; `rows` with name, median, unit, baseline, ratio; `not_measured`, which
rows there are none of here, and why. A ratio is the row's median over its baseline's, in the row's own unit: of seconds
less is better, of GMAC/s (1e9 products a second) more. Ratios travel better than seconds: quote them, with the machine.

The gemm rows: 96 rows in 12 full blocks of 8, one expert, K 2048, N 1536, group 128, one slice for every tile, sm_80;
dequantisation included.
"""

import argparse
import importlib.util
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from mechanism.kernel.parallel import threads

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PLAN = ROOT / "plans" / "route_block.yaml"
PROGRESS = Console(stderr=True)

#: numpy's own threads: the baseline has one. Read once, when a child first loads numpy.
ONE_BLAS = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")

Timed = Callable[[], float]


class NotMeasuredError(Exception):
    """There is no such row here; the message says what is missing, and what to do."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One line of bench.json. `ratio` is this row's median over its baseline's, both in `unit`."""

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


def child(argv: list[str], **environment: str) -> dict[str, Any]:
    """What a child told in one JSON object; its failure ends the benchmark."""
    done = subprocess.run(
        argv, cwd=ROOT, env={**os.environ, **environment}, check=False, capture_output=True, text=True
    )
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(argv)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    told: dict[str, Any] = json.loads(done.stdout)
    return told


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


@dataclass(slots=True)
class Bench:
    """What the rows share: a folder, how often, and one campaign's bundle, made when it is first wanted."""

    folder: Path
    repeat: int
    cross: Path
    bundles: list[Path] = field(default_factory=list)

    def campaign(self) -> float:
        """One whole campaign, timed."""
        if not self.bundles:
            seconds(mechanism("fixture", "build", PLAN))
        self.bundles.append(self.folder / f"run-{len(self.bundles)}")
        return seconds(mechanism("run", PLAN, "--out", self.bundles[-1]))

    def bundle(self) -> Path:
        """The bundle of a campaign."""
        if not self.bundles:
            PROGRESS.print("a campaign, for its bundle")
            self.campaign()
        return self.bundles[-1]


def campaign_route_block(bench: Bench) -> Row:
    seventy = python(
        "import subprocess, sys\nfor _ in range(70): subprocess.run([sys.executable, '-c', 'import numpy'], check=True)"
    )
    return row(
        "campaign-route-block",
        bench.campaign,
        "70 processes that import numpy, one by one",
        lambda: seconds(seventy),
        repeat=bench.repeat,
    )


def cold_process(bench: Bench) -> Row:
    bundle = bench.bundle()
    return row(
        "cold-process",
        lambda: cold_processes(bundle),
        "a process that imports numpy",
        lambda: seconds(python("import numpy")),
        repeat=5,
    )


def verify_records(bench: Bench) -> Row:
    bundle = bench.bundle()
    imports = python("import pydantic, yaml, rfc8785, click")
    return row(
        "verify-records",
        lambda: seconds(verifier("check", bundle, "--level", "records")),
        "a process that imports the verifier's libraries",
        lambda: seconds(imports),
        repeat=5,
    )


def verify_raw(bench: Bench) -> Row:
    bundle = bench.bundle()
    sums = ["sh", "-c", f"find '{bundle}' -type f -print0 | xargs -0 sha256sum"]
    return row(
        "verify-raw",
        lambda: seconds(verifier("check", bundle, "--level", "raw")),
        "sha256sum over the same bytes",
        lambda: seconds(sums),
        repeat=5,
    )


def fixture_build(bench: Bench) -> Row:
    draws = python("from numpy.random import PCG64\nfor _ in range(128): PCG64(1).random_raw(128 * 2**14)")

    def build() -> float:
        with tempfile.TemporaryDirectory(dir=bench.folder) as cache:
            return seconds(mechanism("fixture", "build", PLAN), MECHANISM_CACHE=cache)

    return row("fixture-build", build, "2^28 raw draws of PCG64", lambda: seconds(draws), repeat=3)


def gemm(name: str, arithmetic: str, count: int, interpreter: str = sys.executable, note: str = "") -> Row:
    """Rates of one GEMM and of sgemm beside it, in one child whose libraries and arithmetic are told their threads or processes."""
    PROGRESS.print(name)
    told = child(
        [interpreter, str(HERE / "gemm_once.py"), arithmetic, "3" if arithmetic == "mmasim" else "7"],
        MECHANISM_THREADS=str(count),
        NUMBA_NUM_THREADS=str(count),
        **ONE_BLAS,
    )
    rate = told["macs"] / statistics.median(told["seconds"]) / 1e9
    base = told["baseline_macs"] / statistics.median(told["baseline_seconds"]) / 1e9
    return Row(
        name=name,
        median=float(f"{rate:.4g}"),
        unit="GMAC/s",
        baseline=f"numpy sgemm of that shape, one thread, {base:.1f} GMAC/s{note}",
        ratio=float(f"{rate / base:.3g}"),
    )


def gemm_numpy(_bench: Bench) -> Row:
    """As it comes: on as many CPUs as it takes by itself, which the row says."""
    count = threads()
    return gemm(
        "gemm-numpy", "numpy", count, note=f"; ours by {count} {'process' if count == 1 else 'processes'}"
    )


def gemm_numba(name: str, count: int) -> Row:
    require_numba()
    return gemm(name, "numba", count)


def gemm_mmasim(bench: Bench) -> Row:
    """Its own environment, because it needs torch: some 1 GB that this project's does without."""
    interpreter = bench.cross / "bin" / "python"
    if not interpreter.exists():
        raise NotMeasuredError(
            f"MMA-Sim is not installed in {bench.cross}: `make cross` makes that environment"
        )
    note = "; 8 columns of it, operands dequantised before"
    return gemm("gemm-mmasim", "mmasim", 1, str(interpreter), note)


def layer(name: str, arithmetic: str, *, processes: int, warm: int) -> Row:
    """A whole layer: the first call of each process, or the calls after the first ones of one."""
    seconds(mechanism("fixture", "build", PLAN))
    took, base = [], []
    for turn in range(processes):
        PROGRESS.print(f"{name}: {turn + 1} of {processes}")
        told = child(
            [sys.executable, str(HERE / "layer_once.py"), str(PLAN), arithmetic, str(warm)], **ONE_BLAS
        )
        took += told["seconds"]
        base += told["baseline_seconds"]
    median = statistics.median(took)
    return Row(
        name=name,
        median=round(median, 4),
        unit="s",
        baseline="numpy sgemm, one thread, of as many products",
        ratio=round(median / statistics.median(base), 3),
    )


def layer_numba(_bench: Bench) -> Row:
    require_numba()
    return layer("layer-numba-warm", "numba", processes=1, warm=15)


def require_numba() -> None:
    if importlib.util.find_spec("numba") is None:
        raise NotMeasuredError("numba is not installed: pip install -e '.[fast]'")


ROWS: dict[str, Callable[[Bench], Row]] = {
    "campaign-route-block": campaign_route_block,
    "cold-process": cold_process,
    "verify-records": verify_records,
    "verify-raw": verify_raw,
    "fixture-build": fixture_build,
    "gemm-numpy": gemm_numpy,
    "gemm-numba-1-thread": lambda _: gemm_numba("gemm-numba-1-thread", 1),
    "gemm-numba-2-threads": lambda _: gemm_numba("gemm-numba-2-threads", 2),
    "gemm-mmasim": gemm_mmasim,
    "layer-numpy-cold": lambda _: layer("layer-numpy-cold", "numpy", processes=5, warm=0),
    "layer-numba-warm": layer_numba,
}


def measured(names: list[str], bench: Bench) -> tuple[list[Row], dict[str, str]]:
    """Rows in the order of ROWS, and why there is none of the others that were asked for."""
    found: list[Row] = []
    without: dict[str, str] = {}
    for name, make in ROWS.items():
        if name not in names:
            continue
        try:
            found.append(make(bench))
        except NotMeasuredError as reason:
            without[name] = str(reason)
    return found, without


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
    options = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="rows: " + ", ".join(ROWS),
    )
    options.add_argument("rows", nargs="*", metavar="ROW", help="which rows; all of them by default")
    options.add_argument("--repeat", type=int, default=3, help="runs of the whole campaign (default 3)")
    options.add_argument("--out", type=Path, default=ROOT / "bench.json")
    options.add_argument(
        "--cross",
        type=Path,
        default=ROOT / ".cross-venv",
        help="environment with MMA-Sim (default .cross-venv)",
    )
    given = options.parse_args()
    names = given.rows or list(ROWS)
    if unknown := [name for name in names if name not in ROWS]:
        options.error(f"ROW: expected some of {', '.join(ROWS)}, got {', '.join(unknown)}")
    with tempfile.TemporaryDirectory() as folder:
        found, without = measured(names, Bench(folder=Path(folder), repeat=given.repeat, cross=given.cross))
    described = machine()
    document = {"machine": described, "rows": [asdict(item) for item in found], "not_measured": without}
    given.out.write_text(json.dumps(document, indent=1) + "\n")
    table = Table(
        "row", "median", "ratio", "to", title=", ".join(f"{key} {value}" for key, value in described.items())
    )
    for item in found:
        table.add_row(item.name, f"{item.median:.4g} {item.unit}", f"{item.ratio:.4g}", item.baseline)
    for name, reason in without.items():
        table.add_row(name, "not measured", "", reason)
    Console().print(table)


if __name__ == "__main__":
    main()
