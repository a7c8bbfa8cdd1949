"""Read access to a bundle by relative path: a folder on disk, or one with changes laid over it in memory.

Nothing is followed: a link, a FIFO or a device is an entry of its own kind and is never opened. Digests
are kept, so that a bundle mutated in memory costs the files that the mutation touched and no more.
"""

import hashlib
import io
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from verifier.layout import limit_of
from verifier.store.disk import Disk
from verifier.store.listing import NO_FOLLOW, Digests, Entry, Overlaid, listed
from verifier.store.names import Names

CHUNK = 2**20
_BATCH = 256  # lines written at a time


class EvidenceError(Exception):
    """A file of the bundle cannot be read; the message says why."""


class TooLargeError(EvidenceError):
    """A file or a line is larger than a verifier reads."""


class Evidence(Protocol):
    """A bundle, read only. Paths are relative, with forward slashes."""

    @property
    def entries(self) -> Mapping[str, Entry]:
        """Everything in the bundle but the three folders themselves."""

    @property
    def overfull(self) -> bool:
        """Whether there was more than a verifier lists."""

    def digest(self, path: str) -> str:
        """The sha256 of a file. Raises EvidenceError."""

    def chunks(self, path: str) -> Iterator[bytes]:
        """A file's bytes, piece by piece. Raises EvidenceError."""

    def read(self, path: str, limit: int) -> bytes:
        """A file's bytes. Raises EvidenceError, also when there are more than `limit`."""


class FolderEvidence:
    """A bundle in a folder. Raises FileNotFoundError or NotADirectoryError if there is none."""

    def __init__(self, root: Path) -> None:
        if not root.is_dir():
            raise NotADirectoryError(20, "not a folder, or none at all", str(root))
        self._root = root
        self._digests: dict[str, str] = {}
        entries, self._overfull = listed(root)
        self._entries = MappingProxyType(entries) if isinstance(entries, dict) else entries
        self._many = Digests(entries) if isinstance(entries, Names) else None

    @property
    def entries(self) -> Mapping[str, Entry]:
        """Every name found when the bundle was opened, sorted."""
        return self._entries

    @property
    def overfull(self) -> bool:
        """Whether there was more than is listed."""
        return self._overfull

    def digest(self, path: str) -> str:
        """The sha256 of a file, computed once. Raises EvidenceError."""
        kept = self._digests.get(path) if self._many is None else self._many.get(path)
        if kept is not None:
            return kept
        state = hashlib.sha256()
        for chunk in self.chunks(path):
            state.update(chunk)
        return self._kept(path, state.hexdigest())

    def _kept(self, path: str, digest: str) -> str:
        if self._many is None:
            self._digests[path] = digest
        else:
            self._many.keep(path, digest)
        return digest

    def chunks(self, path: str) -> Iterator[bytes]:
        """A file's bytes, piece by piece, without following any link. Raises EvidenceError.

        That is also what happens for a file beyond its limit, so that nothing can read more than that.
        """
        try:
            with os.fdopen(self._open(path), "rb", buffering=0) as file:
                status, limit, size = os.fstat(file.fileno()), limit_of(path), 0
                if not stat.S_ISREG(status.st_mode):
                    raise EvidenceError("it is no longer a regular file")
                if status.st_size > limit:  # not one byte of it: a sparse terabyte costs nothing to make
                    raise TooLargeError(f"{status.st_size} bytes")
                while chunk := file.read(CHUNK):
                    size += len(chunk)
                    if size > limit:
                        raise TooLargeError(f"more than {limit} bytes")
                    yield chunk
        except OSError as fault:
            raise EvidenceError(f"{fault.strerror}") from fault

    def read(self, path: str, limit: int) -> bytes:
        """A file's bytes; its digest is kept. Raises EvidenceError, also when there are more than `limit`."""
        data = _join(self.chunks(path), limit)
        self._kept(path, hashlib.sha256(data).hexdigest())
        return data

    def _open(self, path: str) -> int:
        """A descriptor, every step of the way opened without following links."""
        here = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            *folders, name = path.split("/")
            for folder in folders:
                inner = os.open(folder, NO_FOLLOW | os.O_DIRECTORY, dir_fd=here)
                os.close(here)
                here = inner
            return os.open(name, NO_FOLLOW, dir_fd=here)
        except ValueError as fault:  # a NUL in a name
            raise EvidenceError(f"{fault}") from fault
        finally:
            os.close(here)


