"""The bytes that a cold process writes: alignment, capture, record. Pure."""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ledger.canonical import canonical, digest, sha256
from mechanism.engine.protocol import Array, ExecutedGemm
from mechanism.kernel.alignment import Alignment
from mechanism.process.symbols import Symbols

#: safetensors' names of the element types.
_CODES = {"float16": "F16", "bfloat16": "BF16"}


def alignment_bytes(alignment: Alignment) -> bytes:
    """`alignments/<sha256>.json`: the active prefix; buffer lengths are told apart from it."""
    return canonical(
        {
            "schema_version": 1,
            "block_size_m": alignment.block_size_m,
            "routes": alignment.routes,
            "sorted_token_ids": list(alignment.sorted_token_ids),
            "expert_ids": list(alignment.expert_ids),
            "num_tokens_post_padded": alignment.num_tokens_post_padded,
        }
    )


def raw(array: Array) -> bytes:
    """An array's little-endian C-order bytes."""
    return array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes(order="C")


def capture_bytes(tensors: Sequence[tuple[str, Sequence[int], bytes]], dtype: str) -> bytes:
    """`objects/<sha256>.safetensors` from (name, shape, raw bytes), in this order and without metadata.

    safetensors' own writer knows no bfloat16 without a third package; the format is a length, a JSON
    header padded to 8 bytes, and the data.
    """
    table: dict[str, Any] = {}
    begin = 0
    for name, shape, data in tensors:
        table[name] = {
            "dtype": _CODES[dtype],
            "shape": list(shape),
            "data_offsets": [begin, begin + len(data)],
        }
        begin += len(data)
    header = json.dumps(table, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    return b"".join([len(header).to_bytes(8, "little"), header, *(data for _, _, data in tensors)])


def surface(name: str, shape: Sequence[int], data: bytes, dtype: str) -> dict[str, Any]:
    """A `ledger.record.CapturedSurface` as plain data."""
    return {
        "name": name,
        "dtype": dtype,
        "shape": list(shape),
        "byte_order": "little",
        "sha256": sha256(data),
    }


def gemm(executed: ExecutedGemm) -> dict[str, Any]:
    """A `ledger.record.DeliveredGemm` as plain data."""
    ordered = sorted(executed.slices, key=lambda tile: tile[:2])
    slices = [[block, column, [list(part) for part in parts]] for block, column, parts in ordered]
    return {
        "name": executed.name,
        "tile_k": executed.tile_k,
        "tile_n": executed.tile_n,
        "threads": executed.threads,
        "grid": executed.grid,
        "symbol": executed.symbol,
        "slices": digest(slices),
    }


def process_facts(symbols: Symbols, nonce: str, containment: Mapping[str, Any]) -> dict[str, Any]:
    """Which process this is, as `ledger.record.Process`: what the kernel says, not what was asked for."""
    stat = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
    boot = Path("/proc/sys/kernel/random/boot_id").read_bytes().strip()
    return {
        "pid": os.getpid(),
        "started_us": int(stat[19]) * 1_000_000 // os.sysconf("SC_CLK_TCK"),  # proc(5), field 22
        "boot_id": sha256(boot),
        "nonce": nonce,
        "flags": flags(),
        "hash_seed": hash_seed(os.environ),
        "argv": [symbols.hide(part) for part in sys.orig_argv],
        "environment": environment(),
        "working_folder": str(Path.cwd()),
        "containment": containment,
    }


def flags() -> dict[str, int]:
    """`sys.flags` by name; those that are booleans as 0 or 1."""
    return {
        name: int(getattr(sys.flags, name))
        for name in dir(sys.flags)
        if not name.startswith(("_", "n_")) and name not in ("count", "index")
    }


def hash_seed(given: Mapping[str, str]) -> str:
    """The seed of str hashes: `random` unless the environment fixed it and the flags let it."""
    seed = given.get("PYTHONHASHSEED", "random")
    return "random" if sys.flags.ignore_environment or seed == "" else seed


def environment() -> dict[str, str]:
    """The environment as exec delivered it. Python adds to os.environ in some locales (PEP 538)."""
    block = Path("/proc/self/environ").read_bytes()
    pairs = (entry.partition(b"=") for entry in block.split(b"\0") if entry)
    return {name.decode(): value.decode("utf-8", "backslashreplace") for name, _, value in pairs}
