"""What is given to be verified, opened: a folder, a .zip, a .tar.gz; nothing of it is followed or run."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from verifier.evidence import Evidence, FolderEvidence
from verifier.found import Found, plain


class NothingHereError(Exception):
    """There is no bundle to verify; the message says what was found in its place."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Given:
    """A bundle's evidence, what is wrong with the archive around it, and who signed that, in words."""

    evidence: Evidence
    findings: tuple[Found, ...]
    signature: str


@contextmanager
def opened(path: Path, *, key: bytes | None) -> Iterator[Given]:
    """Open a folder or an archive for as long as the context lasts. `key`: PEM of who must have signed it.

    Raises NothingHereError if there is no bundle, ValueError if `key` is no Ed25519 public key.
    """
    if _is_archive(path):
        from verifier.release import open_release  # noqa: PLC0415 - a folder needs no archives

        with open_release(path, key=key) as release:
            if not (release.evidence.entries or release.findings):
                raise NothingHereError("an empty archive")
            yield Given(evidence=release.evidence, findings=release.findings, signature=release.signature)
        return
    try:
        evidence = FolderEvidence(path)
    except (OSError, ValueError) as fault:
        raise NothingHereError(
            plain(getattr(fault, "strerror", None) or f"{path} is not a folder")
        ) from fault
    if not evidence.entries:
        raise NothingHereError("an empty folder")
    unsigned = Found(
        code="V123", file=".", expected="a signed release", got="a folder, which bears no signature"
    )
    yield Given(evidence=evidence, findings=() if key is None else (unsigned,), signature="unsigned")


def _is_archive(path: Path) -> bool:
    """By its first bytes, as the archive reader tells them apart. Only a regular file is opened."""
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return file.read(2) in {b"\x1f\x8b", b"PK"}
    except (OSError, ValueError):
        return False
