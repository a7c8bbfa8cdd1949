"""Storing an imported layer where every process looks for fixtures, under the digest of its plan section.

Beside the three files of every fixture lies `import.json`: where the layer came from. With `private` it holds
digests only, and neither it nor the weights belong in a release.
"""

import os
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ledger.canonical import canonical, sha256
from ledger.lock import FixtureLock
from ledger.plan import ImportedFixture
from ledger.record import RoutingFile
from mechanism.checkpoint.inputs import Inputs
from mechanism.checkpoint.layer import ImportedLayer, described
from mechanism.checkpoint.shards import Array
from mechanism.fixture import container
from mechanism.fixture.build import recipe_digest
from mechanism.fixture.errors import StoreError
from mechanism.fixture.layout import tensor_specs
from mechanism.fixture.obtain import INPUTS, tensors_digest
from mechanism.fixture.place import LOCK, ROUTING, TENSORS, folder_of
from mechanism.fixture.store import lock_digest

ORIGIN = "import.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class Kept:
    """What was stored: the section that a plan names it by, its lock, and where it lies."""

    section: ImportedFixture
    lock: FixtureLock
    folder: Path


def keep(
    layer: ImportedLayer, inputs: Inputs, cache: Path, *, private: bool, origin: Mapping[str, Any]
) -> Kept:
    """Store the nine tensors of an imported layer; one that is there already is replaced by equal bytes.

    `origin` is what `import.json` is to say. Raises StoreError if the folder cannot be written.
    """
    tensors: dict[str, Array] = {**layer.weights}
    tensors.update({name: getattr(inputs, name) for name in INPUTS})
    routing = canonical(_routing(layer, inputs).model_dump(mode="json"))
    section = _section(layer, inputs, tensors, private=private)
    folder = folder_of(recipe_digest(section), cache)
    lock = _lock(tensors, recipe=folder.name, routing=routing)
    partial = folder.with_name(f".{folder.name}.{secrets.token_hex(8)}.partial")
    try:
        partial.mkdir(parents=True, mode=0o700 if private else 0o777)
        _write_tensors(section, partial / TENSORS, tensors)
        for name, data in (
            (ROUTING, routing),
            (LOCK, canonical(lock.model_dump(mode="json"))),
            (ORIGIN, canonical({"schema_version": 1, "private": private, **origin})),
        ):
            _write(partial / name, [data])
        if folder.exists():
            folder.rename(partial.with_suffix(".replaced"))
        partial.rename(folder)
    except OSError as fault:
        raise StoreError(
            f"{folder}: cannot be written: {fault.strerror or fault}; make room, or name another folder in"
            " MECHANISM_CACHE"
        ) from fault
    finally:
        for left in (partial, partial.with_suffix(".replaced")):
            shutil.rmtree(left, ignore_errors=True)
    return Kept(section=section, lock=lock, folder=folder)


def _section(
    layer: ImportedLayer, inputs: Inputs, tensors: Mapping[str, Array], *, private: bool
) -> ImportedFixture:
    lock = _lock(tensors, recipe="0" * 64, routing=b"")
    return ImportedFixture(
        recipe="imported-awq/1",
        weights=tensors_digest(lock, inputs=False),
        inputs=tensors_digest(lock, inputs=True),
        private=private,
        tokens=inputs.hidden.shape[0],
        experts=layer.settings.experts,
        top_k=inputs.topk_ids.shape[1],
        hidden=layer.settings.hidden,
        intermediate=layer.settings.intermediate,
        group_size=layer.settings.group_size,
        dtype="float16",
    )


def _routing(layer: ImportedLayer, inputs: Inputs) -> RoutingFile:
    bits = np.ascontiguousarray(inputs.topk_weights).view(np.uint32)
    return RoutingFile(
        schema_version=1,
        tokens=inputs.hidden.shape[0],
        top_k=inputs.topk_ids.shape[1],
        experts=layer.settings.experts,
        topk_ids=tuple(map(tuple, inputs.topk_ids.tolist())),
        topk_weights_bits=tuple(map(tuple, bits.tolist())),
    )


def _lock(tensors: Mapping[str, Array], *, recipe: str, routing: bytes) -> FixtureLock:
    lock: dict[str, Any] = {
        "recipe": recipe,
        "routing": sha256(routing),
        "tensors": {name: described(np.ascontiguousarray(array)) for name, array in tensors.items()},
    }
    return FixtureLock.model_validate_json(canonical({**lock, "digest": lock_digest(lock)}))


def _write_tensors(section: ImportedFixture, path: Path, tensors: Mapping[str, Array]) -> None:
    specs = tensor_specs(section)
    placed = container.entries([(spec.name, spec.dtype, spec.shape) for spec in specs])
    data = [
        np.ascontiguousarray(tensors[spec.name], dtype=np.dtype(spec.dtype).newbyteorder("<"))
        for spec in specs
    ]
    _write(path, [container.header(placed), *(array.tobytes() for array in data)])


def _write(path: Path, pieces: list[bytes]) -> None:
    with path.open("xb") as file:
        for piece in pieces:
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())
