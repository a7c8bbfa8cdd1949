"""Files that a command line asks for: refused before any work without a place for them, written whole."""

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mechanism.errors import MechanismError
from mechanism.process import files

#: `ledger.model.Name`, which a plan has from its file, and which needs no quotes in a path of one.
_PLAN = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,47}")
_TOGETHER = ".together"


def require_plan_name(option: str, path: Path) -> None:
    """Raise MechanismError unless a plan can be named after its file."""
    if path.suffix != ".yaml":
        raise MechanismError(f"{option}: expected a file that ends in .yaml, got {path}")
    if not _PLAN.fullmatch(path.stem):
        raise MechanismError(
            f"{option}: expected a file name like my-plan.yaml, since it names the plan, got {path.name}; use"
            " letters, digits, - and _"
        )


def require_place(option: str, path: Path) -> None:
    """Raise MechanismError, naming the option, unless the file's folder is there."""
    if not path.parent.is_dir():
        raise MechanismError(
            f"{option}: expected a file in a folder that exists, got {path}; make {path.parent} first"
        )


def require_new(option: str, *paths: Path) -> None:
    """Raise MechanismError unless there is a place for each file, and none of them yet."""
    for path in paths:
        require_place(option, path)
        if path.exists() or path.is_symlink():
            raise MechanismError(f"{option}: expected no file at {path}, got one; remove it, or name another")


def write(option: str, path: Path, data: bytes, *, way_out: str = "name another place") -> None:
    """Write a file whole, in place of what was there. Raises MechanismError, which names that very file."""
    require_place(option, path)
    with _named(option, path, way_out):
        files.replace(path, data)


def write_together(*asked: tuple[str, Path, bytes]) -> None:
    """Write files that need each other, (option, file, content) each: all are whole before one has its name.

    Raises as `write`, and then leaves none of them, but where a name itself could not be given.
    """
    beside = [path.with_name(f".{path.name}{_TOGETHER}") for _, path, _ in asked]
    try:
        for (option, path, data), staged in zip(asked, beside, strict=True):
            require_place(option, path)
            with _named(option, path):
                files.replace(staged, data)
        for (option, path, _), staged in zip(asked, beside, strict=True):
            with _named(option, path):
                staged.rename(path)
                files.sync_folder(path.parent)
    finally:
        for staged in beside:
            with suppress(OSError):
                staged.unlink()


@contextmanager
def _named(option: str, path: Path, way_out: str = "name another place") -> Iterator[None]:
    """A fault of writing as one line that names the option and its file."""
    try:
        yield
    except OSError as fault:
        raise MechanismError(
            f"{option}: {path} cannot be written: {fault.strerror or fault}; {way_out}"
        ) from fault


def outside(option: str, path: Path, fault: OSError, *, inside: Path | None = None) -> MechanismError:
    """What to say where a library could not write a file; a fault of reading below `inside` is none of it."""
    if inside is not None and fault.filename is not None and Path(fault.filename).is_relative_to(inside):
        return MechanismError(f"{fault.filename}: cannot be read: {fault.strerror}; see to it")
    return MechanismError(
        f"{option}: {path} cannot be written: {fault.strerror or fault}; name another place"
    )
