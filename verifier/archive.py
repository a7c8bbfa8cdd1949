"""An archive from a stranger, unpacked into one nameless temporary file: no name in it ever becomes a path.

Sizes are bounded by the archive's own, so that nothing small unpacks to something huge; every file is
hashed on the way. Links, devices and names that lead elsewhere hold no bytes, and are found fault with.
"""

import gzip
import hashlib
import os
import struct
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Literal

from verifier.layout import MAX_HELD as MAX_FILES

#: Bytes that an archive may unpack to: some, and so many times its size.
SLACK, RATIO = 64 * 2**20, 200
MAX_PAX = 64 * 2**10
_CHUNK = 2**20
_BLOCK = 512
_MOST_FAULTS = 50
_DIRECTORY_LIMIT = 64 * 2**20  # of a zip, which is read whole


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """One thing that is wrong with an archive."""

    expected: str
    got: str

    def __str__(self) -> str:
        return f"expected {self.expected}, got {self.got}"


class ArchiveError(Exception):
    """It cannot be read as an archive any further; `fault` says why."""

    def __init__(self, expected: str, got: str) -> None:
        super().__init__(f"expected {expected}, got {got}")
        self.fault = Fault(expected=expected, got=got)


class NoRoomError(OSError):
    """There is no room here to unpack an archive: nothing is wrong with it."""


def no_room(fault: OSError) -> NoRoomError:
    """That fault of a temporary file, with its folder and the way out."""
    words = f"{fault.strerror} for what an archive holds; name a folder with room in TMPDIR"
    return NoRoomError(fault.errno, words, tempfile.gettempdir())


@dataclass(frozen=True, kw_only=True, slots=True)
class Member:
    """One file of an archive: where its bytes are in the spool, and their sha256."""

    offset: int
    size: int
    sha256: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Unpacked:
    """What an archive holds. `odd`: names of what is no plain file. `faults`: what is wrong."""

    spool: IO[bytes]
    members: dict[str, Member] = field(default_factory=dict)
    odd: dict[str, Literal["link", "special"]] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)

    def chunks(self, member: Member) -> Iterator[bytes]:
        """A member's bytes, piece by piece."""
        at, end = member.offset, member.offset + member.size
        while at < end:
            chunk = os.pread(self.spool.fileno(), min(_CHUNK, end - at), at)
            if not chunk:
                return
            at += len(chunk)
            yield chunk


@contextmanager
def unpack(path: Path) -> Iterator[Unpacked]:
    """Unpack a .zip or .tar.gz, told apart by its first bytes, for as long as the context lasts.

    What is wrong with the archive is in `faults`; what was read before that is there. Raises OSError if the
    file cannot be opened, NoRoomError if there is no room for what it holds.
    """
    with tempfile.TemporaryFile() as spool, path.open("rb") as file:
        unpacked = Unpacked(spool=spool)
        filler = _Filler(unpacked, SLACK + RATIO * os.fstat(file.fileno()).st_size)
        try:
            _read(file, filler)
        except ArchiveError as fault:
            unpacked.faults.append(fault.fault)
        except NoRoomError:
            raise
        except (EOFError, OSError, zlib.error, zipfile.BadZipFile, NotImplementedError, ValueError) as fault:
            wanted = "an archive that can be read to its end"
            unpacked.faults.append(Fault(expected=wanted, got=str(fault)))
        try:
            spool.flush()
        except OSError as fault:
            raise no_room(fault) from fault
        yield unpacked


def _read(file: IO[bytes], filler: "_Filler") -> None:
    magic = file.read(2)
    file.seek(0)
    if magic == b"\x1f\x8b":
        _tar_gz(file, filler)
    elif magic == b"PK":
        _zip(file, filler)
    else:
        raise ArchiveError("a .zip or .tar.gz", "neither")


