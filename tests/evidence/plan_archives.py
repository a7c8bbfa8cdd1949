"""Archives and releases: what is around the bundle, and who signed it."""

import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ledger.canonical import sha256
from ledger.release import BAG, CRATE, ENVELOPE, STATEMENT
from mechanism.package.release import write_release
from tests.evidence.case import Case, Findings, Made, add
from tests.evidence.signing import MINE, OTHERS
from tests.verifier import forge
from tests.verifier.forge import Files, Parts

_OWN = (*BAG, CRATE, STATEMENT, ENVELOPE)


def _archive(name: str, why: str, form: str, *found: tuple[str, str], **archive: Any) -> None:
    """A case of the base bundle in an archive with something odd about it."""

    def make(parts: Parts) -> Made:
        return Made(files=forge.seal(parts), archive={"form": form, "top": "b/", **archive})

    add(Case(name=name, why=why, make=make, found=list(found)))


_TWICE = {"name": "b/plan.yaml", "kind": "file", "hex": b"another".hex()}
_archive("tar-climbs", "A member that steps out of wherever it is unpacked. No name becomes a path here.", "tar.gz",
         ("V120", "."), odd=[{"name": "../evil", "kind": "file", "hex": "00"}])  # fmt: skip
_archive(
    "tar-climbs-behind-a-dot",
    "The `./` that `tar -C DIR .` writes is taken off once. What is behind it is a name like any other.",
    "tar.gz",
    ("V120", "."),
    ("V120", "."),
    ("V120", "."),
    top="./",
    odd=[
        {"name": name, "kind": "file", "hex": "00"} for name in ("./../evil", "././plan.yaml", "./plan.yaml")
    ],
)
_archive("tar-absolute", "A member from the root.", "tar.gz", ("V120", "."),
         odd=[{"name": "/tmp/evil", "kind": "file", "hex": "00"}])  # fmt: skip
_archive("tar-symlink", "A link in an archive holds no bytes, and is not followed.", "tar.gz", ("V104", "b/x"[2:]),
         odd=[{"name": "b/x", "kind": "symlink", "target": "/etc/passwd"}])  # fmt: skip
_archive("tar-hardlink", "Nor is a hard link, which in an archive may name anything.", "tar.gz", ("V104", "x"),
         odd=[{"name": "b/x", "kind": "hardlink", "target": "/etc/passwd"}])  # fmt: skip
_archive("tar-device", "A device.", "tar.gz", ("V104", "x"), odd=[{"name": "b/x", "kind": "device"}])
_archive(
    "tar-member-twice",
    "Of two members with one name, readers take the first or the last.",
    "tar.gz",
    ("V120", "."),
    odd=[_TWICE],
)
_archive(
    "zip-climbs",
    "The same in a zip.",
    "zip",
    ("V120", "."),
    odd=[{"name": "../evil", "kind": "file", "hex": "00"}],
)
_archive(
    "zip-symlink",
    "A link in a zip.",
    "zip",
    ("V104", "x"),
    odd=[{"name": "b/x", "kind": "symlink", "target": "/etc/passwd"}],
)
_archive("zip-and-more", "Bytes after a zip are in no entry: one reader skips them, another finds a zip of its own in them.",
         "zip", ("V120", "."), after=b"more".hex())  # fmt: skip
_archive("more-and-zip", "Likewise bytes before it, here those that a zip starts with.", "zip", ("V120", "."),
         before=b"PK\3\4 more".hex())  # fmt: skip
_archive("tar-gz-and-more", "And bytes after a tar.gz.", "tar.gz", ("V120", "."), after=b"more".hex())
_archive(
    "zip-beside",
    "A file beside the one folder.",
    "zip",
    ("V120", ".:more"),
    odd=[{"name": "more", "kind": "file", "hex": "00"}],
)


def _release(
    name: str,
    why: str,
    *found: tuple[str, str],
    signer: bytes | None = MINE,
    key: bool = True,
    bend: Callable[[Files], None] | None = None,
) -> None:
    """A case of a release; what is bent is outside its bundle."""

    def make(parts: Parts) -> Made:
        files = forge.seal(parts)
        own = _packed(files, signer)
        if bend is not None:
            bend(own)
        archive = {"form": "zip", "top": "release/", "under": "data/bundle/", "beside": sorted(own)}
        return Made(files={**files, **own}, archive=archive)

    listed: Findings = list(found)
    add(Case(name=name, why=why, make=make, found=listed, key=key))


def _packed(files: Files, signer: bytes | None) -> Files:
    """A release's own files, made as anybody makes them."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        forge.write(files, folder / "bundle")
        (folder / "key.pem").write_bytes(signer or b"")
        key = folder / "key.pem" if signer else None
        write_release(folder / "bundle", folder / "r.zip", key=key, raw=True, published="2026-01-31")
        with zipfile.ZipFile(folder / "r.zip") as archive:
            named = {entry.partition("/")[2]: archive.read(entry) for entry in archive.namelist()}
    return {path: data for path, data in named.items() if path in _OWN}


def _another_digest(own: Files) -> None:
    own["manifest-sha256.txt"] = own["manifest-sha256.txt"].replace(b"0", b"1", 1)


def _another_title(own: Files) -> None:
    own[CRATE] = own[CRATE].replace(b"2026-01-31", b"2027-01-31")


def _another_engine(own: Files) -> None:
    """The statement says another kind of evidence, and the bag is redone around it."""
    old = own[STATEMENT]
    own[STATEMENT] = old.replace(b'"simulated"', b'"gpu"', 1)
    _rebag(own, "manifest-sha256.txt", {old: own[STATEMENT]})


def _rebag(own: Files, name: str, changed: dict[bytes, bytes]) -> None:
    before = own[name]
    for old, new in changed.items():
        own[name] = own[name].replace(sha256(old).encode(), sha256(new).encode())
    tags = "tagmanifest-sha256.txt"
    own[tags] = own[tags].replace(sha256(before).encode(), sha256(own[name]).encode())


_release("release-signed", "A release signed by the key that the caller gives.")
_release("release-unsigned", "An unsigned release, and no key asked for.", signer=None, key=False)
_release(
    "release-without-a-signature",
    "A key is given, and the release is not signed.",
    ("V123", f".:{ENVELOPE}"),
    signer=None,
)
_release("release-signed-by-another", "Signed, by somebody else.", ("V123", f".:{ENVELOPE}"), signer=OTHERS)
_release(
    "release-bag-lists-another-digest",
    "The bag's manifest is not that of its files; its own digest in the tag manifest is then another too.",
    ("V121", ".:manifest-sha256.txt"),
    ("V121", ".:tagmanifest-sha256.txt"),
    bend=_another_digest,
)
_release(
    "release-crate-changed",
    "The description was changed after the signature: the statement names its digest, the bag lists it.",
    ("V121", ".:manifest-sha256.txt"),
    ("V122", f".:{ENVELOPE}"),
    bend=_another_title,
)
_release(
    "release-states-another-kind",
    "An unsigned statement that calls simulated evidence a GPU's, in a bag that fits.",
    ("V122", f".:{STATEMENT}"),
    signer=None,
    key=False,
    bend=_another_engine,
)