class Written:
    """A file made of lines; on disk once it is large, so that it costs no memory. Raises NoRoomError."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        state, rest = hashlib.sha256(), iter(pieces)
        self._few = io.BytesIO()
        self._disk: Disk | None = None
        self.size = 0
        while batch := b"".join(islice(rest, _BATCH)):
            if self._disk is None and self.size > CHUNK:
                self._disk = Disk()
                self._disk.put(self._few.getvalue())
                self._few = io.BytesIO()
            if self._disk is None:
                self._few.write(batch)
            else:
                self._disk.put(batch)
            self.size += len(batch)
            state.update(batch)
        self.sha256 = state.hexdigest()

    def chunks(self) -> Iterator[bytes]:
        """Its bytes, piece by piece."""
        if self._disk is None:
            data = self._few.getvalue()
            yield from (data[at : at + CHUNK] for at in range(0, self.size, CHUNK))
            return
        for at in range(0, self.size, CHUNK):
            yield self._disk.get(at, min(at + CHUNK, self.size))


class OverlayEvidence:
    """A bundle with some files changed and some removed, in memory; the base stays as it is."""

    def __init__(
        self,
        base: Evidence,
        *,
        changed: Mapping[str, bytes | Written],
        removed: frozenset[str] = frozenset(),
    ) -> None:
        self._base = base
        self._changed = dict(changed)
        self._digests: dict[str, str] = {}
        mine = {path: Entry(kind="file", size=_size(data)) for path, data in changed.items()}
        self._entries: Mapping[str, Entry]
        if isinstance(base.entries, Names):
            self._entries = Overlaid(base.entries, mine, removed)
        else:
            there = {path: entry for path, entry in base.entries.items() if path not in removed}
            self._entries = MappingProxyType(there | mine)
        self._removed = removed

    @property
    def entries(self) -> Mapping[str, Entry]:
        """The base's names without the removed, with the changed."""
        return self._entries

    @property
    def overfull(self) -> bool:
        """The base's."""
        return self._base.overfull

    @property
    def base(self) -> Evidence:
        """What the changes are laid over."""
        return self._base

    @property
    def changed(self) -> Mapping[str, bytes | Written]:
        """What was laid over the base."""
        return self._changed

    @property
    def removed(self) -> frozenset[str]:
        """What of the base is not there."""
        return self._removed

    def digest(self, path: str) -> str:
        """The sha256 of a file; an untouched one's is the base's. Raises EvidenceError."""
        if path not in self._changed:
            return self._base.digest(self._present(path))
        if isinstance(data := self._changed[path], Written):
            return data.sha256
        if path not in self._digests:
            self._digests[path] = hashlib.sha256(b"".join(self.chunks(path))).hexdigest()
        return self._digests[path]

    def chunks(self, path: str) -> Iterator[bytes]:
        """A file's bytes, piece by piece. Raises EvidenceError."""
        if path in self._changed:
            data = self._changed[path]
            if _size(data) > limit_of(path):
                raise TooLargeError(f"{_size(data)} bytes")
            yield from data.chunks() if isinstance(data, Written) else (data,)
        else:
            yield from self._base.chunks(self._present(path))

    def read(self, path: str, limit: int) -> bytes:
        """A file's bytes. Raises EvidenceError, also when there are more than `limit`."""
        if path not in self._changed:
            return self._base.read(self._present(path), limit)
        return _join(self.chunks(path), limit)

    def _present(self, path: str) -> str:
        if path not in self._entries:
            raise EvidenceError("No such file or directory")
        return path


def lines(evidence: Evidence, path: str, limit: int) -> Iterator[bytes]:
    """The lines of a file, each with its newline, as a stream. Raises EvidenceError if one is too long."""
    rest = b""
    number = 0
    for chunk in evidence.chunks(path):
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            number += 1
            if len(line) > limit:
                raise TooLargeError(f"line {number} is longer than {limit} bytes")
            yield line + b"\n"
        if len(rest) > limit:
            raise TooLargeError(f"line {number + 1} is longer than {limit} bytes")
    if rest:
        yield rest


def _size(data: bytes | Written) -> int:
    return data.size if isinstance(data, Written) else len(data)


def _join(chunks: Iterator[bytes], limit: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    for chunk in chunks:
        size += len(chunk)
        if size > limit:
            raise TooLargeError(f"more than {limit} bytes")
        parts.append(chunk)
    return b"".join(parts)
