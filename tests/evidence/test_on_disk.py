"""What a bundle of many records keeps on disk changes no answer: every case, with all of it there."""

import json
from pathlib import Path

import pytest

from tests.evidence.base_bundle import HERE
from tests.evidence.materialise import materialise
from verifier.jsonform import pieces
from verifier.report import check
from verifier.store import disk

FOLDERS = sorted((HERE / "cases").iterdir())
#: One case in so many is tried with the quick tests.
SAMPLE = 9


def answer(folder: Path, path: Path) -> tuple[str, int, list[tuple[str, ...]]]:
    """The report's bytes, the exit code, and which claims each finding sinks."""
    expected = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
    key = (HERE / expected["key"]).read_bytes() if expected["key"] else None
    checked = check(path, level=expected["level"], anchor=expected["expect_plan"], key=key)
    return "".join(pieces(checked.report)), checked.exit_code, list(checked.sinks.values())


@pytest.mark.parametrize(
    "folder",
    [
        pytest.param(folder, id=folder.name, marks=[pytest.mark.slow] if place % SAMPLE else [])
        for place, folder in enumerate(FOLDERS)
    ],
)
def test_case(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = materialise(folder, tmp_path / "bundle")
    in_memory = answer(folder, path)
    monkeypatch.setattr(disk, "MANY", 0)
    assert answer(folder, path) == in_memory