class _Filler:
    """Takes members one by one and keeps count of room, names and number."""

    def __init__(self, unpacked: Unpacked, room: int) -> None:
        self._unpacked, self._room, self._at = unpacked, room, 0

    def take(self, name: str, size: int, source: IO[bytes] | gzip.GzipFile) -> None:
        """Copy one file's bytes from a stream. Raises ArchiveError beyond the room."""
        self.reserve(size)
        state = hashlib.sha256()
        left = size
        while left:
            chunk = source.read(min(_CHUNK, left))
            if not chunk:
                raise ArchiveError(f"{size} bytes of {name[:200]!r}", f"{size - left}")
            state.update(chunk)
            self._keep(chunk)
            left -= len(chunk)
        if self._named(name):
            self._unpacked.members[name] = Member(offset=self._at, size=size, sha256=state.hexdigest())
        self._at += size

    def _keep(self, chunk: bytes) -> None:
        try:
            self._unpacked.spool.write(chunk)
        except OSError as fault:
            raise no_room(fault) from fault

    def odd(self, name: str, kind: Literal["link", "special"]) -> None:
        """Note what is no plain file."""
        if self._named(name):
            self._unpacked.odd[name] = kind

    def reserve(self, size: int) -> None:
        """Raise ArchiveError if so many bytes more are too many."""
        self._room -= size + _BLOCK
        if self._room < 0:
            raise ArchiveError(f"at most {SLACK} bytes and {RATIO} times the archive", "more")

    def fault(self, expected: str, got: str) -> None:
        """Note what is wrong, once, and up to a number."""
        fault = Fault(expected=expected, got=got)
        if len(self._unpacked.faults) < _MOST_FAULTS and fault not in self._unpacked.faults:
            self._unpacked.faults.append(fault)

    def _named(self, name: str) -> bool:
        """Whether a name can stand for a file; if not, why not is a fault."""
        if len(self._unpacked.members) + len(self._unpacked.odd) >= MAX_FILES:
            raise ArchiveError(f"at most {MAX_FILES} entries", "more")
        if not safe(name):
            self.fault("names that stay below one folder", f"{name[:200]!r}")
            return False
        if name in self._unpacked.members or name in self._unpacked.odd:
            self.fault("each name once", f"{name[:200]!r} twice")
            return False
        return True


def safe(name: str) -> bool:
    """Whether a name is a plain relative path: no step up, root, drive or backslash, nothing unprintable."""
    steps = name.split("/")
    return (
        0 < len(name) <= 1024
        and name.isprintable()
        and not any(character in name for character in "\\:")
        and all(step not in {"", ".", ".."} for step in steps)
    )


