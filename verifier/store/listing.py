"""What lies in a bundle's folder: every name with its kind and size, and the digests taken of many files."""

import os
import stat
from collections.abc import ItemsView, Iterator, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any, Literal, NamedTuple

from verifier.layout import FOLDERS, MAX_FILES, MAX_HELD
from verifier.store.disk import Disk
from verifier.store.names import Items, Names, Sorted

NO_FOLLOW = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # a FIFO must not block the open


class Entry(NamedTuple):
    """One name in the bundle. `size` in bytes; 0 for what is no file."""

    kind: Literal["file", "folder", "link", "special"]
    size: int


_FOLDER = Entry(kind="folder", size=0)


def listed(root: Path) -> tuple[Mapping[str, Entry], bool]:
    """Every entry, sorted, and whether there were too many, after which no more are looked at.

    Only the three folders of a bundle are entered, so depth is bounded. Raises OSError, NoRoomError.
    """
    found: Sorted[Entry] = Sorted(_packed, _unpacked)
    top = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        inner = list(_add(found, os.open(".", NO_FOLLOW | os.O_DIRECTORY, dir_fd=top), ""))
        held = len(found)
        for folder in FOLDERS:
            if folder not in inner:
                continue
            try:
                here = os.open(folder, NO_FOLLOW | os.O_DIRECTORY, dir_fd=top)
            except OSError:
                found.add(folder, _FOLDER)  # a finding of its own
                continue
            before = len(found)
            for _ in _add(found, here, f"{folder}/"):
                pass
            held += 0 if folder == "records" else len(found) - before
    finally:
        os.close(top)
    return found.names(), len(found) > MAX_FILES or held > MAX_HELD


def _add(found: Sorted[Entry], descriptor: int, prefix: str) -> Iterator[str]:
    """Add the entries of one open folder, up to one too many. Closes the descriptor.

    Gives the bundle's own folders instead of adding them.
    """
    try:
        with os.scandir(descriptor) as scan:
            for item in scan:
                if len(found) > MAX_FILES:
                    return
                entry = _entry(item)
                if not prefix and item.name in FOLDERS and entry == _FOLDER:
                    yield item.name
                else:
                    found.add(prefix + item.name, entry)
    finally:
        os.close(descriptor)


def _entry(item: "os.DirEntry[str]") -> Entry:
    try:
        status = item.stat(follow_symlinks=False)
    except OSError:
        return Entry(kind="special", size=0)
    if stat.S_ISREG(status.st_mode):
        return Entry(kind="file", size=status.st_size)
    if stat.S_ISDIR(status.st_mode):
        return _FOLDER
    return Entry(kind="link" if stat.S_ISLNK(status.st_mode) else "special", size=0)


def _packed(entry: Entry) -> int | str:
    return entry.size if entry.kind == "file" else entry.kind


def _unpacked(packed: Any) -> Entry:
    return Entry("file", packed) if isinstance(packed, int) else Entry(packed, 0)


class Digests:
    """The sha256 of each of many files, by its place among their names: 32 bytes of disk each."""

    def __init__(self, names: Names[Entry]) -> None:
        self._names = names
        self._disk = Disk()

    def get(self, path: str) -> str | None:
        """The digest kept of a file."""
        place = self._names.place(path)
        kept = b"" if place is None else self._disk.read_at(32 * place, 32)
        return kept.hex() if kept.strip(b"\0") else None

    def keep(self, path: str, digest: str) -> None:
        """Keep a file's digest. Raises NoRoomError."""
        if (place := self._names.place(path)) is not None:
            self._disk.write_at(32 * place, bytes.fromhex(digest))


class Overlaid(Mapping[str, Entry]):
    """Many names with some removed and some changed or added; the added ones come last."""

    def __init__(self, base: Names[Entry], changed: Mapping[str, Entry], removed: AbstractSet[str]) -> None:
        self._base, self._changed = base, dict(changed)
        self._removed = {name for name in removed if name in base}
        self._added = [name for name in changed if name not in base or name in self._removed]

    def __len__(self) -> int:
        return len(self._base) - len(self._removed) + len(self._added)

    def __contains__(self, name: object) -> bool:
        return name in self._changed or (name not in self._removed and name in self._base)

    def __getitem__(self, name: str) -> Entry:
        if name in self._changed:
            return self._changed[name]
        if name in self._removed:
            raise KeyError(name)
        return self._base[name]

    def __iter__(self) -> Iterator[str]:
        yield from (name for name in self._base if name not in self._removed)
        yield from self._added

    def items(self) -> ItemsView[str, Entry]:
        """Names with their entries, in one go."""
        return Items(self)

    def pairs(self) -> Iterator[tuple[str, Entry]]:
        """What `items` iterates over."""
        changed, removed = self._changed, self._removed
        for name, entry in self._base.pairs():
            if name not in removed:
                yield name, changed.get(name, entry)
        yield from ((name, changed[name]) for name in self._added)
