"""A changed file as ranges replaced in one of the base's: what a case changes is then all that it stores."""

from typing import Any

from tests.verifier.forge import Files

_GAP = 12  # equal bytes between two changes that are not worth a range of their own
_WORTH = 0.6  # of the file's size; a patch larger than that is no help


def splice_of(path: str, data: bytes, base: Files) -> dict[str, Any] | None:
    """The smallest patch that makes `data` of a base file; None if none is worth it."""
    best: list[tuple[int, int, bytes]] | None = None
    source = ""
    for name in sorted(base, key=lambda name: (name != path, name)):
        if name != path and len(base[name]) != len(data):
            continue
        ranges = _ranges(base[name], data)
        if best is None or _size(ranges) < _size(best):
            best, source = ranges, name
    if best is None or _size(best) > _WORTH * len(data):
        return None
    return {"path": path, "from": source, "ranges": [_range(*item) for item in best]}


def _ranges(old: bytes, new: bytes) -> list[tuple[int, int, bytes]]:
    """(begin, end, bytes put there), ascending by place in `old`."""
    if len(old) != len(new):
        begin = next(
            (p for p, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new))
        )
        most = min(len(old), len(new)) - begin
        same = next((p for p in range(most) if old[-1 - p] != new[-1 - p]), most)
        return [(begin, len(old) - same, new[begin : len(new) - same])]
    if old == new:
        return []
    found: list[list[int]] = []
    for place in [p for p, (a, b) in enumerate(zip(old, new, strict=True)) if a != b]:
        if found and place - found[-1][1] < _GAP:
            found[-1][1] = place + 1
        else:
            found.append([place, place + 1])
    return [(begin, end, new[begin:end]) for begin, end in found]


def _size(ranges: list[tuple[int, int, bytes]]) -> int:
    return sum(60 + len(data) for _, _, data in ranges)


def _range(begin: int, end: int, data: bytes) -> dict[str, Any]:
    if data.isascii() and data.decode().isprintable():
        return {"begin": begin, "end": end, "text": data.decode()}
    return {"begin": begin, "end": end, "hex": data.hex()}
