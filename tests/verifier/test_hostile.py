"""Bytes that nobody should send: every one a finding that names its file, none a traceback, none followed."""

import os
import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ledger.bundle import SUMMARY
from tests.verifier import forge
from tests.verifier.conftest import Find, Findings, Judge, Overlay
from tests.verifier.edits import H0
from tests.verifier.forge import Files, Parts
from verifier.assess import assess
from verifier.bundle import Bundle
from verifier.checks import registry
from verifier.checks.check import check as as_check
from verifier.evidence import FolderEvidence
from verifier.found import Found, plain
from verifier.library import Library
from verifier.report import check

LIBRARY = Library()
KEY = b'"schema_version":'  # every document has it
#: Bytes of a JSON document, and what must be said of them.
BYTES: list[tuple[str, Callable[[bytes], bytes], str, str]] = [
    ("truncated", lambda data: data[:-20], "one JSON value", "something else"),
    ("empty", lambda _: b"", "one JSON value", "something else: Expecting value"),
    ("byte order mark", lambda data: b"\xef\xbb\xbf" + data, "UTF-8 JSON without a byte order mark", "one"),
    (
        "duplicate key",
        lambda data: b'{"schema_version":1,' + data[1:],
        "each key once",
        "'schema_version' twice",
    ),
    (
        "NaN",
        lambda data: data.replace(KEY, KEY + b'NaN,"x":', 1),
        "integers only",
        "the number NaN",
    ),
    ("1e400", lambda data: data.replace(KEY, KEY + b'1e400,"x":', 1), "integers only", "1e400"),
    ("decimal", lambda data: data.replace(KEY, KEY + b'1.0,"x":', 1), "integers only", "1.0"),
    (
        "huge integer",
        lambda data: data.replace(KEY, KEY + b"9" * 5000, 1),
        "2^53 - 1",
        "999",
    ),
    (
        "2^53",
        lambda data: data.replace(KEY, KEY + b'9007199254740992,"x":', 1),
        "2^53 - 1",
        "9007",
    ),
    ("deep", lambda _: b"[" * 200_000, "at most 64 nested levels", "more"),
    ("deep in a key", lambda data: b'{"a":' * 100 + data + b"}" * 100, "at most 64 nested levels", "more"),
    ("NUL", lambda data: data.replace(KEY, b'"\0":1,' + KEY, 1), "one JSON value", "control character"),
    ("not UTF-8", lambda data: data.replace(KEY, b'"\xff":1,' + KEY, 1), "UTF-8", "byte 0xff"),
    ("lone surrogate", lambda data: data.replace(KEY, b'"\\ud800":1,' + KEY, 1), "canonical", "surrogates"),
    ("CRLF", lambda data: data + b"\r\n", "RFC 8785 canonical bytes", "written another way"),
    ("a list", lambda _: b"[]", "", ""),
    ("a number", lambda _: b"1", "a JSON object or list", "int"),
]


@pytest.mark.parametrize("path", [H0, "plan.lock"])
@pytest.mark.parametrize(("bend", "expected", "got"), [b[1:] for b in BYTES], ids=[b[0] for b in BYTES])
def test_bytes_of_a_document(
    parts: Parts,
    good_files: Files,
    overlay: Overlay,
    path: str,
    bend: Callable[[bytes], bytes],
    expected: str,
    got: str,
) -> None:
    """A document that is none, in a bundle that fits around it: a finding says so."""
    parts.extra[path] = bend(good_files[path])
    evidence = overlay(forge.seal(parts))
    found = [f for f in assess(evidence, LIBRARY, level="records", anchor=None).found if f.file == path]
    assert found[0].code in {"V202", "V203"}
    assert expected in found[0].expected + found[0].got
    assert got in found[0].got + found[0].expected


@pytest.mark.parametrize(("bend", "expected", "got"), [b[1:] for b in BYTES], ids=[b[0] for b in BYTES])
def test_bytes_of_the_summary(
    good_files: Files, judge: Judge, bend: Callable[[bytes], bytes], expected: str, got: str
) -> None:
    """The same for bundle.json, which every mutation makes anew: the whole check ends, and blames it alone."""
    checked = judge({**good_files, SUMMARY: bend(good_files[SUMMARY])})
    first, *others = checked.report.findings
    assert (first.where, others, checked.exit_code) == (SUMMARY, [], 2)
    assert first.code == ("V202" if got else "V203")
    assert expected in first.expected + first.got
    assert got in first.got + first.expected


@pytest.mark.parametrize("path", ["plan.yaml", "ledger.yaml"])
@pytest.mark.parametrize(
    "data",
    [b"", b"\xff\xfe", b"a: &x 1\nb: *x\n", b"!!python/object:os.system {}\n", b"a: 1\r\n", b"a\0b", b"[" * 5000,
     b"- " * 40, b"%YAML 1.1\n---\na: 1\n", b"a: 1\na: 2\n", b"\xef\xbb\xbfa: 1", b'"\\ud800": 1\n', b"a: no\n",
     b"--- a\n--- b\n", b"x" * (5 * 2**20)],
    ids=lambda data: repr(data[:12]),
)  # fmt: skip
def test_bytes_of_yaml(parts: Parts, find: Find, path: str, data: bytes) -> None:
    """The same for the two documents that are YAML."""
    parts.plan, parts.ledger = (data, parts.ledger) if path == "plan.yaml" else (parts.plan, data)
    forge.relink(parts)
    assert "V204" in {code for code, where in find(forge.seal(parts)) if where.startswith(path)}


