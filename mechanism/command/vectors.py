"""`mechanism vectors check`: recompute every vector file under some folders, compare bits."""

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np

from mechanism.errors import MechanismError
from mechanism.kernel import vectors
from mechanism.kernel.arithmetic import Arithmetic
from mechanism.kernel.errors import KernelError
from mechanism.reexecute.arithmetic import arithmetic_of

DIFFERS = 1
_NOT_VECTORS = ("readme", "licence", "license")


def check_vectors(folders: tuple[Path, ...], *, arithmetic: str) -> int:
    """Print a line for each file that differs, then how many are bit-identical. 0 if all are.

    Raises MechanismError for an empty folder; and at the end, when all others were looked at, for files that
    cannot be read or are of an unknown kind. What each of them lacks is told on stderr.
    """
    by = arithmetic_of(arithmetic)
    equal = total = unread = 0
    for folder in folders:
        files = list(vector_files(folder))
        if not files:
            raise MechanismError(
                f"{folder}: expected vector files in it or below, found none; check the path"
            )
        for path in files:
            total += 1
            try:
                check = _check(path, path.relative_to(folder).as_posix(), by)
            except (MechanismError, KernelError) as fault:
                unread += 1
                click.echo(f"{path}: {fault}", err=True)
                continue
            equal += check.differing == 0
            if check.differing:
                click.echo(f"{path}: {check.differing} of {check.elements} differ; first: {check.first}")
    click.echo(f"{equal} of {total} files bit-identical")
    if unread:
        raise MechanismError(
            f"{unread} of {total} files are no vector files that could be checked; see above"
        )
    return 0 if equal == total else DIFFERS


def vector_files(folder: Path) -> Iterator[Path]:
    """Every file but READMEs, licences and the `.json` twins of recipe cases, sorted."""
    if not folder.is_dir():
        raise MechanismError(f"{folder}: expected a folder of vector files, found none; check the path")
    for path in sorted(folder.rglob("*")):
        twin = path.suffix == ".json" and path.with_suffix(".npz").exists()
        if path.is_file() and not twin and not path.name.lower().startswith(_NOT_VECTORS):
            yield path


def _check(path: Path, name: str, arithmetic: Arithmetic) -> vectors.Check:
    try:
        if path.suffix == ".npz":
            return vectors.recompute(name, _arrays(path), arithmetic=arithmetic)
        if path.suffix == ".json":
            return vectors.document(name, json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, EOFError, KeyError, TypeError, zipfile.BadZipFile) as fault:
        if isinstance(fault, KernelError):
            raise
        raise MechanismError(
            f"expected a vector file, cannot read it: {type(fault).__name__}: {fault}"
        ) from fault
    raise MechanismError("expected a kind of vector file that is known (.npz, .json), got another")


def _arrays(path: Path) -> dict[str, Any]:
    with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
        return {key: file[key] for key in file.files}
