"""A nameless temporary file: bytes are put at its end and read back from anywhere; gone with its owner."""

import errno
import marshal
import os
import weakref
from typing import IO, Any

#: So many values are few: they are kept as they are. More of them go to disk, or into a table of numbers.
MANY = 4096
_PIECE = 2**18  # bytes written at a time


def packed(value: Any) -> bytes:
    """A value as bytes: tuples, lists, dicts, text, bytes, integers and None."""
    return marshal.dumps(value)


#: The value that was packed. Nobody but this process can have written it: the file has no name.
unpacked = marshal.loads


class NoRoomError(Exception):
    """The temporary folder cannot hold what a check of a large bundle puts aside; the message says why."""


def no_room(fault: OSError) -> NoRoomError:
    """What to say of a temporary file that cannot be made, written or read."""
    import tempfile  # noqa: PLC0415 - most bundles are small, and it imports much

    try:
        where = tempfile.gettempdir()
    except OSError:
        where = "none found"
    return NoRoomError(
        f"expected room for temporary files, got {fault.strerror or fault} in {where};"
        " free some, or name another folder in TMPDIR"
    )


def open_nameless() -> IO[bytes]:
    """A file without a name, which no exit can leave behind. Raises NoRoomError."""
    import tempfile  # noqa: PLC0415 - as above

    try:
        return tempfile.TemporaryFile(buffering=0)
    except OSError as fault:
        raise no_room(fault) from fault


class Disk:
    """Bytes put aside. Raises NoRoomError where the temporary folder is full or cannot be used."""

    def __init__(self) -> None:
        file = open_nameless()
        self._descriptor = file.fileno()
        self._waiting = bytearray()
        self._written = 0
        weakref.finalize(self, file.close)

    @property
    def size(self) -> int:
        """How many bytes were put."""
        return self._written + len(self._waiting)

    def put(self, data: bytes) -> int:
        """Put bytes at the end; gives where they begin."""
        at = self._written + len(self._waiting)
        self._waiting += data
        if len(self._waiting) >= _PIECE:
            self._flush()
        return at

    def get(self, begin: int, end: int) -> bytes:
        """The bytes from `begin` to `end`."""
        if end > self._written:
            self._flush()
        try:
            data = os.pread(self._descriptor, end - begin, begin)
        except OSError as fault:
            raise no_room(fault) from fault
        if len(data) != end - begin:
            raise no_room(OSError(0, "fewer bytes than were written"))
        return data

    def write_at(self, place: int, data: bytes) -> None:
        """Write over bytes at a place, or past the end."""
        try:
            done = os.pwrite(self._descriptor, data, place)
        except OSError as fault:
            raise no_room(fault) from fault
        if done != len(data):
            raise no_room(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))

    def read_at(self, place: int, size: int) -> bytes:
        """What was written at a place; zeros where nothing was, fewer bytes at the end."""
        try:
            return os.pread(self._descriptor, size, place)
        except OSError as fault:
            raise no_room(fault) from fault

    def _flush(self) -> None:
        view = memoryview(bytes(self._waiting))
        try:
            while view:
                done = os.write(self._descriptor, view)
                self._written += done
                view = view[done:]
        except OSError as fault:
            raise no_room(fault) from fault
        self._waiting.clear()
