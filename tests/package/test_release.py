"""Releases: the same bytes twice, valid by public tools, and every forgery of one named by its code."""

import base64
import hashlib
import io
import json
import os
import re
import stat
import subprocess
import sys
import tarfile
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bagit
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from securesystemslib.dsse import Envelope
from securesystemslib.signer import SSlibKey

from ledger.canonical import canonical
from mechanism.package.archive import writer
from mechanism.package.keys import new_pair, read_private
from mechanism.package.payload import PackageError
from mechanism.package.release import write_release
from tests.verifier import forge
from verifier.archive import unpack
from verifier.assess import assess
from verifier.library import Library
from verifier.release import open_release

Files = dict[str, bytes]
SUFFIXES = ("zip", "tar.gz")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A forged bundle of 70 processes; read only."""
    return forge.write(forge.seal(forge.good_parts()), tmp_path_factory.mktemp("good") / "bundle")


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return new_pair(tmp_path_factory.mktemp("keys") / "mine")


def made(bundle: Path, out: Path, key: Path | None = None, *, raw: bool = True) -> Path:
    write_release(bundle, out, key=key, raw=raw, published="2026-01-31")
    return out


@pytest.fixture(scope="module")
def signed(bundle: Path, keys: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A signed zip without raw captures."""
    return made(bundle, tmp_path_factory.mktemp("signed") / "release.zip", keys[0], raw=False)


def entries(release: Path) -> Files:
    with zipfile.ZipFile(release) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def zipped(files: Files, out: Path) -> Path:
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return out


def found(release: Path, key: Path) -> list[tuple[str, str, str]]:
    return found_by(release, key.read_bytes())


def found_by(release: Path, key: bytes) -> list[tuple[str, str, str]]:
    with open_release(release, key=key) as opened:
        return [(item.code, item.key, item.got) for item in opened.findings]


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("raw", [True, False], ids=["raw", "without-raw"])
def test_packaging_twice_gives_equal_bytes(
    bundle: Path, keys: tuple[Path, Path], tmp_path: Path, suffix: str, *, raw: bool
) -> None:
    """Whatever the clock, the file's name and the umask say."""
    first = made(bundle, tmp_path / f"first.{suffix}", keys[0], raw=raw)
    before = os.umask(0o077)
    try:
        second = made(bundle, tmp_path / f"second.{suffix}", keys[0], raw=raw)
    finally:
        os.umask(before)
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_release_is_good_evidence(
    bundle: Path, keys: tuple[Path, Path], tmp_path: Path, suffix: str
) -> None:
    release = made(bundle, tmp_path / f"r.{suffix}", keys[0])
    with open_release(release, key=keys[1].read_bytes()) as opened:
        assert (opened.findings, opened.signature) == ((), "signed by the key given")
        found = assess(opened.evidence, Library(), level="raw", anchor=None).found
    assert found == ()


def test_a_private_layer_keeps_its_captures_at_home(keys: tuple[Path, Path], tmp_path: Path) -> None:
    """They tell of weights and prompt; what is released without them names both by digest only."""
    parts = forge.good_parts()
    text = parts.plan.decode()
    start, end = text.index("fixture:\n"), text.index("selected_from:")
    section = (
        f'fixture:\n  recipe: imported-awq/1\n  weights: "{"0" * 64}"\n  inputs: "{"1" * 64}"\n'
        "  private: true\n  tokens: 12\n  experts: 72\n  top_k: 4\n  hidden: 512\n  intermediate: 192\n"
        "  group_size: 64\n  dtype: float16\n\n"
    )
    parts.plan = (text[:start] + section + text[end:]).encode()
    bundle = forge.write(forge.seal(parts), tmp_path / "bundle")
    with pytest.raises(PackageError) as caught:
        made(bundle, tmp_path / "raw.zip", keys[0])
    assert str(caught.value) == (
        "plan.yaml: fixture.private: true, so captures stay at home; package it with --without-raw"
    )
    assert not (tmp_path / "raw.zip").exists()
    names = entries(made(bundle, tmp_path / "r.zip", keys[0], raw=False)).keys()
    assert [name for name in names if "/objects/" in name] == []


def test_without_raw_records_are_good_and_raw_is_missing(signed: Path) -> None:
    with open_release(signed, key=None) as opened:
        assert assess(opened.evidence, Library(), level="records", anchor=None).found == ()
        found = assess(opened.evidence, Library(), level="raw", anchor=None).found
    assert [item.code for item in found] == ["V809"]


