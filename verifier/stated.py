"""What a release states of its bundle, and who signed that: V122, V123, V124."""

import base64
import binascii
from collections.abc import Iterator
from typing import TypeVar

from pydantic import BaseModel

from ledger import release
from ledger.bundle import SUMMARY, BundleFile
from ledger.canonical import CanonicalError, parse_canonical
from ledger.fault import FaultsError
from ledger.model import read_json
from verifier.evidence import EvidenceError
from verifier.found import Found, several, show
from verifier.layout import MAX_BYTES
from verifier.unpacked import UnpackedEvidence

ModelT = TypeVar("ModelT", bound=BaseModel)


def released(code: str, path: str, expected: str, got: str) -> Found:
    """A finding about a release: `path` in it, or `.`; it concerns everything that the release holds."""
    return Found(code=code, file=".", key="" if path == "." else path, expected=expected, got=show(got))


def digest_or_none(outer: UnpackedEvidence, path: str) -> str:
    """The sha256 of a file of a release, or words that no digest is."""
    try:
        return outer.digest(path)
    except EvidenceError:
        return "no file"


def signature(outer: UnpackedEvidence, key: bytes | None) -> tuple[list[Found], str]:
    """V123, V124: with a key, a good signature by it; and what is said of the signature, in words.

    Raises ValueError if `key` is no Ed25519 public key in PEM form.
    """
    path = release.ENVELOPE
    if path not in outer.entries:
        wrong = released("V123", path, "a signature by the key given", "an unsigned release")
        return ([] if key is None else [wrong]), "unsigned"
    envelope, _ = _document(outer, path, release.Envelope)
    if envelope is None:
        return [], "unreadable"  # V122
    if key is None:
        return [], "signed, and not checked: no --key was given"
    from verifier.signature import NoCryptographyError, good  # noqa: PLC0415 - needs an extra

    try:
        if good(envelope, key):
            return [], "signed by the key given"
    except NoCryptographyError as fault:
        wrong = released("V124", path, "a signature that can be checked here", str(fault))
        return [wrong], "signed, and not checked"
    return [
        released("V123", path, "a signature by the key given", "none that it made")
    ], "not by the key given"


def statement(outer: UnpackedEvidence) -> Iterator[Found]:
    """V122: the statement is about this bundle: its subjects by digest, its predicate by bundle.json."""
    where = release.ENVELOPE if release.ENVELOPE in outer.entries else release.STATEMENT
    stated, faults = _stated(outer, where)
    yield from faults
    if stated is None:
        return
    subjects = {item.name: item.digest.sha256 for item in stated.subject}
    there = {name: digest_or_none(outer, release.PAYLOAD + name) for name in release.SUBJECTS}
    if [item.name for item in stated.subject] != list(release.SUBJECTS) or subjects != there:
        wrong = sorted(name for name in {*subjects, *there} if subjects.get(name) != there.get(name))
        yield released(
            "V122", where, "the subjects of a release, by their sha256", f"others: {several(wrong)}"
        )
    summary, _ = _document(outer, release.BUNDLE + SUMMARY, BundleFile)
    if summary is None:
        return  # a finding on the bundle itself
    names = ("name", "engine", "evidence", "plan", "lock", "ledger", "raw")
    expected = {name: getattr(summary, name) for name in names}
    expected["software"] = digest_or_none(outer, f"{release.BUNDLE}build.json")
    if (got := stated.predicate.model_dump(mode="json")) != expected:
        keys = several(sorted(key for key in expected if got[key] != expected[key]))
        yield released("V122", where, f"a predicate as {SUMMARY} has it", f"another {keys}")


def _stated(outer: UnpackedEvidence, where: str) -> tuple[release.Statement | None, list[Found]]:
    if where == release.STATEMENT:
        return _document(outer, where, release.Statement)
    envelope, faults = _document(outer, where, release.Envelope)
    if envelope is None:
        return None, faults
    try:
        data = base64.b64decode(envelope.payload, validate=True)
    except binascii.Error as fault:
        return None, [released("V122", where, "base64", str(fault))]
    return _parsed(data, where, release.Statement)


def _document(outer: UnpackedEvidence, path: str, model: type[ModelT]) -> tuple[ModelT | None, list[Found]]:
    try:
        return _parsed(outer.read(path, MAX_BYTES["document"]), path, model)
    except EvidenceError as fault:
        return None, [released("V122", path, "a document that every release has", str(fault))]


def _parsed(data: bytes, path: str, model: type[ModelT]) -> tuple[ModelT | None, list[Found]]:
    try:
        return read_json(model, parse_canonical(data), name=path), []
    except (CanonicalError, FaultsError) as fault:
        return None, [released("V122", path, "a canonical document of its schema", str(fault))]
