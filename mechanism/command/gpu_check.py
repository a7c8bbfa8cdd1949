"""`mechanism gpu check`: every check once, then one campaign; results, vectors and a table in one folder."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np

from ledger.canonical import canonical
from mechanism.command.vectors import vector_files
from mechanism.engine.gpu_identity import Gpu, driver_version
from mechanism.errors import CampaignError, MechanismError
from mechanism.fixture.layout import by_recipe
from mechanism.fixture.routing import topk_ids
from mechanism.gpu import checks, recording
from mechanism.gpu.geometry_plan import TOKENS, TOP_K, geometry_plan
from mechanism.gpu.multiply import device_of
from mechanism.gpu.opening import open_gpu
from mechanism.kernel import vectors
from mechanism.kernel.devices import DEVICES, Device
from mechanism.kernel.errors import KernelError
from mechanism.plan.document import load_plan
from mechanism.process import files

Facts = dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckOptions:
    """What the command line asked for."""

    out: Path
    vectors: tuple[Path, ...] = ()
    jobs: int = 4
    campaign: bool = True
    repeats: int = 1000
    turns: int = 50


def gpu_check(options: CheckOptions) -> int:
    """On the GPU of this machine, with the build's own operators. Raises EngineError without one."""
    operators, gpu = open_gpu()
    return run_checks(options, operators, gpu)


def run_checks(options: CheckOptions, operators: Any, gpu: Gpu) -> int:
    """Every check on a device; one that fails is a result, and the next one runs. 0 if all hold."""
    if options.out.exists():
        raise CampaignError(f"--out: expected a folder that does not exist, got {options.out}; name another")
    options.out.mkdir(parents=True)
    device = named_device(gpu)
    plan = options.out / "plan.yaml"
    made = geometry_plan(device, name="plan", ledger="plan-claims.yaml")
    files.write_once(plan.with_name("plan-claims.yaml"), made.ledger.encode())
    files.write_once(plan, made.plan.encode())
    routing = topk_ids(by_recipe(load_plan(plan).plan.fixture))
    steps: dict[str, Callable[[], Facts]] = {
        "silu": lambda: checks.silu(operators),
        "row-positions": lambda: checks.row_positions(operators, gpu, turns=options.turns),
        "launches": lambda: checks.launches(operators, gpu),
        "atomics": lambda: checks.atomics(operators, routing, repeats=options.repeats),
        "vectors": lambda: checks.check_vectors(operators, gpu, _files(options.vectors), _load),
    }
    steps["recorded"] = lambda: _recorded(options.out / "vectors", operators, gpu)
    if options.campaign:
        steps["campaign"] = lambda: campaign(plan, options)
    results: dict[str, Facts] = {}
    for name, step in steps.items():
        started = time.monotonic()
        try:
            results[name] = step()
        except (MechanismError, KernelError, RuntimeError) as fault:
            results[name] = {"settles": name, "holds": None, "fault": str(fault)[:500]}
        results[name]["milliseconds"] = round(1000 * (time.monotonic() - started))
        click.echo(f"{name}: {_word(results[name])}")
    _write(options.out, gpu, operators, results)
    return 0 if all(result["holds"] for result in results.values()) else 1


def _recorded(folder: Path, operators: Any, gpu: Gpu) -> Facts:
    """Vectors of this device in the published format, and whether the simulation gives their bits."""
    folder.mkdir()
    differing = {
        path.name: vectors.recompute(path.name, _load(path)).differing
        for path in recording.write(folder, operators, gpu)
    }
    return {"settles": "the simulation", "holds": not any(differing.values()), "differing": differing}


def named_device(gpu: Gpu) -> Device:
    """The found GPU under the name that plans know it by, if its numbers are a known device's."""
    found = device_of(gpu)
    for device in DEVICES.values():
        same = (device.arch, device.sms, device.shared_memory) == (found.arch, found.sms, found.shared_memory)
        if same and device.name.split("-")[-1] in gpu.name.lower():
            return device
    return Device(
        name=f"custom-{found.sms}sm", arch=found.arch, sms=found.sms, shared_memory=found.shared_memory
    )


def campaign(plan: Path, options: CheckOptions) -> Facts:
    """Freeze the plan of this device and run it, by the same commands that anybody would type."""
    bundle = options.out / "bundle"
    for argv in (
        ["freeze", str(plan)],
        ["run", str(plan), "--out", str(bundle), "--jobs", str(options.jobs), "--format", "json"],
    ):
        done = subprocess.run(
            [sys.executable, "-m", "mechanism", *argv], check=False, capture_output=True, text=True
        )
        if done.returncode not in (0, 1, 2, 3):
            return {"settles": "the mechanism", "holds": None, "fault": done.stderr[-500:]}
    told = json.loads(done.stdout)
    return {
        "settles": "the mechanism",
        "holds": done.returncode == 0,
        "bundle": "bundle",
        "processes": told["processes"],
        "verdict": (told.get("report") or {}).get("verdict"),
    }


def _files(folders: tuple[Path, ...]) -> list[tuple[str, Path]]:
    return [
        (path.relative_to(folder).as_posix(), path)
        for folder in folders
        for path in vector_files(folder)
        if path.suffix == ".npz"
    ]


def _load(path: Path) -> Mapping[str, Any]:
    with np.load(path, allow_pickle=False) as file:
        return {key: file[key] for key in file.files}


def _write(out: Path, gpu: Gpu, operators: Any, results: Mapping[str, Facts]) -> None:
    identity = {
        "gpu": asdict(gpu),
        "driver": driver_version(),
        "versions": dict(operators.versions()),
        "activation": operators.activation,
    }
    document = {"schema_version": 1, "identity": identity, "results": dict(results)}
    files.write_once(out / "results.json", canonical(document))
    rows = [
        f"| {name} | {result['settles']} | {_word(result)} | {result['milliseconds'] / 1000:.1f} |"
        for name, result in results.items()
    ]
    head = [
        f"# Checks on {gpu.name}, {gpu.sms} SMs, {gpu.arch}",
        "",
        f"{TOKENS * TOP_K} routes; driver {identity['driver']}; versions {identity['versions']}.",
        "",
        "| check | settles | result | seconds |",
        "| --- | --- | --- | --- |",
    ]
    files.write_once(out / "summary.md", "\n".join([*head, *rows, ""]).encode())


def _word(result: Facts) -> str:
    holds = result["holds"]
    word = "not decided" if holds is None else "holds" if holds else "does not hold"
    return f"{word}: {result['fault']}" if "fault" in result else word
