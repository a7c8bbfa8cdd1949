"""`verifier check` on whatever is given: folder, archive, release; with a key; at the level that re-executes."""

import gzip
import io
import json
import os
import shutil
import struct
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ledger.canonical import sha256
from ledger.verdict import CheckResult
from mechanism.package.keys import new_pair
from mechanism.package.release import write_release
from tests.verifier import forge
from tests.verifier.forge import Files
from verifier import reexecute as again
from verifier.__main__ import cli
from verifier.codes import CODES
from verifier.found import Found
from verifier.report import check


def quick(*arguments: str | Path) -> Result:
    """The command inside this process; its exit code is its return value."""
    return CliRunner().invoke(cli, ["check", *map(str, arguments)], standalone_mode=False)


def zipped(files: Files, out: Path) -> Path:
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return out


def tarred(files: Files, out: Path) -> Path:
    with tarfile.open(out, "w:gz") as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(f"bundle/{name}")
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return out


def tar_of_a_dot(files: Files, out: Path) -> Path:
    """As `tar czf OUT -C DIR .` writes it, folders and all."""
    folder = forge.write(files, out.parent / "dot")
    with tarfile.open(out, "w:gz", format=tarfile.GNU_FORMAT) as archive:
        archive.add(folder, ".")
        assert {".", "./plan.yaml", "./records"} <= {*archive.getnames()}
    return out


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return new_pair(tmp_path_factory.mktemp("keys") / "mine")


@pytest.mark.parametrize("make", [zipped, tarred, tar_of_a_dot])
def test_an_archived_bundle_is_judged_as_its_folder_is(
    good_files: Files, good_folder: Path, tmp_path: Path, make: object
) -> None:
    archive = make(good_files, tmp_path / "bundle")  # type: ignore[operator]
    ours = json.loads(quick(archive, "--format", "json", "--level", "raw").output)
    assert ours == json.loads(quick(good_folder, "--format", "json", "--level", "raw").output)
    assert "signature: unsigned" in quick(archive).output


def test_a_key_requires_a_signature(good_folder: Path, keys: tuple[Path, Path], tmp_path: Path) -> None:
    """By that key: unsigned, or signed by another, is V123; without a key the report says what it is."""
    signed = tmp_path / "signed.zip"
    write_release(good_folder, signed, key=keys[0], raw=True, published="2026-01-31")
    done = quick(signed, "--key", keys[1])
    assert done.return_value == 0
    assert "signature: signed by the key given" in done.output
    assert "signature: signed, and not checked: no --key was given" in quick(signed).output
    _, other = new_pair(tmp_path / "other")
    for given, key, got in (
        (signed, other, "none that it made"),
        (good_folder, keys[1], "a folder, which bears no signature"),
    ):
        done = quick(given, "--key", key)
        assert done.return_value == 2
        assert "V123" in done.output
        assert f"got {got}" in done.output


def test_a_key_that_is_none_is_the_callers_mistake(
    good_folder: Path, keys: tuple[Path, Path], tmp_path: Path
) -> None:
    signed = tmp_path / "signed.zip"
    write_release(good_folder, signed, key=keys[0], raw=False, published="2026-01-31")
    way_out = "give the PREFIX.pub.pem that `mechanism key new --out PREFIX` wrote"
    for file, got in ((Path(__file__), "something else"), (keys[0], "a private one")):
        for bundle in (signed, good_folder):  # signed or not: what is no key cannot have signed anything
            result = quick(bundle, "--key", file)
            assert str(result.exception) == (
                f"--key: {file}: expected a public key in PEM form, got {got}; {way_out}"
            )
    os.mkfifo(tmp_path / "fifo")
    result = quick(signed, "--key", tmp_path / "fifo")
    assert str(result.exception) == (
        f"--key: expected a file, got a FIFO or a device at {tmp_path / 'fifo'}; copy it to a file"
    )


def shifted(data: bytes, by: int) -> bytes:
    """A zip behind so many bytes, with places in it that allow for them, as self-extracting ones have."""
    out = bytearray(b"PK\3\4".ljust(by, b"x") + data)
    end = out.rindex(b"PK\5\6")
    (start,) = struct.unpack_from("<I", out, end + 16)
    struct.pack_into("<I", out, end + 16, start + by)
    at = start + by
    while out[at : at + 4] == b"PK\1\2":
        struct.pack_into("<I", out, at + 42, struct.unpack_from("<I", out, at + 42)[0] + by)
        at += 46 + sum(struct.unpack_from("<HHH", out, at + 28))
    return bytes(out)


def without_the_second(data: bytes) -> bytes:
    """A zip whose directory says nothing of its second entry, the bytes of which are still there."""
    end = data.rindex(b"PK\5\6")
    count, size, start = struct.unpack_from("<HII", data, end + 10)
    first = start + 46 + sum(struct.unpack_from("<HHH", data, start + 28))
    second = first + 46 + sum(struct.unpack_from("<HHH", data, first + 28))
    record = bytearray(data[end:])
    struct.pack_into("<HHII", record, 8, count - 1, count - 1, size - (second - first), start)
    return data[:first] + data[second:end] + record


