"""`mechanism vectors record`: golden vectors measured on a GPU, in the form that `vectors check` reads."""

from pathlib import Path
from typing import Any

import click

from mechanism.engine.gpu_identity import Gpu
from mechanism.errors import MechanismError
from mechanism.gpu import recording
from mechanism.gpu.opening import open_gpu


def record_vectors(folder: Path) -> int:
    """Record on the GPU of this machine. Raises EngineError without one, before the folder is made."""
    _require_new(folder)
    return write_vectors(folder, *open_gpu())


def write_vectors(folder: Path, operators: Any, gpu: Gpu) -> int:
    """One file per block size, on a device; prints each, and how to compare them. Raises EngineError."""
    _require_new(folder)
    folder.mkdir(parents=True, exist_ok=True)
    count = 0
    for path in recording.write(folder, operators, gpu):
        click.echo(path)
        count += 1
    click.echo(f"{count} files recorded on {gpu.name}, {gpu.arch}; compare: mechanism vectors check {folder}")
    return 0


def _require_new(folder: Path) -> None:
    """Vectors of two devices in one folder could not be told apart by whoever counts them."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise MechanismError(f"{folder}: expected an empty folder, or none, to record into; name another")
