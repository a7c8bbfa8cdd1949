"""Changes of whole files: delete, truncate, duplicate, swap with a sibling, one bit in each kilobyte."""

from collections.abc import Iterator
from itertools import pairwise

from ledger.bundle import MANIFEST, SUMMARY
from verifier.evidence import Evidence
from verifier.layout import kind_of, limit_of
from verifier.sweep.bits import leaf_changed
from verifier.sweep.mutant import Mutant

_KILOBYTE = 1024


def file_mutants(evidence: Evidence) -> Iterator[Mutant]:
    """Every change of every file; a file's bytes are held while its own are made."""
    paths = [path for path, entry in evidence.entries.items() if entry.kind == "file" and _known(path)]
    for path in paths:
        data = evidence.read(path, limit_of(path))
        place = place_of(path)
        yield Mutant(kind="file deleted", place=place, what=path, removed=frozenset({path}))
        yield Mutant(kind="file truncated", place=place, what=path, changed={path: data[: len(data) // 2]})
        yield Mutant(kind="file duplicated", place=place, what=path, changed={_copy(path): data})
        for begin in range(0, len(data), _KILOBYTE):
            flipped = bytearray(data)
            spot = begin + min(_KILOBYTE, len(data) - begin) // 2
            flipped[spot] ^= 1
            where = "" if kind_of(path) == "object" else leaf_changed(path, data, bytes(flipped))
            yield Mutant(
                kind="bit flipped",
                place=f"{place}{where}",
                what=f"{path} byte {spot}",
                changed={path: bytes(flipped)},
            )
    for one, other in pairwise(paths):
        if kind_of(one) == kind_of(other):
            first, second = (evidence.read(path, limit_of(path)) for path in (one, other))
            if first != second:
                yield Mutant(
                    kind="files swapped",
                    place=place_of(one),
                    what=f"{one} and {other}",
                    changed={one: second, other: first},
                )


def place_of(path: str) -> str:
    """A file by its kind; documents by their name."""
    kind = kind_of(path)
    return path if kind in {None, "document"} else str(kind)


def _known(path: str) -> bool:
    return kind_of(path) is not None or path in {SUMMARY, MANIFEST}


def _copy(path: str) -> str:
    stem, dot, suffix = path.rpartition(".")
    return f"{stem}.copy{dot}{suffix}" if dot else f"{path}.copy"
