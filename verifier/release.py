"""A release file as evidence: the bundle in it, and what is wrong with bag, statement and signature.

A zip or tar.gz of a mere bundle folder is evidence too; it has no signature.
"""

import base64
import binascii
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from pydantic import BaseModel

from ledger import release
from ledger.bundle import SUMMARY, BundleFile
from ledger.canonical import CanonicalError, canonical, parse_canonical
from ledger.fault import FaultsError
from ledger.model import read_json
from verifier.archive import Member, Unpacked, unpack
from verifier.evidence import Entry, EvidenceError, TooLargeError
from verifier.found import Found, several, show
from verifier.layout import MAX_BYTES

ModelT = TypeVar("ModelT", bound=BaseModel)


class UnpackedEvidence:
    """The bundle in an archive, below one folder of it (`verifier.evidence.Evidence`)."""

    def __init__(self, unpacked: Unpacked, prefix: str) -> None:
        self._unpacked = unpacked
        below = sorted(name for name in (*unpacked.members, *unpacked.odd) if name.startswith(prefix))
        entries: dict[str, Entry] = {}
        for name in below:
            member = unpacked.members.get(name)
            entries[name.removeprefix(prefix)] = (
                Entry(kind="file", size=member.size)
                if member is not None
                else Entry(kind=unpacked.odd[name], size=0)
            )
        self._entries = MappingProxyType(entries)
        self._prefix = prefix

    @property
    def entries(self) -> Mapping[str, Entry]:
        """Every name of the bundle, sorted."""
        return self._entries

    @property
    def overfull(self) -> bool:
        """Never: an archive with too many entries is a finding of its own."""
        return False

    def digest(self, path: str) -> str:
        """The sha256 of a file, taken as it was unpacked. Raises EvidenceError."""
        return self._member(path).sha256

    def chunks(self, path: str) -> Iterator[bytes]:
        """A file's bytes, piece by piece. Raises EvidenceError."""
        yield from self._unpacked.chunks(self._member(path))

    def read(self, path: str, limit: int) -> bytes:
        """A file's bytes. Raises EvidenceError, also when there are more than `limit`."""
        member = self._member(path)
        if member.size > limit:
            raise TooLargeError(f"more than {limit} bytes")
        return b"".join(self._unpacked.chunks(member))

    def _member(self, path: str) -> Member:
        try:
            return self._unpacked.members[self._prefix + path]
        except KeyError:
            raise EvidenceError("No such file or directory") from None


@dataclass(frozen=True, kw_only=True, slots=True)
class Opened:
    """A file opened: the bundle's evidence, what is wrong around it, and what is said of its signature."""

    evidence: UnpackedEvidence
    findings: tuple[Found, ...]
    signature: str


def open_release(path: Path, *, key: bytes | None) -> Opened:
    """Open a release or an archived bundle. `key`: PEM bytes of the public key that must have signed it.

    Raises OSError if the file cannot be read, ValueError if the key is none (`verifier.signature`).
    """
    unpacked = unpack(path)
    found = [_found("V120", ".", "an archive of one folder with plain files", got) for got in unpacked.faults]
    top = _top(unpacked)
    if f"{top}bagit.txt" not in unpacked.members:
        if key is not None:
            found.append(_found("V123", ".", "a signed release", "an archive without a statement"))
        prefix = top if f"{top}{SUMMARY}" in unpacked.members else ""
        return Opened(
            evidence=UnpackedEvidence(unpacked, prefix), findings=tuple(found), signature="unsigned"
        )
    evidence = UnpackedEvidence(unpacked, top + release.BUNDLE)
    outer = UnpackedEvidence(unpacked, top)
    found += _places(outer)
    found += _bag(outer)
    stated, signature = _signature(outer, key)
    found += [*stated, *_statement(outer)]
    return Opened(evidence=evidence, findings=tuple(found), signature=signature)


def _top(unpacked: Unpacked) -> str:
    """The one folder that everything lies in, with its slash; empty if there is none."""
    tops = {name.partition("/")[0] for name in (*unpacked.members, *unpacked.odd) if "/" in name}
    return f"{tops.pop()}/" if len(tops) == 1 else ""


def _found(code: str, file: str, expected: str, got: str) -> Found:
    """A finding about the release; `.` concerns everything in it."""
    key = "" if file == "." else file
    return Found(code=code, file=".", key=key, expected=expected, got=show(got))


def _places(outer: UnpackedEvidence) -> Iterator[Found]:
    """V120: beside the bundle a release holds its own few files and no other."""
    own = {*release.BAG, release.CRATE, release.STATEMENT, release.ENVELOPE}
    for path, entry in outer.entries.items():
        if not path.startswith(release.BUNDLE) and (path not in own or entry.kind != "file"):
            yield _found("V120", path, "a place that a release has", f"a {entry.kind}")
    both = release.STATEMENT in outer.entries and release.ENVELOPE in outer.entries
    if both:
        yield _found("V120", release.STATEMENT, "one statement, in an envelope or without", "both")


