"""A folder as one file whose bytes depend on its content alone: sorted, dated 1980, without owners."""

import gzip
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from mechanism.package.payload import PackageError

SUFFIXES = (".zip", ".tar.gz")
_DATE = (1980, 1, 1, 0, 0, 0)  # the first that a zip can say
_SECONDS = 315532800  # the same, UTC
_MODE = 0o644
#: Beyond these a zip needs extensions that readers treat differently.
_MOST_IN_ZIP, _LARGEST_ZIP = 65_000, 4 * 10**9


def writer(out: Path) -> Callable[[Path, str, Path], None]:
    """What writes the kind of archive that a name asks for. Raises PackageError for any other name."""
    for suffix, write in zip(SUFFIXES, (_zip, _tar_gz), strict=True):
        if out.name.endswith(suffix):
            return write
    raise PackageError(f"--out: expected a name that ends in {' or '.join(SUFFIXES)}, got {out.name}")


def _files(folder: Path) -> list[tuple[str, Path]]:
    found = [(path.relative_to(folder).as_posix(), path) for path in folder.rglob("*") if path.is_file()]
    return sorted(found)


def _zip(folder: Path, top: str, out: Path) -> None:
    """Stored, not deflated: what a compressor gives differs between its versions."""
    files = _files(folder)
    if len(files) > _MOST_IN_ZIP or sum(path.stat().st_size for _, path in files) > _LARGEST_ZIP:
        raise PackageError(f"{out.name}: too many files or bytes for a plain zip; choose a name in .tar.gz")
    with zipfile.ZipFile(out, "x", zipfile.ZIP_STORED, allowZip64=False) as archive:
        for name, path in files:
            entry = zipfile.ZipInfo(f"{top}/{name}", _DATE)
            entry.create_system = 3  # Unix, whatever this is
            entry.external_attr = (0o100000 | _MODE) << 16
            entry.file_size = path.stat().st_size
            with path.open("rb") as source, archive.open(entry, "w") as target:
                while chunk := source.read(2**20):
                    target.write(chunk)


def _tar_gz(folder: Path, top: str, out: Path) -> None:
    """Ustar headers; equal bytes for one version of zlib."""
    with (
        out.open("xb") as raw,
        gzip.GzipFile("", "wb", compresslevel=6, fileobj=raw, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as archive,
    ):
        for name, path in _files(folder):
            entry = tarfile.TarInfo(f"{top}/{name}")
            entry.size, entry.mtime, entry.mode = path.stat().st_size, _SECONDS, _MODE
            with path.open("rb") as source:
                archive.addfile(entry, source)