NOTHING_AFTER = ("nothing after the end of the zip", "4 more bytes")
FILLED = "a zip that its entries fill"


@pytest.mark.parametrize(
    ("bend", "said"),
    [
        (lambda data: data + b"more", NOTHING_AFTER),
        (lambda data: data + data, ("a zip that starts at the file's first byte", "{size} bytes beside it")),
        (lambda data: data[:-2] + b"\3\0no", ("nothing after the end of the zip", "1 bytes too few")),
        (lambda data: b"PK\3\4" + data, ("a zip that starts at the file's first byte", "4 bytes beside it")),
        (lambda data: shifted(data, 64), (FILLED, "64 bytes that belong to none")),
        (without_the_second, (FILLED, "{second} bytes that belong to none")),
    ],
    ids=["behind", "two zips", "a torn comment", "before", "before and allowed for", "an entry left out"],
)
def test_a_zip_holds_its_entries_and_nothing_else(
    bend: Callable[[bytes], bytes], said: tuple[str, str], good_files: Files, tmp_path: Path
) -> None:
    """As a tar does: bytes that are in no entry are found by one reader and not by another."""
    path = zipped(good_files, tmp_path / "b.zip")
    data = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        offsets = sorted(entry.header_offset for entry in archive.infolist())
    path.write_bytes(bend(data))
    (found,) = check(path, level="records", anchor=None).report.findings
    got = said[1].format(size=len(data), second=offsets[2] - offsets[1])
    assert (found.code, found.where, found.expected, found.got) == ("V120", ".", said[0], got)


@pytest.mark.parametrize("more", [b"more", gzip.compress(b"more")], ids=["behind", "another stream"])
def test_a_tar_holds_its_entries_and_nothing_else(more: bytes, good_files: Files, tmp_path: Path) -> None:
    """Zeros may follow, as tar writes them to fill its last record."""
    path = tarred(good_files, tmp_path / "b.tar.gz")
    whole = path.read_bytes() + gzip.compress(bytes(10240))
    path.write_bytes(whole)
    assert check(path, level="records", anchor=None).report.findings == ()
    path.write_bytes(whole + more)
    (found,) = check(path, level="records", anchor=None).report.findings
    assert (found.code, found.expected, found.got) == (
        "V120",
        "nothing after the end of the tar",
        "more bytes",
    )


def test_a_zip_from_a_stream_or_with_a_comment_is_whole(good_files: Files, tmp_path: Path) -> None:
    """Sizes behind the bytes, as a writer leaves them that cannot go back; words at the end, counted as such."""

    class Stream(io.RawIOBase):
        def __init__(self) -> None:
            self.data = b""

        def writable(self) -> bool:
            return True

        def write(self, data: Any) -> int:
            self.data += bytes(data)
            return len(data)

    out = Stream()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in good_files.items():
            archive.writestr(name, data)
        archive.comment = b"made by hand"
    (tmp_path / "b.zip").write_bytes(out.data)
    assert check(tmp_path / "b.zip", level="records", anchor=None).report.findings == ()


def test_a_hostile_name_is_said_once(good_files: Files, tmp_path: Path) -> None:
    """In words that are not said twice, however often the name is there."""
    archive = tarred({**good_files, "../../evil": b"1"}, tmp_path / "bundle")
    twice = tmp_path / "twice.zip"
    with zipfile.ZipFile(twice, "w") as out:
        for name, data in [*good_files.items(), ("../evil", b"1"), ("/evil", b"1")]:
            out.writestr(name, data)
        with pytest.warns(UserWarning, match="Duplicate name"):
            out.writestr("../evil", b"2")
    said = {
        path: [
            (item.code, item.where, item.expected, item.got)
            for item in check(path, level="records", anchor=None).report.findings
        ]
        for path in (archive, twice)
    }
    wanted = ("V120", ".", "names that stay below one folder")
    assert said == {
        archive: [(*wanted, "'bundle/../../evil'")],
        twice: [(*wanted, "'../evil'"), (*wanted, "'/evil'")],
    }


def test_a_folder_needs_no_key_to_be_looked_at(tmp_path: Path) -> None:
    """A torn archive is malformed; a file that is none, an empty one and a FIFO hold no bundle."""
    (tmp_path / "torn").write_bytes(b"\x1f\x8b\x08\0")
    assert quick(tmp_path / "torn").return_value == 2
    for name, data in (("text", b"hello"), ("empty", b"")):
        (tmp_path / name).write_bytes(data)
        assert quick(tmp_path / name).return_value == 3
    empty = zipped({}, tmp_path / "empty.zip")
    assert quick(empty).return_value == 3


@pytest.mark.parametrize(
    ("make", "got"),
    [
        (lambda _path: None, "nothing at this path"),
        (lambda path: path.write_bytes(b""), "an empty file"),
        (lambda path: path.write_bytes(b"hello\n"), "a file of 6 bytes that is neither a .zip nor a .tar.gz"),
        (os.mkfifo, "a FIFO, a device or a socket"),
        (lambda path: path.symlink_to("nowhere"), "a link that leads nowhere"),
        (Path.mkdir, "an empty folder"),
        (lambda path: zipped({}, path), "an empty archive"),
    ],
)
def test_what_lies_there_instead_is_said(make: Callable[[Path], object], got: str, tmp_path: Path) -> None:
    make(tmp_path / "bundle.zip")
    finding = check(tmp_path / "bundle.zip", level="records", anchor=None).report.findings
    assert [(item.code, item.expected, item.got) for item in finding] == [
        ("V100", "a bundle: a folder, a .zip or a .tar.gz", got)
    ]


