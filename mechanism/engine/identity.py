"""The software identity of a cohort: what computed the bits, file by file. Content of `build.json`."""

import os
import sys
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import rfc8785

from ledger.canonical import sha256
from mechanism.engine.protocol import Engine

_ROOT = Path(__file__).resolve().parents[2]
#: Rooms whose code decides what is computed, captured or digested: all of it counts, but for what is named.
_ROOMS = (
    "mechanism/engine",
    "mechanism/fixture",
    "mechanism/kernel",
    "mechanism/plugin",
    "mechanism/process",
)
_FILES = (
    "ledger/__init__.py",
    "ledger/canonical.py",
    "mechanism/__init__.py",
    "mechanism/errors.py",
    "mechanism/values.py",
)
#: Files of those rooms that no cold process loads: oracles, vectors, compiled arithmetic, sets of outcomes.
_ORACLES = (
    "mechanism/kernel/plain.py",
    "mechanism/kernel/vectors.py",
    "mechanism/kernel/compiled*.py",
    "mechanism/kernel/atomic.py",
)
_GPU = ("mechanism/engine/gpu_*.py", "mechanism/engine/vllm_*.py")
#: What an engine has beside the rooms, and what of them is none of its business.
_MORE: dict[str, tuple[str, ...]] = {}
_LESS = {"simulated": (*_ORACLES, *_GPU), "vllm": _ORACLES}


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

    Files count unless they are named as not counting: one too many is noise, one too few a false witness. A
    test holds that every module a cold process loads is among them.
    """
    left_out = _LESS.get(engine, ())
    found = [name for room in (*_ROOMS, *_MORE.get(engine, ())) for name in _modules(room)]
    counted = [name for name in found if not any(fnmatchcase(name, pattern) for pattern in left_out)]
    for name in sorted([*counted, *_FILES]):
        with open(f"{_ROOT}/{name}", "rb") as file:  # noqa: PTH123 - a hundred files in every cold process
            yield name, sha256(file.read())


def _modules(room: str) -> Iterator[str]:
    """Every module of a room and of the rooms in it, as a path below the project."""
    with os.scandir(f"{_ROOT}/{room}") as entries:
        for entry in entries:
            if entry.name.endswith(".py"):
                yield f"{room}/{entry.name}"
            elif entry.is_dir() and entry.name != "__pycache__":
                yield from _modules(f"{room}/{entry.name}")
