"""Containment by real processes: what a cell can write and reach, and that it says so itself."""

import json
import os
import shutil
import socket
from pathlib import Path
from typing import Any

import pytest

from mechanism.engine.asked import Shape
from mechanism.process.containment import KINDS, Kind, Limits, containment, kinds_for, limits_of
from mechanism.process.launch import Launch, Outcome, Running, interpreter

ROOT = Path(__file__).resolve().parents[2]
LIMITS = Limits(memory=2**32, file_size=2**20, processes=64)
SHAPE = Shape(
    tokens=12,
    experts=128,
    top_k=8,
    hidden=2048,
    intermediate=768,
    group_size=128,
    dtype="float16",
    block_size_m=8,
)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for name in ("bundle/staging/1", "bundle/records", "fixture", "marks"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "bundle/records/good.json").write_text("good")
    (tmp_path / "fixture/tensors").write_text("good")
    return tmp_path


def start(
    place: Path, kind: Kind, *, engine: str = "simulated", module: str = "tests.process.held_child"
) -> Outcome:
    own = place / "bundle/staging/1"
    with socket.create_server(("127.0.0.1", 0)) as server:
        asked = {
            "kind": kind,
            "bundle": str(place / "bundle"),
            "fixture": str(place / "fixture"),
            "write": [str(path) for path in tried(place)],
            "port": server.getsockname()[1],
        }
        (own / "request.json").write_text(json.dumps(asked))
        launch = Launch(
            python=interpreter(),
            module=module,
            request=str(own / "request.json"),
            environment={"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", "PATH": os.environ["PATH"]},
            limit_us=60_000_000,
            contain=containment(
                kind,
                engine=engine,
                bundle=place / "bundle",
                fixture=place / "fixture",
                own=(own,),
                more=(place / "marks",),
                limits=LIMITS,
            ),
        )
        return Running(launch).finish(timeout_s=120)


def tried(place: Path) -> list[Path]:
    names = ("bundle/records/new.json", "bundle/records/good.json", "bundle/staging/x", "fixture/tensors")
    return [*(place / name for name in names), place / "beside", place / "marks/mark"]


def told(outcome: Outcome) -> Any:
    assert outcome.exit_code == 0, outcome.stderr_tail
    return json.loads(outcome.stderr_tail)


def require(kind: Kind, place: Path) -> None:
    """Skip where the system does not have it; that a campaign then takes the next is tested elsewhere."""
    trial = start(place, kind, module="mechanism.process.held")
    if trial.exit_code != 0:
        pytest.skip(f"{kind}: {trial.stderr_tail.decode()[-200:]}")


@pytest.mark.parametrize("kind", ["namespaces", "landlock"])
def test_cell_writes_its_own_files_and_no_others(place: Path, kind: Kind) -> None:
    """New files, files that are there, folders around it: each refused; no network; limits bind."""
    require(kind, place)
    found = told(start(place, kind))
    refusal = "Read-only file system" if kind == "namespaces" else "Permission denied"
    assert found["own"] == "written"
    results = list(found["tried"].values())
    assert results == [refusal] * 5 + ["written"]
    assert (place / "bundle/records/good.json").read_text() == "good"
    assert (place / "fixture/tensors").read_text() == "good"
    assert found["connect"] == ("Network is unreachable" if kind == "namespaces" else "Permission denied")
    assert not found["remount"]
    assert (found["memory"], found["file"]) == ("refused", "File too large")
    assert found.get("processes", "refused") == "refused"
    assert found["facts"] == {
        "by": kind,
        "bundle": "read-only",
        "elsewhere": "read-only",
        "network": "none" if kind == "namespaces" else "no-tcp",
        "memory": LIMITS.memory,
        "file_size": LIMITS.file_size,
        "processes": None if os.getuid() == 0 else LIMITS.processes,
        "nice": os.getpriority(os.PRIO_PROCESS, 0),
    }


def test_modes_alone_hold_nobody_and_the_record_says_so(place: Path) -> None:
    found = told(start(place, "modes"))
    assert set(found["tried"].values()) == {"written"}
    assert (found["facts"]["by"], found["facts"]["bundle"]) == ("modes", "writable")
    assert (found["connect"], found["facts"]["network"]) == ("connected", "host")
    assert (found["memory"], found["file"]) == ("refused", "File too large")


def test_gpu_cell_may_write_beside_the_bundle(place: Path) -> None:
    """Its driver keeps files all over the system."""
    require("namespaces", place)
    found = told(start(place, "namespaces", engine="vllm"))
    refused = "Read-only file system"
    assert list(found["tried"].values()) == [refused] * 4 + ["written"] * 2
    assert (found["facts"]["bundle"], found["facts"]["elsewhere"]) == ("read-only", "writable")
    assert kinds_for("vllm") == ("namespaces", "modes")
    assert kinds_for("simulated") == KINDS


def test_child_that_cannot_be_held_is_not_started(place: Path) -> None:
    """A folder that is not there: the call is named, and nothing ran."""
    shutil.rmtree(place / "marks")
    got = start(place, "namespaces")
    assert got.exit_code == 127
    assert got.stderr_tail.decode().startswith("cannot start ")
    assert "No such file or directory" in got.stderr_tail.decode() or "unshare" in got.stderr_tail.decode()


def test_limits_follow_from_the_plan() -> None:
    """Captured: 96 rows of 1536, 768 and 2048 columns and 12 of 2048, two bytes each."""
    names = ("w13", "activation", "w2", "output")
    got = limits_of("landlock", engine="simulated", shape=SHAPE, fixture_bytes=10**9, surfaces=names)
    captured = 2 * (96 * (1536 + 768 + 2048) + 12 * 2048)
    assert got.file_size is not None
    assert got.file_size >= 2**28 + captured
    assert (got.memory, got.processes) == (2**32 + 4 * 10**9, None)
    assert limits_of("modes", engine="vllm", shape=SHAPE, fixture_bytes=1, surfaces=()).memory is None
