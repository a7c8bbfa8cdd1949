"""Files that are whole or not there: written beside, synced, then renamed into place."""

import errno
import os
from pathlib import Path

BESIDE = ".new"


def write_once(path: Path, data: bytes) -> None:
    """Write a new file. Raises FileExistsError, never overwrites; a crash leaves no part of it.

    One process at a time writes to a folder, so looking before the rename is enough.
    """
    if path.exists():
        raise FileExistsError(errno.EEXIST, "File exists", str(path))
    replace(path, data)


def replace(path: Path, data: bytes) -> None:
    """Write a file whole, in place of what was there. The name is on disk once the folder is synced too."""
    beside = path.with_name(f".{path.name}{BESIDE}")
    try:
        with beside.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        beside.rename(path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync(path: Path) -> None:
    """Have a file's bytes on disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(path: Path) -> None:
    """Have a folder's names on disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
