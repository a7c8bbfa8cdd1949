"""Compiled code for the children, made once: they write none, and would compile every module every time.

The compiled files carry the hash of their source, and Python compares it at every import. A file's time
stamp, Python's usual test, would let code run whose source is not the one that `build.json` names.
"""

import contextlib
import importlib.util
import py_compile
from collections.abc import Iterable
from pathlib import Path

_CHECKED_HASH = (0b11).to_bytes(4, "little")  # PEP 552


def compile_sources(folders: Iterable[Path]) -> None:
    """Compile every module below the folders that is not yet; where nothing can be written, nothing is."""
    for folder in folders:
        for source in folder.rglob("*.py"):
            with contextlib.suppress(OSError, py_compile.PyCompileError):
                _compile(source)


def _compile(source: Path) -> None:
    target = Path(importlib.util.cache_from_source(str(source)))
    header = importlib.util.MAGIC_NUMBER + _CHECKED_HASH + importlib.util.source_hash(source.read_bytes())
    if not target.exists() or target.read_bytes()[: len(header)] != header:
        py_compile.compile(
            str(source),
            cfile=str(target),
            doraise=True,
            invalidation_mode=py_compile.PycInvalidationMode.CHECKED_HASH,
        )