@pytest.mark.parametrize("also", [(), ("files.jsonl",)], ids=["stopped", "killed while it was finished"])
def test_a_run_that_is_not_finished_is_no_bad_bundle(
    also: tuple[str, ...], good_folder: Path, tmp_path: Path
) -> None:
    """As a runner leaves it: with its own files, and without the summary that it writes last."""
    folder = tmp_path / "run"
    shutil.copytree(good_folder, folder)
    for name in {"bundle.json", "files.jsonl", "records/transfer.canonical.H0.1.json"} - {*also}:
        (folder / name).unlink()
    (folder / "staging" / "7").mkdir(parents=True)
    (folder / "runner.lock").touch()
    done = quick(folder)
    assert done.return_value == 3
    assert done.output == (
        f"""verdict: MISSING   (level records)

Findings: 1
  V112 .
       this is a run that is not finished: it has no summary of its files yet
       expected a finished bundle; complete it with mechanism run PLAN --out
         {folder} --resume
       got an unfinished run; records so far: 69

Checked: 1 checks and mutations, 1 of them with findings
Not checked: {len(CODES) - 1}; --verbose lists them, with the reasons
"""
    )


def test_a_finished_bundle_without_its_summary_is_looked_at(good_folder: Path, tmp_path: Path) -> None:
    """No runner is at work in it: what is gone is named, and the rest is checked all the same."""
    folder = tmp_path / "bundle"
    shutil.copytree(good_folder, folder)
    (folder / "bundle.json").unlink()
    report = check(folder, level="records", anchor=None).report
    assert [(item.code, item.where) for item in report.findings] == [("V201", "bundle.json")]


def test_a_plan_that_does_not_fit_is_not_called_self_declared(good_folder: Path, tmp_path: Path) -> None:
    shutil.copy(forge.ROOT / "plans" / "route_block.yaml", tmp_path / "mine.yaml")
    lines = quick(good_folder, "--plan", tmp_path / "mine.yaml").output.splitlines()
    digest = sha256((good_folder / "plan.lock").read_bytes())
    assert lines[3:6] == [
        "plan: not the one that was expected",
        f"lock: sha256 {digest}",
        "signature: unsigned",
    ]


def found_again(*items: Found, notes: tuple[CheckResult, ...] = ()) -> again.Reexecuted:
    return again.Reexecuted(findings=items, checked=again.RE_EXECUTION, not_checked={}, notes=notes)


def test_what_re_execution_finds_sinks_claims(good_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the highest level: those below are carried out, and nothing is left that it decides."""
    path = "records/qualification.replay.H0.1.json"
    bad = Found(code="V851", file=path, key="surfaces.w13", expected="00, recomputed", got="11")
    monkeypatch.setattr(again, "reexecute", lambda _evidence, **_already: found_again(bad))
    report = check(good_folder, level="reexecute", anchor=None).report
    verdicts = {claim.id: claim.verdict for claim in report.claims}
    assert [finding.code for finding in report.findings] == ["V851"]
    assert (verdicts["C02"], verdicts["C08"], verdicts["C11"]) == ("malformed", "supported", "supported")
    assert [item.findings for item in report.checked if item.name == "V851"] == [1]
    assert not [item for item in report.not_checked if "reexecute" in (item.reason or "")]


def test_a_models_disagreement_with_a_gpu_changes_no_verdict(
    good_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = Found(code="V856", file="records/x.json", expected="a", got="b", claims=frozenset())
    note = CheckResult(name="agreement w13", says="no evidence", findings=1, reason="equal on 1 of 2")
    monkeypatch.setattr(again, "reexecute", lambda _evidence, **_already: found_again(said, notes=(note,)))
    checked = check(good_folder, level="reexecute", anchor=None)
    assert (checked.exit_code, checked.report.verdict) == (0, "supported")
    assert [finding.code for finding in checked.report.findings] == ["V856"]
    assert note in checked.report.checked


def test_forged_bits_do_not_survive_re_execution(good_folder: Path) -> None:
    """The forged bundle is right by every rule but one: no engine computed its bits."""
    checked = check(good_folder, level="reexecute", anchor=None)
    assert checked.exit_code == 2
    assert {finding.code for finding in checked.report.findings} == {"V850"}


def test_files_of_an_archive_are_named_as_in_a_folder(good_files: Files, tmp_path: Path) -> None:
    files = {path: data for path, data in good_files.items() if path != "build.json"}
    report = check(zipped(files, tmp_path / "b.zip"), level="records", anchor=None).report
    assert [(item.code, item.where) for item in report.findings] == [("V102", "build.json")]
    assert forge.read_plan(files["plan.yaml"]).name == "quick"
