"""A good bundle, forged without running anything: right by every rule, its tensors drawn from a generator.

What a surface's bytes are follows the one rule that claims rest on: a row depends on the slice lists of the
block it sits in, and each later surface on the one before. So equal treatments give equal bytes and the
claims of the plan hold, though no product was ever computed.

Three stages, so that a test can bend a bundle where it wants and have everything behind it fit again:
`Parts` are the documents; `relink` redoes the digests that they hold of each other; `seal` redoes log,
manifest and summary, and gives the files.
"""

import copy
import json
import random
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from ledger import strict_yaml
from ledger.canonical import NO_DIGEST, digest, sha256
from ledger.model import read_yaml
from ledger.plan import Fixture, Plan
from ledger.record import MARKERS, AlignmentFile, RoutingFile, record_path
from verifier.arithmetic import geometry
from verifier.arithmetic.alignment import blocks_of
from verifier.arithmetic.cells import Planned
from verifier.arithmetic.schedule import Launch, block_ranges, slices_digest
from verifier.workings import Workings, alignment_digest

ROOT = Path(__file__).resolve().parents[2]
Document = dict[str, Any]
Files = dict[str, bytes]
_PLAIN = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":"))
_NO_NAN = bytes(byte & 0xBF for byte in range(256))  # no byte can then hold an exponent of all ones


@dataclass(kw_only=True)
class Parts:
    """A bundle's documents, to be bent by a test; `records` by path, a record's attempt is its own."""

    plan: bytes
    ledger: bytes
    lock: Document
    routing: Document
    build: Document
    alignments: dict[str, Document]
    records: dict[str, Document]
    objects: Files
    attempts: list[Document]
    raw: str = "included"
    extra: Files = field(default_factory=dict)

    def copy(self) -> "Parts":
        """Another one, to be bent."""
        bent = copy.copy(self)
        for name in ("lock", "routing", "build", "alignments", "records", "attempts"):
            setattr(
                bent, name, json.loads(json.dumps(getattr(self, name)))
            )  # several times faster than deepcopy
        bent.objects, bent.extra = dict(self.objects), dict(self.extra)
        return bent


def canonical(value: Any) -> bytes:
    """The canonical bytes of an ASCII document without decimals, quickly: a test bends one of 70 records."""
    return _PLAIN.encode(value).encode()


def read_plan(data: bytes) -> Plan:
    """A plan from its bytes."""
    return read_yaml(Plan, strict_yaml.load(data, name="plan.yaml"), name="plan.yaml")


def good_parts(name: str = "quick", *, plan: bytes | None = None, ledger: bytes | None = None) -> Parts:
    """A bundle of a committed plan, or of the plan and ledger given."""
    plan = (ROOT / "plans" / f"{name}.yaml").read_bytes() if plan is None else plan
    ledger = (ROOT / "ledger" / "claims" / f"{name}.yaml").read_bytes() if ledger is None else ledger
    model = read_plan(plan)
    routing = _routing(model)
    worked = Workings(model, RoutingFile.model_validate_json(canonical(routing)))
    parts = Parts(
        plan=plan,
        ledger=ledger,
        lock=_lock(model, worked, routing),
        routing=routing,
        build=_build(model),
        alignments={},
        records={},
        objects={},
        attempts=[],
    )
    for number, cell in enumerate(worked.cells, start=1):
        _process(parts, model, worked, cell, number)
    relink(parts)
    return parts


def relink(parts: Parts) -> None:
    """Redo the digests that documents hold of each other: plan, ledger, routing, fixture, build."""
    fixture = parts.lock["fixture"]
    ids = [value for row in parts.routing["topk_ids"] for value in row]
    bits = [value for row in parts.routing["topk_weights_bits"] for value in row]
    for name, values, code in (("topk_ids", ids, "i"), ("topk_weights", bits, "I")):
        if name in fixture["tensors"]:
            fixture["tensors"][name]["sha256"] = sha256(struct.pack(f"<{len(values)}{code}", *values))
    fixture["routing"] = sha256(canonical(parts.routing))
    fixture["digest"] = digest({key: value for key, value in fixture.items() if key != "digest"})
    parts.lock["plan"]["sha256"] = sha256(parts.plan)
    parts.lock["ledger"]["sha256"] = sha256(parts.ledger)
    for record in parts.records.values():
        record["plan"] = sha256(parts.plan)
        record["software"] = sha256(canonical(parts.build))
        record["fixture"] = fixture["digest"]