def _zip(file: IO[bytes], filler: _Filler) -> None:
    directory = _directory(file)
    with zipfile.ZipFile(file) as archive:
        _require_whole(file, archive, directory)
        for entry in archive.infolist():
            kind = entry.external_attr >> 28  # the file type of Unix, if it was made there
            if entry.filename.endswith("/") and entry.file_size == 0:
                continue
            if kind not in {0, 0o10} or entry.flag_bits & 1:  # no plain file, or encrypted
                filler.odd(entry.filename, "link" if kind == 0o12 else "special")
                continue
            if entry.compress_type not in {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
                raise ArchiveError("stored or deflated entries", f"method {entry.compress_type}")
            with archive.open(entry) as source:
                filler.take(entry.filename, entry.file_size, source)
                if source.read(1):  # reading to the end checks the CRC
                    raise ArchiveError(f"{entry.file_size} bytes of {entry.filename[:200]!r}", "more")


def _directory(file: IO[bytes]) -> int:
    """Where a zip's directory starts: it ends at the end record, and that at the end of the file.

    Raises ArchiveError for one that would fill the memory, that needs zip64, or that lies elsewhere.
    """
    length = file.seek(0, os.SEEK_END)
    file.seek(-min(length, 22 + 65535), os.SEEK_END)
    data = file.read()
    at = data.rfind(b"PK\x05\x06")
    if at < 0 or len(data) - at < 22:
        raise ArchiveError("the directory at the end of a zip", "none")
    entries, size, start, comment = struct.unpack("<HIIH", data[at + 10 : at + 22])
    if entries == 0xFFFF or size > _DIRECTORY_LIMIT or start == 0xFFFFFFFF:
        raise ArchiveError("a zip of fewer than 65535 entries and 4 GiB", "more; use a .tar.gz")
    if (beyond := len(data) - at - 22 - comment) != 0:
        got = f"{beyond} more bytes" if beyond > 0 else f"{-beyond} bytes too few"
        raise ArchiveError("nothing after the end of the zip", got)
    if (before := length - len(data) + at - size - start) != 0:
        raise ArchiveError("a zip that starts at the file's first byte", f"{before} bytes beside it")
    file.seek(0)
    return int(start)


def _require_whole(file: IO[bytes], archive: zipfile.ZipFile, directory: int) -> None:
    """Raise ArchiveError unless the entries fill a zip from its first byte to its directory.

    What lies between them is in the file and in no entry: a reader of streams would find it, and no other.
    """
    at, behind = 0, {0}
    for entry in sorted(archive.infolist(), key=lambda entry: entry.header_offset):
        _require_no_gap(entry.header_offset - at, behind)
        file.seek(entry.header_offset + 26)
        lengths = struct.unpack("<HH", file.read(4).ljust(4, b"\0"))
        at = entry.header_offset + 30 + sum(lengths) + entry.compress_size
        # sizes may follow the bytes (flag bit 3), with or without a signature, of four or eight bytes each
        behind = {12, 16, 20, 24} if entry.flag_bits & 8 else {0}
    _require_no_gap(directory - at, behind)
    file.seek(0)


def _require_no_gap(gap: int, behind: set[int]) -> None:
    if gap not in behind:
        got = f"{gap} bytes that belong to none" if gap > 0 else "entries that overlap"
        raise ArchiveError("a zip that its entries fill", got)


def _tar_gz(file: IO[bytes], filler: _Filler) -> None:
    """Header by header: tarfile's own reader would hold extended headers of any size in memory."""
    with gzip.GzipFile(fileobj=file) as stream:
        while True:
            block = stream.read(_BLOCK)
            if not block.strip(b"\0"):
                break
            try:
                entry = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
            except tarfile.HeaderError as fault:
                raise ArchiveError("a tar header", str(fault)) from fault
            _tar_entry(entry, stream, filler)
        try:
            while rest := stream.read(_CHUNK):
                filler.reserve(len(rest))
                if rest.strip(b"\0"):
                    raise ArchiveError("nothing after the end of the tar", "more bytes")
        except gzip.BadGzipFile as fault:  # what follows the compressed stream is none
            raise ArchiveError("nothing after the end of the tar", "more bytes") from fault


def _tar_entry(entry: tarfile.TarInfo, stream: gzip.GzipFile, filler: _Filler) -> None:
    name = entry.name.removeprefix("./")  # once, as `tar -C DIR .` writes it; any other step is refused
    if entry.type in {tarfile.XHDTYPE, tarfile.XGLTYPE}:
        if entry.size > MAX_PAX:
            raise ArchiveError(f"extended headers of at most {MAX_PAX} bytes", f"{entry.size}")
        words = stream.read(entry.size)
        if any(key in words for key in (b" path=", b" linkpath=", b" size=", b" GNU.")):
            raise ArchiveError("extended headers for times and owners alone", "names or sizes")
    elif entry.isreg() and not entry.issparse():
        filler.take(name, entry.size, stream)
    elif not entry.isdir():
        filler.odd(name, "link" if entry.issym() or entry.islnk() else "special")
        if entry.size:
            raise ArchiveError(f"no bytes in {name[:200]!r}", f"{entry.size}")
    padding = -entry.size % _BLOCK
    if not entry.isdir() and len(stream.read(padding)) != padding:
        raise ArchiveError("whole blocks", "a torn one")
