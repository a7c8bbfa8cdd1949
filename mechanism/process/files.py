"""Files that are whole or not there: written beside, synced if they are to stay, then renamed into place."""

import errno
import os
from pathlib import Path

BESIDE = ".new"


def write_once(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Write a new file. Raises FileExistsError, never overwrites; a crash leaves no part of it.

    One process at a time writes to a folder, so looking before the rename is enough. `durable`: as `replace`.
    """
    if path.exists():
        raise FileExistsError(errno.EEXIST, "File exists", str(path))
    replace(path, data, durable=durable)


def replace(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Write a file whole, in place of what was there.

    `durable`: its bytes and its name are on disk when this returns. What is in a staging folder need not be:
    the runner syncs what it takes over, and drops the rest.
    """
    beside = path.with_name(f".{path.name}{BESIDE}")
    try:
        with beside.open("wb") as file:
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        beside.rename(path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise
    if durable:
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
