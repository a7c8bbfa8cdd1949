"""Changes of single values: every leaf of every document changed, removed, given another type."""

import json
from collections.abc import Iterator
from typing import Any

from ledger import strict_yaml
from ledger.bundle import ATTEMPTS, MANIFEST, SUMMARY
from ledger.canonical import canonical, sha256
from ledger.fault import Path, key_path
from verifier.evidence import Evidence
from verifier.layout import kind_of, limit_of
from verifier.sweep.bits import general, leaves
from verifier.sweep.files import place_of
from verifier.sweep.mutant import Mutant

_YAML = ("plan.yaml", "ledger.yaml")
_LINES = (ATTEMPTS, MANIFEST)


def leaf_mutants(evidence: Evidence) -> Iterator[Mutant]:
    """Every change of every leaf. A document that cannot be read has none."""
    for path, entry in evidence.entries.items():
        if entry.kind != "file" or kind_of(path) == "object":
            continue
        if kind_of(path) is None and path not in {SUMMARY, MANIFEST}:
            continue
        data = evidence.read(path, limit_of(path))
        if path in _LINES:
            yield from _lines(path, data)
        elif path in _YAML:
            yield from _document(path, strict_yaml.load(data, name=path).data, yaml=True)
        else:
            yield from _document(path, json.loads(data), yaml=False)


def _document(path: str, value: Any, *, yaml: bool) -> Iterator[Mutant]:
    for keys, kind, bent in _changes(value):
        # a JSON text is YAML of one reading; the document is written anew, the value apart it says the same
        data = json.dumps(bent, ensure_ascii=False).encode() if yaml else written(bent)
        yield _mutant(path, keys, kind, data)


def _lines(path: str, data: bytes) -> Iterator[Mutant]:
    lines = data.split(b"\n")
    for number, line in enumerate(lines):
        if not line:
            continue
        for keys, kind, bent in _changes(json.loads(line)):
            whole = b"\n".join([*lines[:number], written(bent), *lines[number + 1 :]])
            yield _mutant(path, (number, *keys), kind, whole)


def _mutant(path: str, keys: Path, kind: str, data: bytes) -> Mutant:
    return Mutant(
        kind=f"leaf {kind}",
        place=f"{place_of(path)}{general(keys)}",
        what=f"{path}:{key_path(keys)}",
        changed={path: data},
    )


def _changes(value: Any) -> Iterator[tuple[Path, str, Any]]:
    """(keys, what was done, the whole document bent) for every leaf; the document is bent back after each."""
    for keys, leaf in list(leaves(value, ())):
        if not keys:
            continue
        parent, last = _at(value, keys[:-1]), keys[-1]
        for kind, new in (("changed", _another(leaf)), ("retyped", _retyped(leaf))):
            parent[last] = new
            yield keys, kind, value
        del parent[last]
        yield keys, "removed", value
        if isinstance(last, int):
            parent.insert(last, leaf)
        else:
            parent[last] = leaf


def written(value: Any) -> bytes:
    """Canonical bytes; by the C encoder, which for ASCII without decimals writes the same."""
    text = _PLAIN.encode(value)
    return text.encode() if text.isascii() else canonical(value)


_PLAIN = json.JSONEncoder(ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"))


def _at(value: Any, keys: Path) -> Any:
    for key in keys:
        value = value[key]
    return value


def _another(leaf: Any) -> Any:
    """Another value of the same type and, where that can be told, of the same form."""
    if isinstance(leaf, bool):
        return not leaf
    if isinstance(leaf, int):
        return leaf + 1
    if isinstance(leaf, str):
        hexadecimal = len(leaf) in {32, 64} and set(leaf) <= set("0123456789abcdef")
        return sha256(leaf.encode())[: len(leaf)] if hexadecimal else f"{leaf}x"
    return 1 if leaf is None else [1] if leaf == [] else {"x": 1}


def _retyped(leaf: Any) -> Any:
    if isinstance(leaf, bool):
        return int(leaf)
    if isinstance(leaf, int):
        return str(leaf)
    return [leaf] if isinstance(leaf, str) else ""
