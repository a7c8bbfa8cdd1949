"""Which value of a JSON document a flipped bit changed, so that the sweep can argue for it by its place."""

import json
from collections.abc import Iterator
from typing import Any

from ledger.bundle import ATTEMPTS, MANIFEST
from ledger.fault import Path

_LINES = (ATTEMPTS, MANIFEST)


def general(keys: Path) -> str:
    """Keys as the table of survivors has them: list places are `[*]`."""
    return "".join("[*]" if isinstance(key, int) else f".{key}" for key in keys)


def leaf_changed(path: str, data: bytes, flipped: bytes) -> str:
    """The keys of the one value that differs, or has another name, in general; empty if more than that does.

    Also for what is no JSON any more: then a reason is not asked for, since it never goes unnoticed.
    """
    try:
        before, after = (dict(leaves(_read(path, text), ())) for text in (data, flipped))
    except (ValueError, RecursionError):
        return ""
    if len(after.keys() - before.keys()) > 1:
        return ""
    other = [keys for keys, leaf in before.items() if keys not in after or after[keys] != leaf]
    return general(other[0]) if len(other) == 1 else ""


def leaves(value: Any, keys: Path) -> Iterator[tuple[Path, Any]]:
    """Every value that holds no other, with its keys; an empty list or mapping is one."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from leaves(item, (*keys, key))
    elif isinstance(value, list) and value:
        for place, item in enumerate(value):
            yield from leaves(item, (*keys, place))
    else:
        yield keys, value


def _read(path: str, data: bytes) -> Any:
    return [json.loads(line) for line in data.splitlines()] if path in _LINES else json.loads(data)