def seal(
    parts: Parts,
    *,
    log: Callable[[list[bytes]], list[bytes]] | None = None,
    manifest: Callable[[list[bytes]], list[bytes]] | None = None,
    summary: Callable[[Document], Document] | None = None,
) -> Files:
    """The files of a bundle, log chained, manifest and summary made; each may be bent before it is hashed."""
    files: Files = {
        "plan.yaml": parts.plan,
        "ledger.yaml": parts.ledger,
        "plan.lock": canonical(parts.lock),
        "routing.json": canonical(parts.routing),
        "build.json": canonical(parts.build),
        **{path: canonical(record) for path, record in parts.records.items()},
        **{f"alignments/{name}.json": canonical(value) for name, value in parts.alignments.items()},
        **{f"objects/{name}.safetensors": data for name, data in parts.objects.items()},
        **parts.extra,
    }
    lines = _chain(parts, files)
    files["attempts.jsonl"] = b"".join(log(lines) if log else lines)
    return reseal(files, parts, manifest=manifest, summary=summary)


def reseal(
    files: Files,
    parts: Parts,
    *,
    manifest: Callable[[list[bytes]], list[bytes]] | None = None,
    summary: Callable[[Document], Document] | None = None,
) -> Files:
    """The same files with a manifest and a summary that fit them."""
    files = {path: data for path, data in files.items() if path not in {"files.jsonl", "bundle.json"}}
    lines = [
        canonical({"path": path, "size": len(data), "sha256": sha256(data)}) + b"\n"
        for path, data in sorted(files.items())
    ]
    listed = b"".join(manifest(lines) if manifest else lines)
    folders = [path.partition("/")[0] for path in files]
    model = read_plan_or_none(parts.plan)
    document: Document = {
        "schema_version": 1,
        "name": model.name if model else "quick",
        "engine": parts.build["engine"],
        "evidence": parts.build["evidence"],
        "files": sha256(listed),
        "plan": sha256(files.get("plan.yaml", b"")),
        "lock": sha256(files.get("plan.lock", b"")),
        "ledger": sha256(files.get("ledger.yaml", b"")),
        "raw": parts.raw,
        "counts": {
            "files": len(files),
            "records": folders.count("records"),
            "alignments": folders.count("alignments"),
            "objects": folders.count("objects"),
            "attempts": sum(event["event"] == "started" for event in parts.attempts),
        },
    }
    document = summary(document) if summary else document
    return {**files, "files.jsonl": listed, "bundle.json": canonical(document)}


@lru_cache(maxsize=64)
def read_plan_or_none(data: bytes) -> Plan | None:
    """A plan, or None for bytes that are none."""
    try:
        return read_plan(data)
    except ValueError:
        return None


def write(files: Files, folder: Path) -> Path:
    """Put files into a new folder."""
    for path, data in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    return folder


def recapture(parts: Parts, path: str, tensors: dict[str, bytes]) -> None:
    """Give a record other captured bytes, and all that follows from them."""
    record = parts.records[path]
    for surface in record["surfaces"]:
        surface["sha256"] = sha256(tensors[surface["name"]])
    record["trajectory"] = digest([surface["sha256"] for surface in record["surfaces"]])
    shapes = {surface["name"]: surface["shape"] for surface in record["surfaces"]}
    store(parts, record, safetensors(tensors, shapes))
    prune(parts)


def store(parts: Parts, record: Document, data: bytes) -> None:
    """Store a capture and have the record name it."""
    record["capture"] = sha256(data)
    parts.objects[record["capture"]] = data


def prune(parts: Parts) -> None:
    """Drop the alignments and captures that no record names."""
    cited = {record["capture"] for record in parts.records.values()}
    aligned = {record["treatment"]["alignment"]["sha256"] for record in parts.records.values()}
    parts.objects = {name: data for name, data in parts.objects.items() if name in cited}
    parts.alignments = {name: value for name, value in parts.alignments.items() if name in aligned}


def realign(parts: Parts, path: str, alignment: Document) -> None:
    """Give a record another alignment."""
    name = digest(alignment)
    parts.alignments[name] = alignment
    parts.records[path]["treatment"]["alignment"]["sha256"] = name
    prune(parts)


def safetensors(tensors: dict[str, bytes], shapes: dict[str, list[int]]) -> bytes:
    """A capture file: length, JSON header padded to 8 bytes, data."""
    header: Document = {}
    begin = 0
    for name, data in tensors.items():
        header[name] = {"dtype": "F16", "shape": shapes[name], "data_offsets": [begin, begin + len(data)]}
        begin += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + b"".join(tensors.values())


def _chain(parts: Parts, files: Files) -> list[bytes]:
    previous, lines = NO_DIGEST, []
    for event in parts.attempts:
        linked = {**event, "previous": previous}
        if str(event.get("record")).startswith("records/"):
            data = files.get(event["record"])
            linked["record"] = sha256(data) if data is not None else NO_DIGEST
        line = canonical(linked)
        previous = sha256(line)
        lines.append(line + b"\n")
    return lines


