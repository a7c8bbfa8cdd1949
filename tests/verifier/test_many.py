"""Bundles of many records: what a record costs does not depend on how many there are."""

import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from ledger.lock import Lock
from tests.verifier.many import write_many
from verifier import library, lockfile, logs
from verifier.evidence import FolderEvidence
from verifier.found import Found
from verifier.kept import Codec
from verifier.library import Library
from verifier.report import check
from verifier.store import disk
from verifier.unread import Unread

#: Bytes of memory that a verifier may take for each record beyond what it takes for a few. Buffers fill and tables
#: double in steps: 355 were measured from 20,000 records to 40,000, 176 from 100,000 to 200,000.
A_RECORD = 500
#: How often, for each record, something is parsed by its schema (its own bytes; its lines are plain ones), a file
#: is opened (to be read), and what was kept of a record is taken up again in all the passes that mutations take.
EACH = {"parsed": 1.2, "read": 1.2, "taken up": 30}
#: The peak is this program's own: `ru_maxrss` would count what the process was before it, a copy of pytest.
_MEASURED = """
import re, sys
from pathlib import Path
from verifier.report import check
answer = check(Path(sys.argv[1]), level="records", anchor=None).report.verdict
print(answer, re.search("VmHWM: *([0-9]+) kB", Path("/proc/self/status").read_text().replace("\\t", " "))[1])
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
def test_memory_grows_by_few_bytes_a_record(tmp_path: Path) -> None:
    """Two sizes, both of many records."""
    sizes, peaks = [], []
    for name, replicates in (("few", 500), ("many", 1000)):
        sizes.append(write_many(tmp_path / name, arms=40, replicates=replicates))
        peaks.append(peak(tmp_path / name))
        shutil.rmtree(tmp_path / name)
    few, many = sizes
    assert (few, many) == (20_000, 40_000)
    assert (peaks[1] - peaks[0]) / (many - few) < A_RECORD


@pytest.mark.slow
@pytest.mark.parametrize("replicates", [125, 250])
def test_work_grows_with_the_records_and_no_faster(
    replicates: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How often bytes are read, documents parsed, and what was kept of a record taken up again."""
    number = write_many(tmp_path / "bundle", arms=40, replicates=replicates)
    calls: Counter[str] = Counter()
    for module, function in ((library, "read_json"), (logs, "read_json")):
        monkeypatch.setattr(module, function, _counted(getattr(module, function), calls, "parsed"))
    monkeypatch.setattr(FolderEvidence, "chunks", _counted(FolderEvidence.chunks, calls, "read"))
    monkeypatch.setattr(Codec, "unpack", _counted(Codec.unpack, calls, "taken up"))
    assert check(tmp_path / "bundle", level="records", anchor=None).exit_code == 0
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
    assert (tuple(theirs), apart.model_copy(update={"cells": whole.cells})) == (mine, whole)
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


@pytest.mark.parametrize(("limit", "most"), [("MAX_FILES", 50), ("MAX_HELD", 10)])
def test_more_files_than_are_listed_are_not_looked_at(
    limit: str, most: int, good_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Said once; what such a bundle holds is neither right nor wrong."""
    monkeypatch.setattr(f"verifier.store.listing.{limit}", most)
    checked = check(good_folder, level="records", anchor=None)
    assert [(item.code, item.where, item.expected, item.got) for item in checked.report.findings] == [
        ("V110", ".", "at most 1200000 files, and 200000 that are no records", "more")
    ]
    assert (checked.exit_code, checked.report.claims) == (2, ())


def test_a_large_lock_with_faults_is_not_read_whole(
    good_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = (good_folder / "plan.lock").read_bytes().replace(b'"replicate":3', b'"replicate":0', 1)
    (tmp_path / "plan.lock").write_bytes(data)
    monkeypatch.setattr(lockfile, "LARGE", 1)
    monkeypatch.setattr(lockfile, "_WHOLE", 1000)
    found: list[Found] = []
    assert lockfile.read_lock(FolderEvidence(tmp_path), Library(), found) == (None, ())
    wanted = "at most 1000 bytes of a lock that has faults"
    assert found == [Found(code="V110", file="plan.lock", expected=wanted, got=f"{len(data)} bytes")]


def test_a_lock_is_read_as_a_stream(good_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However the bytes come, and however few processes are kept in memory."""
    data = (good_folder / "plan.lock").read_bytes()
    whole, mine = lockfile.read_lock(FolderEvidence(good_folder), Library(), [])
    monkeypatch.setattr(lockfile, "LARGE", 1)
    monkeypatch.setattr(disk, "MANY", 0)
    for size in (1, 13, 4096):
        pieces = [data[at : at + size] for at in range(0, len(data), size)]
        if not pieces[0].startswith(b'{"cells":['):
            pieces = [data[:10], *pieces[10 // size :]] if size == 1 else [data[:13], *pieces[1:]]
        monkeypatch.setattr(FolderEvidence, "chunks", lambda _self, _path, given=tuple(pieces): iter(given))
        lock, locked = lockfile.read_lock(FolderEvidence(good_folder), Library(), [])
        assert isinstance(lock, Lock)
        assert isinstance(whole, Lock)
        assert tuple(locked) == mine
        assert lock.model_copy(update={"cells": whole.cells}) == whole


def test_of_many_findings_the_first_are_kept_and_the_others_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("verifier.unread.MAX_FAULTS", 2)
    unread = Unread()
    items = [
        Found(code=code, file=str(number), expected="a", got="b")
        for number in range(5)
        for code in ("V202", "V203")
    ]
    unread += items
    assert list(unread) == items[:6]
    assert list(unread.of("V203")) == [items[1], items[3], items[5], items[5], items[5]]
    assert list(unread.of("V204")) == []


_FULL = """
import resource, sys
from verifier.store import disk
from verifier.__main__ import main
disk.MANY = 0
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
sys.argv = ["verifier", "check", sys.argv[1]]
main()
"""


def test_a_full_temporary_folder_ends_the_check_with_one_line(good_folder: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _FULL, good_folder],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr == (
        f"cannot go on: expected room for temporary files, got File too large in {tmp_path};"
        " free some, or name another folder in TMPDIR\n"
    )
    assert list(tmp_path.iterdir()) == []
