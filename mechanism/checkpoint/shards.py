"""Finding and reading the tensors of a checkpoint: one safetensors file, or shards with an index.

Headers only are read to list what is there; a tensor's bytes are mapped when asked for and never more than
it. bfloat16 comes as uint16 bits under its own name: numpy has no such type, and nothing is converted here.
"""

import json
import mmap
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from mechanism.checkpoint.errors import ShardError

Array = npt.NDArray[Any]

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
_LENGTH_BYTES = 8
_LARGEST_HEADER = 100_000_000  # bytes, safetensors' own limit
#: safetensors' element types: our name, numpy's little-endian type.
_DTYPES = {
    "I8": ("int8", "i1"),
    "U8": ("uint8", "u1"),
    "I16": ("int16", "<i2"),
    "I32": ("int32", "<i4"),
    "I64": ("int64", "<i8"),
    "F16": ("float16", "<f2"),
    "BF16": ("bfloat16", "<u2"),
    "F32": ("float32", "<f4"),
    "F64": ("float64", "<f8"),
    "BOOL": ("bool", "?"),
    "F8_E4M3": ("float8_e4m3", "u1"),
    "F8_E5M2": ("float8_e5m2", "u1"),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Stored:
    """Where one tensor lies. `begin` and `end`: bytes from the start of the file."""

    name: str
    file: Path
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int

    def read(self) -> Array:
        """The tensor as a read-only array over the file; bfloat16 as uint16 bits. Raises ShardError."""
        code = next(numpy for ours, numpy in _DTYPES.values() if ours == self.dtype)
        count = (self.end - self.begin) // np.dtype(code).itemsize
        if count == 0:
            return np.empty(self.shape, dtype=code)
        try:
            with self.file.open("rb") as file:
                mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        except OSError as fault:
            raise ShardError(
                f"{self.file}: cannot be read: {fault.strerror}; see to it, or download it again"
            ) from fault
        array: Array = np.frombuffer(mapped, dtype=code, count=count, offset=self.begin)
        return array.reshape(self.shape)


def tensors_of(folder: Path) -> Mapping[str, Stored]:
    """Every tensor of a checkpoint by name.

    Raises ShardError for a shard that is missing, truncated or not safetensors, for a tensor that the index
    places in a shard without it or that two shards hold, and for a checkpoint in another container.
    """
    index = folder / INDEX
    if not index.is_file():
        single = folder / SINGLE
        if single.is_file():
            return tensors_in(single)
        raise ShardError(_nothing(folder))
    placed = _index(index)
    files = sorted(set(placed.values()))
    missing = [name for name in files if not (folder / name).is_file()]
    if missing:
        lost = sum(file in missing for file in placed.values())
        raise ShardError(
            f"{folder}: expected {len(files)} shards, {len(missing)} missing: {', '.join(missing)}, which"
            f" {'hold' if len(missing) > 1 else 'holds'} {lost} tensors; download the checkpoint again"
        )
    found: dict[str, Stored] = {}
    for name in files:
        for stored in _header(folder / name):
            if stored.name in found:
                raise ShardError(
                    f"{folder}: tensor {stored.name}: expected in one shard, got it in"
                    f" {found[stored.name].file.name} and {name}"
                )
            found[stored.name] = stored
    for tensor, name in placed.items():
        if tensor not in found or found[tensor].file.name != name:
            raise ShardError(f"{index}: tensor {tensor}: expected in {name}, where it is not")
    return MappingProxyType(found)


def tensors_in(path: Path) -> Mapping[str, Stored]:
    """Every tensor of one safetensors file by name. Raises ShardError, or OSError if it cannot be opened."""
    return MappingProxyType({stored.name: stored for stored in _header(path)})


def _nothing(folder: Path) -> str:
    if not folder.is_dir():
        return f"{folder}: expected the folder of a checkpoint, found none"
    other = sorted(item.name for item in folder.glob("*") if item.suffix in {".bin", ".pt", ".pth", ".gguf"})
    if other:
        return (
            f"{folder}: expected {SINGLE} or {INDEX}, got {', '.join(other[:3])}; pickles are not opened"
            f" here:"
            " save the checkpoint again as safetensors"
        )
    return f"{folder}: expected {SINGLE} or {INDEX}, found neither"


def _index(path: Path) -> Mapping[str, str]:
    """Tensor name to shard name; shards lie beside the index."""
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError) as fault:
        raise ShardError(f"{path}: cannot be read as JSON: {fault}; download it again") from fault
    placed = value.get("weight_map") if isinstance(value, dict) else None
    if not isinstance(placed, dict) or not placed:
        raise ShardError(f"{path}: expected weight_map with tensor names, found none; download it again")
    for tensor, name in placed.items():
        if not isinstance(name, str) or Path(name).name != name:
            raise ShardError(f"{path}: tensor {tensor}: expected a file beside the index, got {name!r:.80}")
    return placed


def _header(path: Path) -> tuple[Stored, ...]:
    """All tensors of one file, in the order of its header."""
    size = path.stat().st_size
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        length = int.from_bytes(os.pread(descriptor, _LENGTH_BYTES, 0), "little")
        if size < _LENGTH_BYTES or length > min(size - _LENGTH_BYTES, _LARGEST_HEADER):
            raise ShardError(
                f"{path}: expected a safetensors header, got {size} bytes; it is truncated, a pointer to"
                " a file that was not downloaded, or another format"
            )
        text = os.pread(descriptor, length, _LENGTH_BYTES)
    finally:
        os.close(descriptor)
    try:
        table = json.loads(text)
        table.pop("__metadata__", None)
        stored = tuple(
            _stored(path, name, fields, start=_LENGTH_BYTES + length) for name, fields in table.items()
        )
    except (ValueError, TypeError, KeyError, AttributeError) as fault:
        raise ShardError(
            f"{path}: the safetensors header cannot be read: {fault}; download it again"
        ) from fault
    end = max((item.end for item in stored), default=_LENGTH_BYTES + length)
    if end > size:
        raise ShardError(f"{path}: expected {end} bytes, got {size}; it is truncated: download it again")
    return stored


def _stored(path: Path, name: str, fields: Any, *, start: int) -> Stored:
    begin, end = fields["data_offsets"]
    code, shape = fields["dtype"], tuple(fields["shape"])
    if code not in _DTYPES:
        raise ValueError(f"tensor {name}: dtype {code} is not known here")
    dtype, numpy = _DTYPES[code]
    items = 1
    for extent in shape:
        items *= extent
    if begin < 0 or end - begin != items * np.dtype(numpy).itemsize:
        raise ValueError(f"tensor {name}: {end - begin} bytes do not fit {dtype} {list(shape)}")
    return Stored(name=name, file=path, dtype=dtype, shape=shape, begin=start + begin, end=start + end)