def _routing(plan: Plan) -> Document:
    fixture = plan.fixture
    if not isinstance(fixture, Fixture):
        raise TypeError("expected a plan with a recipe")
    ids: list[int] = [-1] * fixture.routes
    for pinned in fixture.routing.pinned:
        for route in pinned.routes:
            ids[route] = pinned.expert
    dealt = [dealt.first + place for dealt in fixture.routing.dealt for place in range(dealt.count)]
    free = [route for route, expert in enumerate(ids) if expert < 0]
    for place, route in enumerate(free):
        ids[route] = dealt[place % len(dealt)]
    rows = range(fixture.tokens)
    return {
        "schema_version": 1,
        "tokens": fixture.tokens,
        "top_k": fixture.top_k,
        "experts": fixture.experts,
        "topk_ids": [ids[row * fixture.top_k : (row + 1) * fixture.top_k] for row in rows],
        "topk_weights_bits": [[0x3E800000 + slot for slot in range(fixture.top_k)] for _ in rows],
    }


def _lock(plan: Plan, worked: Workings, routing: Document) -> Document:
    launch, sms = plan.build.launch, plan.build.device.sms
    return {
        "schema_version": 1,
        "plan": {"name": plan.name, "sha256": NO_DIGEST},
        "ledger": {"name": plan.ledger, "sha256": NO_DIGEST},
        "fixture": {
            "recipe": digest(plan.fixture.model_dump(mode="json")),
            "routing": sha256(canonical(routing)),
            "tensors": _tensors(plan),
            "digest": NO_DIGEST,
        },
        "padded_blocks": worked.padded_blocks,
        "launches": [
            {
                "name": name,
                "tile_k": one.tile[0],
                "tile_n": one.tile[1],
                "threads": one.tile[0] * one.tile[1] // 64,
                "ctas_per_sm": one.ctas_per_sm,
                "grid": sms * one.ctas_per_sm,
            }
            for name, one in (("w13", launch.w13), ("w2", launch.w2))
        ],
        "cells": [as_locked(cell) for cell in worked.cells],
    }


def as_locked(cell: Planned) -> Document:
    """A process as plan.lock lists it."""
    swap = cell.swap.model_dump(mode="json") if cell.swap else None
    return {**cell._asdict(), "swap": swap, "grids": list(cell.grids)}