def test_the_bag_is_valid_by_bagit(signed: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(signed) as archive:
        archive.extractall(tmp_path)
    (folder,) = tmp_path.iterdir()
    assert bagit.Bag(str(folder)).validate()


def test_the_envelope_verifies_by_securesystemslib(signed: Path, keys: tuple[Path, Path]) -> None:
    """Signed there and checked by code of ours elsewhere; here the other way round, on the same statement."""
    (data,) = [data for name, data in entries(signed).items() if name.endswith("statement.dsse.json")]
    envelope = Envelope.from_dict(json.loads(data))
    public = serialization.load_pem_public_key(keys[1].read_bytes())
    envelope.verify([SSlibKey.from_crypto(public)], 1)
    statement = json.loads(envelope.payload)
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["predicate"]["evidence"] == "simulated"
    digests = {item["name"]: item["digest"]["sha256"] for item in statement["subject"]}
    payload = {name.partition("/data/")[2]: data for name, data in entries(signed).items()}
    assert digests == {name: hashlib.sha256(payload[name]).hexdigest() for name in digests}


@pytest.mark.slow
def test_the_crate_is_valid_by_the_public_validator(
    signed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RO-Crate 1.1 and Process Run Crate, all that they require; the context comes from rocrate's own copy."""
    pytest.importorskip("rocrate_validator", reason="the public validator is not installed (extra `crate`)")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of third parties, while they load and work
        issues = _issues(signed, tmp_path, monkeypatch)
    assert issues == []


def _issues(signed: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    import requests  # noqa: PLC0415 - come with the validator
    import rocrate  # noqa: PLC0415
    from rocrate_validator import models, services  # noqa: PLC0415

    context = (Path(rocrate.__file__).parent / "data" / "ro-crate.jsonld").read_bytes()

    def send(_self: Any, request: Any, **_options: Any) -> Any:
        """No network: the one document that is asked for."""
        response = requests.Response()
        response.status_code, response.url, response.request = 200, request.url, request
        response.headers["Content-Type"] = "application/ld+json"
        response.raw = io.BytesIO(context)
        assert request.url.startswith("https://w3id.org/ro/crate/")
        return response

    monkeypatch.setattr(requests.adapters.HTTPAdapter, "send", send)
    with zipfile.ZipFile(signed) as archive:
        archive.extractall(folder)
    (crate,) = folder.glob("*/data")
    settings = services.ValidationSettings(
        rocrate_uri=str(crate),
        profile_identifier="process-run-crate",
        requirement_severity=models.Severity.REQUIRED,
        abort_on_first=False,
        no_cache=True,
    )
    return [str(issue.message) for issue in services.validate(settings).get_issues()]


Bend = Callable[[Files, str], None]


def extra(files: Files, top: str) -> None:
    files[f"{top}data/more.txt"] = b"more"


def outside(files: Files, top: str) -> None:
    files["beside.txt"] = top.encode()


def climbs(files: Files, top: str) -> None:
    files[f"{top}../../climb"] = b""


def bag(files: Files, top: str) -> None:
    files[f"{top}bag-info.txt"] += b"Note: a line more\n"


def subject(files: Files, top: str) -> None:
    """The plan is another, the bag redone: the statement is about the old one."""
    files[f"{top}data/bundle/plan.yaml"] += b"# a line more\n"
    rebag(files, top)


def unsigned(files: Files, top: str) -> None:
    """The statement without its signature."""
    envelope = json.loads(files.pop(f"{top}data/statement.dsse.json"))
    files[f"{top}data/statement.json"] = base64.b64decode(envelope["payload"])
    rebag(files, top)


def predicate(files: Files, top: str) -> None:
    """Simulated evidence that is stated to be a GPU's; the signature stays and is none of this."""
    envelope = json.loads(files[f"{top}data/statement.dsse.json"])
    statement = json.loads(base64.b64decode(envelope["payload"]))
    statement["predicate"]["evidence"] = "gpu"
    envelope["payload"] = base64.b64encode(canonical(statement)).decode()
    files[f"{top}data/statement.dsse.json"] = canonical(envelope)
    rebag(files, top)


def no_statement(files: Files, top: str) -> None:
    del files[f"{top}data/statement.dsse.json"]
    rebag(files, top)


def rebag(files: Files, top: str) -> None:
    """Make the bag fit again, as a forger would."""

    def listed(names: list[str]) -> bytes:
        lines = [f"{hashlib.sha256(files[top + name]).hexdigest()} {name}\n" for name in sorted(names)]
        return "".join(lines).encode()

    below = [name.removeprefix(top) for name in files]
    files[f"{top}manifest-sha256.txt"] = listed([name for name in below if name.startswith("data/")])
    tags = ["bag-info.txt", "bagit.txt", "manifest-sha256.txt"]
    files[f"{top}tagmanifest-sha256.txt"] = listed(tags)


@pytest.mark.parametrize(
    ("bend", "expected"),
    [
        (extra, [("V120", "data/more.txt"), ("V121", "manifest-sha256.txt")]),
        (outside, [("V120", "beside.txt")]),
        (climbs, [("V120", "")]),
        (bag, [("V121", "tagmanifest-sha256.txt")]),
        (subject, [("V122", "data/statement.dsse.json")]),
        (unsigned, [("V123", "data/statement.dsse.json")]),
        (predicate, [("V123", "data/statement.dsse.json"), ("V122", "data/statement.dsse.json")]),
        (no_statement, [("V123", "data/statement.dsse.json"), ("V122", "data/statement.json")]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_forgeries_are_named(
    signed: Path, keys: tuple[Path, Path], tmp_path: Path, bend: Bend, expected: list[tuple[str, str]]
) -> None:
    files = entries(signed)
    bend(files, f"{next(iter(files)).partition('/')[0]}/")
    names = found(zipped(files, tmp_path / "bent.zip"), keys[1])
    assert [(code, key) for code, key, _ in names] == expected


def test_a_signature_by_another_key_is_refused(signed: Path, tmp_path: Path) -> None:
    _, other = new_pair(tmp_path / "other")
    assert found(signed, other) == [("V123", "data/statement.dsse.json", "none that it made")]


def test_without_a_key_it_is_said_and_no_finding(signed: Path) -> None:
    with open_release(signed, key=None) as opened:
        assert (opened.findings, opened.signature) == ((), "signed, and not checked: no --key was given")


def test_without_cryptography_a_key_cannot_be_used(
    signed: Path, keys: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.exceptions", None)
    assert found(signed, keys[1]) == [
        (
            "V124",
            "data/statement.dsse.json",
            "no library cryptography here; install the extra `sign`: in the project's folder: pip install -e '.[sign]'",
        )
    ]


@pytest.mark.parametrize("pem", [b"", b"-----BEGIN", "ec"], ids=["empty", "torn", "another-kind"])
def test_a_key_that_is_none_is_refused(signed: Path, pem: bytes | str) -> None:
    if isinstance(pem, str):
        pem = (
            generate_private_key(SECP256R1())
            .public_key()
            .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        )
    with pytest.raises(ValueError, match=r"^expected (an Ed25519 public key|a public key in PEM form), got "):
        found_by(signed, pem)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_an_archived_bundle_is_evidence_too(bundle: Path, tmp_path: Path, suffix: str) -> None:
    archive = tmp_path / f"plain.{suffix}"
    writer(archive)(bundle, "some-name", archive)
    with open_release(archive, key=None) as opened:
        assert (opened.findings, opened.signature) == ((), "unsigned")
        assert assess(opened.evidence, Library(), level="records", anchor=None).found == ()


def tar_of(*members: tuple[str, bytes, bytes], pax: dict[str, str] | None = None) -> bytes:
    """A tar.gz of (name, type, bytes); extended headers on the first."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz", format=tarfile.PAX_FORMAT) as archive:
        for name, kind, content in members:
            entry = tarfile.TarInfo(name)
            entry.type, entry.size, entry.linkname = kind, len(content), "target" if kind in b"12" else ""
            entry.pax_headers, pax = pax or {}, None
            archive.addfile(entry, io.BytesIO(content))
    return data.getvalue()


@pytest.mark.parametrize(
    ("data", "odd", "faults"),
    [
        (tar_of(("a/b", b"2", b"")), {"a/b": "link"}, []),
        (tar_of(("a/b", b"1", b"")), {"a/b": "link"}, []),
        (tar_of(("a/b", b"6", b"")), {"a/b": "special"}, []),
        (tar_of(("/etc/x", b"0", b"")), {}, ["expected names that stay below one folder, got '/etc/x'"]),
        (tar_of(("a/../x", b"0", b"")), {}, ["expected names that stay below one folder, got 'a/../x'"]),
        (tar_of(("a", b"0", b"1"), ("a", b"0", b"2")), {}, ["expected each name once, got 'a' twice"]),
        (
            tar_of(("a", b"0", b""), pax={"path": "b"}),
            {},
            ["expected extended headers for times and owners alone, got names or sizes"],
        ),
        (
            tar_of(("a", b"0", b"")) + b"tail",
            {},
            ["expected nothing after the end of the tar, got more bytes"],
        ),
        (
            tar_of(("a", b"0", b"1" * 4096))[:-20],
            {},
            [
                "expected an archive that can be read to its end, got Compressed file ended before the end-of-stream marker was reached"
            ],
        ),
        (b"PK", {}, ["expected the directory at the end of a zip, got none"]),
        (b"plain text", {}, ["expected a .zip or .tar.gz, got neither"]),
        (b"", {}, ["expected a .zip or .tar.gz, got neither"]),
    ],
    ids=[
        "symlink",
        "hard-link",
        "fifo",
        "root",
        "climb",
        "twice",
        "pax-path",
        "tail",
        "torn",
        "pk",
        "text",
        "empty",
    ],
)
def test_hostile_archives(tmp_path: Path, data: bytes, odd: dict[str, str], faults: list[str]) -> None:
    path = tmp_path / "archive"
    path.write_bytes(data)
    with unpack(path) as unpacked:
        assert (unpacked.odd, [str(fault) for fault in unpacked.faults]) == (odd, faults)
    assert list(tmp_path.iterdir()) == [path]


def test_a_bomb_stops_at_its_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("verifier.archive.SLACK", 2**20)
    bomb = tmp_path / "bomb.zip"
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/zeros", bytes(2**25))
    with unpack(bomb) as unpacked:
        (fault,) = unpacked.faults
    assert str(fault) == "expected at most 1048576 bytes and 200 times the archive, got more"


def test_a_link_in_a_zip_is_one(tmp_path: Path) -> None:
    path = tmp_path / "link.zip"
    entry = zipfile.ZipInfo("a/link")
    entry.create_system, entry.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(entry, "/etc/passwd")
    with unpack(path) as unpacked:
        assert unpacked.odd == {"a/link": "link"}


def test_what_no_release_can_be_made_of(bundle: Path, keys: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(
        PackageError, match=r"^--out: expected a name that ends in \.zip or \.tar\.gz, got r\.rar$"
    ):
        made(bundle, tmp_path / "r.rar")
    with pytest.raises(
        PackageError,
        match=r"expected a finished bundle with a bundle\.json, found none; finish it with `mechanism run PLAN --out ",
    ):
        made(tmp_path, tmp_path / "r.zip")
    nothing = tmp_path / "nothing"
    with pytest.raises(PackageError) as none:
        made(nothing, tmp_path / "r.zip")
    assert str(none.value) == f"{nothing}: expected the folder of a bundle, got none; check the path"
    with pytest.raises(PackageError, match="expected an unencrypted private key in PEM form, got something"):
        read_private(keys[1])
    broken = tmp_path / "broken"
    files = forge.seal(forge.good_parts())
    forge.write({**files, "routing.json": files["routing.json"] + b" "}, broken)
    with pytest.raises(
        PackageError, match=r"^routing\.json: expected sha256 [0-9a-f]{64}, which files\.jsonl has"
    ):
        made(broken, tmp_path / "r.zip")
    assert not (tmp_path / "r.zip").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["broken"]
    (tmp_path / "r.zip").write_bytes(b"")
    with pytest.raises(PackageError, match="expected a file that does not exist, got one that does"):
        made(bundle, tmp_path / "r.zip")


def without(files: Files, start: str) -> Files:
    return {path: data for path, data in files.items() if not path.startswith(start)}


RECORD = "records/qualification.native.H0.1.json"


@pytest.mark.parametrize(
    ("bend", "message"),
    [
        (
            lambda files: without(files, "plan.lock"),
            r"files\.jsonl: expected plan\.lock, which every bundle has, found none; `verifier check` says .*",
        ),
        (
            lambda files: without(files, "alignments/"),
            r"files\.jsonl: expected alignments/[0-9a-f]{64}\.json, which records/.*\.json names, found none; `verifier check` .*",
        ),
        (
            lambda files: {**files, RECORD: b""},
            rf"{RECORD}: expected one JSON value, got something else: .*; `verifier check` says what is wrong",
        ),
    ],
    ids=["no lock", "no alignment", "no record"],
)
def test_what_a_fitting_manifest_lacks(tmp_path: Path, bend: Callable[[Files], Files], message: str) -> None:
    """Files that fit the manifest, and make no bundle: one message, nothing written."""
    parts = forge.good_parts()
    broken = forge.write(forge.reseal(bend(forge.seal(parts)), parts), tmp_path / "broken")
    with pytest.raises(PackageError) as caught:
        made(broken, tmp_path / "r.zip")
    assert re.fullmatch(message, str(caught.value))
    assert [path.name for path in tmp_path.iterdir()] == ["broken"]


def test_the_commands(bundle: Path, tmp_path: Path) -> None:
    """A pair, then a release by it; the private key is for its owner alone."""
    done = _mechanism("key", "new", "--out", str(tmp_path / "mine"))
    assert done.returncode == 0, done.stderr
    assert stat.S_IMODE((tmp_path / "mine.pem").stat().st_mode) == 0o600
    out = tmp_path / "release.zip"
    done = _mechanism("package", str(bundle), "--out", str(out), "--key", str(tmp_path / "mine.pem"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == f"{out}: SIMULATED evidence of quick, raw captures included, signed"
    assert found(out, tmp_path / "mine.pub.pem") == []
    assert _mechanism("key", "new", "--out", str(tmp_path / "mine")).returncode == 4


def _mechanism(*arguments: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "mechanism", *arguments]
    return subprocess.run(argv, check=False, capture_output=True, text=True)
