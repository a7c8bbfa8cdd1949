"""The software identity of a cohort: what computed the bits, file by file. Content of `build.json`."""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import rfc8785

from ledger.canonical import sha256
from mechanism.engine.protocol import Engine

_ROOT = Path(__file__).resolve().parents[2]
#: Rooms whose code decides what is computed, captured or digested.
_ROOMS = ("mechanism/engine", "mechanism/fixture", "mechanism/kernel", "mechanism/process")
_ROOMS_OF = {"vllm": ("mechanism/plugin",)}
_FILES = ("ledger/canonical.py", "mechanism/errors.py")


def build_file(engine: Engine, *, kernel: str, device: Mapping[str, str | int]) -> dict[str, Any]:
    """A `ledger.record.BuildFile` as plain data, made by the very process that computes.

    `kernel` and `device` are those the plan pins.
    """
    own = engine.identity()
    return {
        "schema_version": 1,
        "evidence": own.evidence,
        "engine": engine.name,
        "kernel": kernel,
        "arithmetic": own.arithmetic,
        "device": {**own.device, **device},
        "driver": own.driver,
        "versions": {
            "python": f"{sys.implementation.name} {sys.version.split()[0]}",
            "rfc8785": rfc8785.__version__,
            **own.versions,
        },
        "source": {
            **{f"library/{name}": digest for name, digest in own.libraries.items()},
            **dict(source_files(engine.name)),
        },
    }


def source_files(engine: str = "simulated") -> Iterator[tuple[str, str]]:
    """(path below the project, sha256) of every file of code whose change would change the identity.

    An engine's own files count for that engine alone: those of `vllm` compute no simulated bit.
    """
    foreign = () if engine == "vllm" else ("vllm_", "gpu_")
    paths = [
        path
        for room in (*_ROOMS, *_ROOMS_OF.get(engine, ()))
        for path in (_ROOT / room).rglob("*.py")
        if not (path.parent.name == "engine" and path.name.startswith(foreign))
    ]
    for path in sorted([*paths, *(_ROOT / name for name in _FILES)]):
        yield path.relative_to(_ROOT).as_posix(), sha256(path.read_bytes())