@pytest.mark.parametrize(
    "name", ["../evil", "/etc/passwd", "records/../plan.yaml", "a//b", "records/é.json", "a\nb"]
)
def test_paths_in_the_manifest(parts: Parts, find: Find, name: str) -> None:
    """A path that leaves the bundle is never opened: the line is refused as such."""
    line = forge.canonical({"path": name, "size": 1, "sha256": "0" * 64}) + b"\n"
    found = find(forge.seal(parts, manifest=lambda lines: [line, *lines]))
    assert ("V105", "files.jsonl:1, path") in found


@pytest.fixture
def folder(good_folder: Path, tmp_path: Path) -> Path:
    """A good bundle of one's own on disk."""
    return shutil.copytree(good_folder, tmp_path / "bundle")


def special(kind: str, target: Path) -> None:
    """Put something that is no regular file at a path."""
    target.unlink(missing_ok=True)
    if kind == "fifo":
        os.mkfifo(target)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(os.path.relpath(target))
    elif kind == "folder":
        target.mkdir()
    else:
        target.symlink_to({"link": "plan.lock", "link out": "/etc/passwd", "loop": target.name}[kind])


@pytest.mark.parametrize("kind", ["link", "link out", "loop", "fifo", "socket", "folder"])
@pytest.mark.parametrize("path", [H0, "files.jsonl", "extra"])
def test_what_is_no_file(
    folder: Path, find: Find, monkeypatch: pytest.MonkeyPatch, kind: str, path: str
) -> None:
    """Named, never opened, and the rest goes on."""
    monkeypatch.chdir(folder.parent)  # the name of a socket may not be long
    special(kind, folder / path)
    found = find(folder)
    assert ("V104", path) in found
    assert not [code for code, _ in found if code == "V999"]


@pytest.mark.parametrize("path", ["records", "objects", "alignments"])
def test_a_folder_that_is_a_link(folder: Path, find: Find, path: str) -> None:
    """A link to a folder with the right content is a link all the same."""
    (folder / path).rename(folder.parent / path)
    (folder / path).symlink_to(folder.parent / path, target_is_directory=True)
    found = find(folder)
    assert ("V104", path) in found
    assert not [where for code, where in found if code == "V101"]


def test_hard_links_are_files(folder: Path, find: Find) -> None:
    """How often a file is linked says nothing of its bytes."""
    os.link(folder / "plan.yaml", folder.parent / "other")
    assert find(folder) == []


def test_names_that_are_no_text(folder: Path, find: Find) -> None:
    """A name in no encoding is a finding that can be printed."""
    (folder / os.fsdecode(b"\xff\x1b[2J")).touch()
    found = check(folder, level="records", anchor=None).report.findings
    assert [(f.code, f.where) for f in found] == [("V109", "\\udcff\\x1b[2J")]
    assert find(folder)[0][0] == "V109"


def test_a_sparse_file_is_not_read(folder: Path) -> None:
    """A record of a terabyte is refused by its size."""
    with (folder / H0).open("r+b") as file:
        file.truncate(2**40)
    found: Findings = [(f.code, f.where) for f in check(folder, level="raw", anchor=None).report.findings]
    assert ("V110", H0) in found


def test_unreadable_by_permission(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that the system refuses to open is a finding, with the system's reason."""
    real = os.open

    def refuse(path: str, flags: int, *args: int, dir_fd: int | None = None) -> int:
        if path == "build.json":
            raise PermissionError(13, "Permission denied")
        return real(path, flags, *args, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", refuse)
    found = check(folder, level="records", anchor=None).report.findings
    assert ("V104", "build.json", "Permission denied") in [(f.code, f.where, f.got) for f in found]


def test_many_findings_are_counted(parts: Parts, overlay: Overlay) -> None:
    """Three thousand files without a place: a thousand are listed, the others counted."""
    parts.extra |= {f"x{number}": b"" for number in range(3000)}
    found = assess(overlay(forge.seal(parts)), LIBRARY, level="records", anchor=None).found
    assert len(found) == 1001
    assert found[-1].got == "2000 more findings of this kind"


def test_a_check_that_fails_is_a_finding(
    good_files: Files, judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    """V999: an error in the verifier never passes evidence, and never is a traceback."""

    @as_check("V101")
    def broken(_bundle: Bundle) -> Iterator[Found]:
        """V101: broken."""
        raise RecursionError("too deep")

    monkeypatch.setattr(registry, "RECORDS", (*registry.RECORDS, broken))
    checked = judge(good_files)
    assert [(f.code, f.got) for f in checked.report.findings] == [("V999", "RecursionError: too deep")]
    assert checked.exit_code == 2


def test_plain_text() -> None:
    """Nothing that moves a cursor or breaks an encoding is left."""
    assert plain("a b é") == "a b é"
    assert plain("\x1b[2J\n\u202e\udcff") == "\\x1b[2J\\n\\u202e\\udcff"


def test_a_bundle_that_changes_while_it_is_read(folder: Path) -> None:
    """Files that vanish after the listing are findings."""
    evidence = FolderEvidence(folder)
    (folder / "plan.yaml").unlink()
    (folder / H0).unlink()
    found = assess(evidence, Library(), level="records", anchor=None).found
    assert {(f.code, f.where) for f in found if f.code == "V104"} == {("V104", "plan.yaml"), ("V104", H0)}