def _tensors(plan: Plan) -> Document:
    f = plan.fixture
    shapes: dict[str, tuple[str, list[int]]] = {
        "hidden": ("float16", [f.tokens, f.hidden]),
        "topk_ids": ("int32", [f.tokens, f.top_k]),
        "topk_weights": ("float32", [f.tokens, f.top_k]),
    }
    for name, k, n in (("w13", f.hidden, 2 * f.intermediate), ("w2", f.intermediate, f.hidden)):
        shapes[f"{name}_qweight"] = ("int32", [f.experts, k, n // 8])
        shapes[f"{name}_qzeros"] = ("int32", [f.experts, k // f.group_size, n // 8])
        shapes[f"{name}_scales"] = ("float16", [f.experts, k // f.group_size, n])
    return {
        name: {"dtype": dtype, "shape": shape, "sha256": sha256(name.encode())}
        for name, (dtype, shape) in shapes.items()
    }


def _build(plan: Plan) -> Document:
    simulated = plan.engine == "simulated"
    return {
        "schema_version": 1,
        "evidence": "simulated" if simulated else "gpu",
        "engine": plan.engine,
        "kernel": plan.build.kernel,
        "arithmetic": "numpy" if simulated else "forged",
        "device": plan.build.device.model_dump(mode="json"),
        "driver": None if simulated else "570.1",
        "versions": {"python": "CPython 3.11.7"},
        "source": {"tests/verifier/forge.py": sha256(b"forged")},
    }


def _process(parts: Parts, plan: Plan, worked: Workings, cell: Any, number: int) -> None:
    """One process: its alignment, its capture, its record, its two lines of the log."""
    treated = worked.cell[cell.cell]
    native = worked.native(cell.donor or cell.history)
    aligned = native if treated.alignment == "constructed" else worked.treated(treated, native)
    if aligned is None:
        raise ValueError(f"{cell.cell}: no alignment")
    name = alignment_digest(aligned)
    parts.alignments[name] = aligned.model_dump(mode="json")
    path = record_path(cell.phase, cell.cell, cell.history, cell.replicate)
    nonce = sha256(f"nonce {number}".encode())[:32]
    record = _record(plan, worked, cell, number, nonce)
    record["treatment"]["alignment"]["sha256"] = name
    tensors = _surfaces(plan, worked, cell.grids, aligned)
    shapes: dict[str, list[int]] = {s: list(geometry.surface_shape(plan.fixture, s)) for s in plan.surfaces}
    record["surfaces"] = [
        {
            "name": surface,
            "dtype": "float16",
            "shape": shapes[surface],
            "byte_order": "little",
            "sha256": sha256(data),
        }
        for surface, data in tensors.items()
    ]
    record["trajectory"] = digest([surface["sha256"] for surface in record["surfaces"]])
    store(parts, record, safetensors(tensors, shapes))
    parts.records[path] = record
    parts.attempts += _attempt(cell, number, nonce, path)


def _attempt(cell: Any, number: int, nonce: str, path: str) -> list[Document]:
    started: Document = {
        "event": "started",
        "attempt": number,
        "phase": cell.phase,
        "cell": cell.cell,
        "history": cell.history,
        "replicate": cell.replicate,
        "nonce": nonce,
        "time_us": number * 1000,
    }
    ended: Document = {
        "event": "ended",
        "attempt": number,
        "outcome": "valid",
        "reason": "",
        "exit_code": 0,
        "signal": None,
        "descendants_killed": 0,
        "stderr": {"size": 0, "sha256": sha256(b""), "tail": ""},
        "record": path,
        "time_us": number * 1000 + 900,
    }
    return [started, ended]


def _record(plan: Plan, worked: Workings, cell: Any, number: int, nonce: str) -> Document:
    fixture, simulated = plan.fixture, plan.engine == "simulated"
    symbol = "simulated:forged" if simulated else "forged"
    lengths = geometry.buffer_lengths(fixture.routes, fixture.experts, worked.block)
    constructed = cell.alignment == "constructed"
    return {
        "schema_version": 1,
        "evidence": "simulated" if simulated else "gpu",
        "engine": plan.engine,
        "plan": NO_DIGEST,
        "phase": cell.phase,
        "cell": cell.cell,
        "history": cell.history,
        "replicate": cell.replicate,
        "attempt": number,
        "process": {
            "pid": 1000 + number,
            "started_us": number * 1000,
            "boot_id": sha256(b"boot"),
            "nonce": nonce,
            "flags": {"no_user_site": 1, "safe_path": 1},
            "hash_seed": plan.environment.get("PYTHONHASHSEED", "random"),
            "argv": ["$PYTHON", "-s", "-P", "-m", "mechanism.process.child", "$BUNDLE/staging/request.json"],
            "environment": dict(plan.environment),
            "working_folder": "/",
            "containment": {
                "by": "namespaces",
                "bundle": "read-only",
                "elsewhere": "read-only",
                "network": "none",
                "memory": 2**34,
                "file_size": 2**30,
                "processes": 1024,
                "nice": 0,
            },
        },
        "markers": [{"name": name, "time_us": number * 1000 + place} for place, name in enumerate(MARKERS)],
        "software": NO_DIGEST,
        "fixture": NO_DIGEST,
        "treatment": {
            "alignment": {
                "source": "constructed" if constructed else "injected",
                "sha256": NO_DIGEST,
                "sorted_length": lengths[0],
                "expert_length": lengths[1],
            },
            "gemms": [
                _gemm(worked, "w13", cell.grids[0], symbol),
                _gemm(worked, "w2", cell.grids[1], symbol),
            ],
        },
        "surfaces": [],
        "trajectory": NO_DIGEST,
        "capture": NO_DIGEST,
        "activation": {"candidate": "rn32" if simulated else "device", "ambiguous_elements": 0},
        "assumptions": list(plan.assumptions),
    }


def _launch(worked: Workings, gemm: Any, grid: int) -> Launch:
    return worked.launch(gemm, grid=grid, padded_blocks=worked.padded_blocks)


def _gemm(worked: Workings, gemm: Any, grid: int, symbol: str) -> Document:
    launch = _launch(worked, gemm, grid)
    return {
        "name": gemm,
        "tile_k": launch.tile_k,
        "tile_n": launch.tile_n,
        "threads": launch.tile_k * launch.tile_n // 64,
        "grid": grid,
        "symbol": symbol,
        "slices": slices_digest(launch),
    }


def _surfaces(plan: Plan, worked: Workings, grids: tuple[int, int], aligned: AlignmentFile) -> Files:
    """Bytes of every surface: drawn from a generator seeded by what they may depend on."""
    routes = range(plan.fixture.routes)
    blocks = [blocks_of(aligned, route)[0] for route in routes]
    w13 = repr([block_ranges(_launch(worked, "w13", grids[0]), block) for block in blocks])
    w2 = w13 + repr([block_ranges(_launch(worked, "w2", grids[1]), block) for block in blocks])
    found: Files = {}
    for name in plan.surfaces:
        rows, columns = geometry.surface_shape(plan.fixture, name)
        seed = f"{name} {w13 if name in {'w13', 'activation'} else w2}"
        found[name] = random.Random(seed).randbytes(rows * columns * 2).translate(_NO_NAN)
    return found
