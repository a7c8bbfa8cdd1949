"""A release file as evidence: the bundle in it, and what is wrong with the bag around it.

A zip or tar.gz of a mere bundle folder is evidence too; it has no signature.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ledger import release
from ledger.bundle import SUMMARY
from verifier.archive import Unpacked, unpack
from verifier.evidence import EvidenceError
from verifier.found import Found, several
from verifier.layout import MAX_BYTES
from verifier.stated import digest_or_none, released, signature, statement
from verifier.unpacked import UnpackedEvidence


@dataclass(frozen=True, kw_only=True, slots=True)
class Opened:
    """A file opened: the bundle's evidence, what is wrong around it, and what is said of its signature."""

    evidence: UnpackedEvidence
    findings: tuple[Found, ...]
    signature: str


@contextmanager
def open_release(path: Path, *, key: bytes | None) -> Iterator[Opened]:
    """Open a release or an archived bundle. `key`: PEM bytes of the public key that must have signed it.

    Raises OSError if the file cannot be read, ValueError if the key is none (`verifier.signature`).
    """
    with unpack(path) as unpacked:
        yield _opened(unpacked, key)


def _opened(unpacked: Unpacked, key: bytes | None) -> Opened:
    found = [released("V120", ".", fault.expected, fault.got) for fault in unpacked.faults]
    top = _top(unpacked)
    beside = sorted(name for name in (*unpacked.members, *unpacked.odd) if not name.startswith(top))
    found += [released("V120", name, "nothing beside the one folder", "an entry") for name in beside]
    if f"{top}bagit.txt" not in unpacked.members:
        if key is not None:
            found.append(released("V123", ".", "a signed release", "an archive without a statement"))
        evidence = UnpackedEvidence(unpacked, top)
        return Opened(evidence=evidence, findings=tuple(found), signature="unsigned")
    outer = UnpackedEvidence(unpacked, top)
    found += [*_places(outer), *_bag(outer)]
    wrong, says = signature(outer, key)
    found += [*wrong, *statement(outer)]
    evidence = UnpackedEvidence(unpacked, top + release.BUNDLE)
    return Opened(evidence=evidence, findings=tuple(found), signature=says)


def _top(unpacked: Unpacked) -> str:
    """The one folder that everything lies in, with its slash; empty if the bundle lies there without one."""
    names = {*unpacked.members, *unpacked.odd}
    tops = {name.partition("/")[0] for name in names if "/" in name}
    return f"{tops.pop()}/" if len(tops) == 1 and SUMMARY not in names else ""


def _places(outer: UnpackedEvidence) -> Iterator[Found]:
    """V120: beside the bundle a release holds its own few files and no other."""
    own = {*release.BAG, release.CRATE, release.STATEMENT, release.ENVELOPE}
    for path, entry in outer.entries.items():
        if not path.startswith(release.BUNDLE) and (path not in own or entry.kind != "file"):
            yield released("V120", path, "a place that a release has", f"a {entry.kind}")
    both = release.STATEMENT in outer.entries and release.ENVELOPE in outer.entries
    if both:
        yield released("V120", release.STATEMENT, "one statement, in an envelope or without", "both")


def _bag(outer: UnpackedEvidence) -> Iterator[Found]:
    """V121: the bag's manifests are what RFC 8493 says they are, of exactly the files that are there."""
    payload = {path for path in outer.entries if path.startswith(release.PAYLOAD)}
    tags = {name for name in release.BAG if name != "tagmanifest-sha256.txt"}
    for name, covered in (("manifest-sha256.txt", payload), ("tagmanifest-sha256.txt", tags)):
        listed = dict(_manifest(outer, name))
        there = {path: digest_or_none(outer, path) for path in covered}
        if wrong := sorted(path for path in {*listed, *there} if listed.get(path) != there.get(path)):
            yield released(
                "V121", name, "the sha256 of every file that it covers", f"others: {several(wrong)}"
            )


def _manifest(outer: UnpackedEvidence, name: str) -> Iterator[tuple[str, str]]:
    try:
        text = outer.read(name, MAX_BYTES["document"]).decode()
    except (EvidenceError, UnicodeDecodeError):
        return
    for line in text.splitlines():
        digest, _, path = line.partition(" ")
        yield path.strip(), digest
