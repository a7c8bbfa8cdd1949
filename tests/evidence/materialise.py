"""Make the evidence of one case: `python tests/evidence/materialise.py CASE DIR`. Standard library only.

CASE is a folder below cases/; DIR must not exist, and becomes the bundle, or holds one archive called `bundle`.
What patch.json may say is described in README.md. Prints the path to be verified.
"""

import io
import json
import os
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Files = dict[str, bytes]
Patch = dict[str, Any]
#: Name, kind, bytes, target of a link.
Member = tuple[str, str, bytes, str]

HERE = Path(__file__).resolve().parent
MODES = {"fifo": 0o010644, "device": 0o020644, "symlink": 0o120777, "file": 0o100644}
TYPES = {
    "symlink": tarfile.SYMTYPE,
    "hardlink": tarfile.LNKTYPE,
    "fifo": tarfile.FIFOTYPE,
    "device": tarfile.CHRTYPE,
}


def below(folder: Path) -> Files:
    """Every file below a folder, by its path there."""
    if not folder.is_dir():
        return {}
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def files_of(case: Path, patch: Patch) -> Files:
    """The plain files: the base's, without some, with others."""
    files = below(HERE / "base") if patch.get("base", True) else {}
    base = dict(files)
    for splice in patch.get("splice", ()):
        files[splice["path"]] = spliced(base[splice["from"]], splice["ranges"])
    files.update(below(case / "files"))
    for path in patch.get("remove", ()):
        del files[path]
    return files


def spliced(old: bytes, ranges: list[Patch]) -> bytes:
    """Bytes of the base with ranges replaced; `begin` and `end` are places in the base's file."""
    pieces: list[bytes] = []
    reached = 0
    for one in ranges:
        pieces += [
            old[reached : one["begin"]],
            one["text"].encode() if "text" in one else bytes.fromhex(one["hex"]),
        ]
        reached = one["end"]
    return b"".join([*pieces, old[reached:]])


def make(entry: Patch, folder: Path) -> None:
    """One entry that a folder under version control cannot hold."""
    path = folder / os.fsdecode(bytes.fromhex(entry["name"]))
    if os.path.lexists(path):
        path.unlink()
    kind = entry["kind"]
    if kind == "symlink":
        path.symlink_to(entry["target"])
    elif kind == "hardlink":
        path.hardlink_to(folder / entry["target"])
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir(parents=True)
    else:  # a file, of so many bytes without taking so much room
        with path.open("xb") as file:
            file.truncate(entry.get("size", 0))


def write_folder(files: Files, patch: Patch, folder: Path) -> Path:
    for path, data in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    folder.mkdir(parents=True, exist_ok=True)
    for entry in patch.get("make", ()):
        make(entry, folder)
    return folder


def members(files: Files, archive: Patch) -> Iterator[Member]:
    """(name, kind, bytes, target) of all that goes into an archive: bundle, release files, odd ones."""
    top, under = archive["top"], archive.get("under", "")
    beside = set(archive.get("beside", ()))
    for path, data in sorted(files.items()):
        yield (top + path if path in beside else top + under + path), "file", data, ""
    for entry in archive.get("odd", ()):
        yield entry["name"], entry["kind"], bytes.fromhex(entry.get("hex", "")), entry.get("target", "")


def tar(entries: list[Member]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz", format=tarfile.USTAR_FORMAT) as archive:
        for name, kind, data, target in entries:
            info = tarfile.TarInfo(name)
            info.type, info.linkname, info.size = TYPES.get(kind, tarfile.REGTYPE), target, len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def zipped(entries: list[Member]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, kind, data, target in entries:
            info = zipfile.ZipInfo(name)
            info.external_attr = MODES[kind] << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, target.encode() if kind == "symlink" else data)
    return out.getvalue()


def write_archive(files: Files, archive: Patch, folder: Path) -> Path:
    entries = list(members(files, archive))
    data = tar(entries) if archive["form"] == "tar.gz" else zipped(entries)
    if "keep" in archive:
        data = data[: len(data) * archive["keep"] // 100]
    data = bytes.fromhex(archive.get("before", "")) + data + bytes.fromhex(archive.get("after", ""))
    folder.mkdir(parents=True)
    (folder / "bundle").write_bytes(data)
    return folder / "bundle"


def materialise(case: Path, folder: Path) -> Path:
    """The path to be verified."""
    patch = json.loads((case / "patch.json").read_text(encoding="utf-8"))
    files = files_of(case, patch)
    if "archive" in patch:
        return write_archive(files, patch["archive"], folder)
    return write_folder(files, patch, folder)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: materialise.py CASE DIR")
    given, new = Path(sys.argv[1]), Path(sys.argv[2])
    if not (given / "patch.json").is_file():
        sys.exit(f"expected a folder with a patch.json, got {given}")
    if os.path.lexists(new):
        sys.exit(f"expected a DIR that does not exist, got {new}")
    print(materialise(given, new))
