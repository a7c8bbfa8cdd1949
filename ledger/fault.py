"""Faults of a document: what was expected, what was found, and where (file, line, key)."""

from collections.abc import Sequence
from dataclasses import dataclass

Path = tuple[str | int, ...]


def key_path(path: Path) -> str:
    """A path as people write it: phases[1].cells[0].grid."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """One fault of one document. `line` counts from 1; `path` is the keys that lead there."""

    file: str
    line: int
    path: Path
    message: str

    def __str__(self) -> str:
        where = key_path(self.path)
        return f"{self.file}:{self.line}: {where + ': ' if where else ''}{self.message}"


class FaultsError(ValueError):
    """A document with one or more faults; `str()` gives one line per fault, in file order."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self.faults = tuple(sorted(faults, key=lambda fault: fault.line))
        super().__init__("\n".join(str(fault) for fault in self.faults))
