"""Bundles of many records: what a record costs does not depend on how many there are."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from ledger.lock import Lock
from tests.verifier.many import write_many
from verifier import library, lockfile, logs
from verifier.evidence import FolderEvidence
from verifier.layout import MAX_FILES
from verifier.library import Library
from verifier.report import check

#: Bytes of memory that a verifier may take for each record beyond what it takes for a few.
A_RECORD = 5000
#: How often, for each record, something is parsed (its own bytes once; its two lines of the log and the one of
#: the manifest in each of the nine passes that mutations take) and a file is opened (to be hashed, to be read).
EACH = {"parsed": 29, "read": 3}
_MEASURED = """
import resource, sys
from pathlib import Path
from verifier.report import check
answer = check(Path(sys.argv[1]), level="records", anchor=None).report.verdict
print(answer, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def peak(folder: Path) -> int:
    """The most memory that a check took, in bytes."""
    done = subprocess.run(
        [sys.executable, "-c", _MEASURED, folder], check=True, capture_output=True, text=True
    )
    verdict, kilobytes = done.stdout.split()
    assert verdict == "supported"
    return int(kilobytes) * 1024


@pytest.mark.slow
def test_memory_and_work_grow_with_the_records_and_no_faster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two sizes: memory by the record, and how often bytes are hashed, documents parsed and records examined."""
    sizes, peaks, work = [], [], []
    for name, replicates in (("few", 50), ("many", 150)):
        sizes.append(write_many(tmp_path / name, arms=40, replicates=replicates))
        peaks.append(peak(tmp_path / name))
        calls: Counter[str] = Counter()
        with monkeypatch.context() as counted:
            for module, function in ((library, "read_json"), (logs, "read_json")):
                counted.setattr(module, function, _counted(getattr(module, function), calls, "parsed"))
            chunks = FolderEvidence.chunks
            counted.setattr(FolderEvidence, "chunks", _counted(chunks, calls, "read"))
            assert check(tmp_path / name, level="records", anchor=None).exit_code == 0
        work.append(calls)
    few, many = sizes
    assert (few, many) == (2000, 6000)
    assert (peaks[1] - peaks[0]) / (many - few) < A_RECORD
    for number, calls in zip(sizes, work, strict=True):
        for what, most in EACH.items():
            assert calls[what] / number < most, what


def _counted(function: object, calls: Counter[str], what: str) -> object:
    def counting(*arguments: object, **named: object) -> object:
        calls[what] += 1
        return function(*arguments, **named)  # type: ignore[operator]

    return counting


def test_a_lock_taken_apart_is_the_lock(good_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read one process at a time, or as one document: the same processes, and the same words of its faults."""
    evidence = FolderEvidence(good_folder)
    whole, mine = lockfile.read_lock(evidence, Library(), [])
    monkeypatch.setattr(lockfile, "LARGE", 1)
    apart, theirs = lockfile.read_lock(evidence, Library(), [])
    assert isinstance(whole, Lock)
    assert isinstance(apart, Lock)
    assert (theirs, apart.model_copy(update={"cells": whole.cells})) == (mine, whole)
    assert len(apart.cells) == 1


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"replicate":3', b'"replicate":0'),
        (b'"replicate":3', b'"replicate": 3'),
        (b'"replicate":3,', b""),
        (b'"padded_blocks":', b'"padded":'),
        (b'}],"fixture":', b'}],"fixture" :'),
        (b'},{"alignment":', b'},{},{"alignment":'),
        (b'},{"alignment":', b'},"x},{\\"alignment\\":",{"alignment":'),
    ],
)
def test_a_faulty_lock_is_told_as_one_document(
    old: bytes, new: bytes, good_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = (good_folder / "plan.lock").read_bytes()
    assert old in data
    (tmp_path / "plan.lock").write_bytes(data.replace(old, new, 1))
    evidence = FolderEvidence(tmp_path)
    one: list[object] = []
    assert lockfile.read_lock(evidence, Library(), one) == (None, ())  # type: ignore[arg-type]
    monkeypatch.setattr(lockfile, "LARGE", 1)
    other: list[object] = []
    assert lockfile.read_lock(evidence, Library(), other) == (None, ())  # type: ignore[arg-type]
    assert other == one != []


def test_more_files_than_are_listed_are_not_looked_at(
    good_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Said once; what such a bundle holds is neither right nor wrong."""
    monkeypatch.setattr("verifier.evidence.MAX_FILES", 50)
    checked = check(good_folder, level="records", anchor=None)
    assert [(item.code, item.where, item.expected, item.got) for item in checked.report.findings] == [
        ("V110", ".", f"at most {MAX_FILES} files", "more")
    ]
    assert (checked.exit_code, checked.report.claims) == (2, ())