def _bag(outer: UnpackedEvidence) -> Iterator[Found]:
    """V121: the bag's manifests are what RFC 8493 says they are, of exactly the files that are there."""
    payload = {path for path in outer.entries if path.startswith(release.PAYLOAD)}
    tags = {name for name in release.BAG if name != "tagmanifest-sha256.txt"}
    for name, covered in (("manifest-sha256.txt", payload), ("tagmanifest-sha256.txt", tags)):
        listed = dict(_manifest(outer, name))
        there = {path: _digest(outer, path) for path in covered}
        if wrong := sorted(path for path in {*listed, *there} if listed.get(path) != there.get(path)):
            yield _found("V121", name, "the sha256 of every file that it covers", f"others: {several(wrong)}")


def _manifest(outer: UnpackedEvidence, name: str) -> Iterator[tuple[str, str]]:
    try:
        text = outer.read(name, MAX_BYTES["document"]).decode()
    except (EvidenceError, UnicodeDecodeError):
        return
    for line in text.splitlines():
        digest, _, path = line.partition("  ")
        yield path, digest


def _digest(outer: UnpackedEvidence, path: str) -> str:
    try:
        return outer.digest(path)
    except EvidenceError:
        return "no file"


def _signature(outer: UnpackedEvidence, key: bytes | None) -> tuple[list[Found], str]:
    """V123 and V124: with a key, the envelope must hold a good signature by it."""
    if release.ENVELOPE not in outer.entries:
        wrong = [_found("V123", release.ENVELOPE, "a signature by the key given", "an unsigned release")]
        return (wrong if key is not None else []), "unsigned"
    envelope, faults = _document(outer, release.ENVELOPE, release.Envelope)
    if envelope is None:
        return faults, "unreadable"
    if key is None:
        return [], f"signed by {len(envelope.signatures)}, not checked: no --key was given"
    from verifier.signature import NoCryptographyError, good  # noqa: PLC0415 - an extra, for this alone

    try:
        if good(envelope, key):
            return [], "signed by the key given"
    except NoCryptographyError as fault:
        return [
            _found("V124", release.ENVELOPE, "a signature that can be checked here", str(fault))
        ], "not checked"
    return [_found("V123", release.ENVELOPE, "a signature by the key given", "none that it made")], "bad"


def _statement(outer: UnpackedEvidence) -> Iterator[Found]:
    """V122: the statement is about this bundle: its subjects by digest, its predicate by bundle.json."""
    statement, where, faults = _read_statement(outer)
    yield from faults
    if statement is None:
        return
    stated = {item.name: item.digest.sha256 for item in statement.subject}
    there = {name: _digest(outer, release.PAYLOAD + name) for name in release.SUBJECTS}
    if [item.name for item in statement.subject] != list(release.SUBJECTS) or stated != there:
        wrong = sorted(name for name in {*stated, *there} if stated.get(name) != there.get(name))
        yield _found("V122", where, "the subjects of a release, by their sha256", f"others: {several(wrong)}")
    summary, _ = _document(outer, release.BUNDLE + SUMMARY, BundleFile)
    if summary is None:
        return  # a finding on the bundle itself
    names = ("name", "engine", "evidence", "plan", "lock", "ledger", "raw")
    expected = {name: getattr(summary, name) for name in names}
    expected["software"] = _digest(outer, f"{release.BUNDLE}build.json")
    if (got := statement.predicate.model_dump(mode="json")) != expected:
        keys = several(sorted(key for key in expected if got[key] != expected[key]))
        yield _found("V122", where, f"a predicate as {SUMMARY} has it", f"another {keys}")


def _read_statement(outer: UnpackedEvidence) -> tuple[release.Statement | None, str, list[Found]]:
    if release.ENVELOPE not in outer.entries:
        return (
            *_document(outer, release.STATEMENT, release.Statement)[:1],
            release.STATEMENT,
            _document(outer, release.STATEMENT, release.Statement)[1],
        )
    envelope, _ = _document(outer, release.ENVELOPE, release.Envelope)
    if envelope is None:
        return None, release.ENVELOPE, []  # said already
    try:
        data = base64.b64decode(envelope.payload, validate=True)
    except binascii.Error as fault:
        return None, release.ENVELOPE, [_found("V122", release.ENVELOPE, "base64", str(fault))]
    statement, faults = _parsed(data, release.ENVELOPE, release.Statement)
    return statement, release.ENVELOPE, faults


def _document(outer: UnpackedEvidence, path: str, model: type[ModelT]) -> tuple[ModelT | None, list[Found]]:
    try:
        return _parsed(outer.read(path, MAX_BYTES["document"]), path, model)
    except EvidenceError as fault:
        return None, [_found("V122", path, "a document that every release has", str(fault))]


def _parsed(data: bytes, path: str, model: type[ModelT]) -> tuple[ModelT | None, list[Found]]:
    try:
        value: Any = parse_canonical(data)
        return read_json(model, value, name=path), []
    except (CanonicalError, FaultsError) as fault:
        return None, [_found("V122", path, "a canonical document of its schema", str(fault))]
