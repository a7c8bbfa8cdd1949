"""The software identity names every file that takes part in a cold process, and no oracle."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from mechanism.engine.identity import source_files
from tests.campaign.campaign_setup import ROOT, ends, run

Prepare = Callable[..., Path]
CELLS = """
phases:
  - name: qualification
    cells:
      - {name: native, alignment: constructed, histories: [H0]}
      - {name: replay, alignment: own, histories: [H0]}
"""


def test_every_module_of_a_simulated_child_is_in_the_list(campaign: Prepare, tmp_path: Path) -> None:
    """Both paths, constructed and injected; the modules are looked at when the record is written."""
    assert run(campaign(phases=CELLS), tmp_path / "out", module="tests.campaign.loaded_child").complete
    listed = set(dict(source_files("simulated")))
    for name, end in ends(tmp_path / "out").items():
        modules = end["stderr"]["tail"].strip().rpartition("\n")[2].split()
        assert len(modules) > 40, name
        for module in modules:
            path = ROOT / module.replace(".", "/")
            file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
            assert file.relative_to(ROOT).as_posix() in listed, module


def test_what_holds_and_starts_a_child_counts_too() -> None:
    """The child's surroundings are made by these."""
    listed = dict(source_files("simulated"))
    for name in ("supervisor", "contain", "containment", "launch"):
        assert f"mechanism/process/{name}.py" in listed


def test_every_file_counts_with_its_bytes() -> None:
    """Rooms in rooms too, by the digest of what is in the file; compiled copies are none of these."""
    listed = dict(source_files("vllm"))
    rooms = [ROOT / "mechanism" / name for name in ("engine", "fixture", "plugin", "process")]
    files = {path for room in rooms for path in room.rglob("*.py")}
    assert {path.relative_to(ROOT).as_posix() for path in files} <= set(listed)
    assert list(listed) == sorted(listed)
    for name, digest in listed.items():
        assert hashlib.sha256((ROOT / name).read_bytes()).hexdigest() == digest


@pytest.mark.parametrize("engine", ["simulated", "vllm"])
def test_files_that_no_cold_process_of_the_engine_loads(engine: str) -> None:
    """An edit of an oracle or of another engine makes no new cohort."""
    listed = set(dict(source_files(engine)))
    assert not {"mechanism/kernel/plain.py", "mechanism/kernel/vectors.py"} & listed
    own = {path.relative_to(ROOT).as_posix() for path in (ROOT / "mechanism/engine").glob("vllm_*.py")}
    assert own
    assert (own <= listed) == (engine == "vllm")
    assert own.isdisjoint(listed) == (engine == "simulated")
    assert {name for name in listed if not (ROOT / name).is_file()} == set()
