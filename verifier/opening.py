"""What is given to be verified, opened: a folder, a .zip, a .tar.gz; nothing of it is followed or run."""

import os
import stat
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
    """A bundle's evidence, what is wrong with the archive around it, and who signed that, in words.

    `place`: the folder, if it lies in one, as the caller named it.
    """

    evidence: Evidence
    findings: tuple[Found, ...]
    signature: str
    place: str | None = None


@contextmanager
def opened(path: Path, *, key: bytes | None) -> Iterator[Given]:
    """Open a folder or an archive for as long as the context lasts. `key`: PEM of who must have signed it.

    Raises NothingHereError if there is no bundle, ValueError if `key` is no Ed25519 public key.
    """
    if (instead := _neither(path)) is not None:
        raise NothingHereError(instead)
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
    yield Given(
        evidence=evidence,
        findings=() if key is None else (unsigned,),
        signature="unsigned",
        place=plain(str(path)),
    )


def _neither(path: Path) -> str | None:
    """What lies at a path where no folder and no archive does, in words; None if one of them does."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return "a link that leads nowhere" if path.is_symlink() else "nothing at this path"
    except NotADirectoryError:
        return "nothing at this path: a part of it is no folder"
    except (OSError, ValueError) as fault:
        return plain(f"a path that cannot be looked at: {getattr(fault, 'strerror', None) or fault}")
    return None if stat.S_ISDIR(status.st_mode) or _is_archive(path) else _no_archive(status)


def _no_archive(status: os.stat_result) -> str:
    if not stat.S_ISREG(status.st_mode):
        return "a FIFO, a device or a socket"
    if status.st_size == 0:
        return "an empty file"
    return f"a file of {status.st_size} bytes that is neither a .zip nor a .tar.gz"


def _is_archive(path: Path) -> bool:
    """By its first bytes, as the archive reader tells them apart. Only a regular file is opened."""
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return file.read(2) in {b"\x1f\x8b", b"PK"}
    except (OSError, ValueError):
        return False
