"""The bundle that all cases start from: eight processes of the toy layer, their bits computed by the engine here.

Nothing of today is in it: nonces, times and process ids are the forge's, sources are named by fixed digests.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest

from ledger.canonical import canonical, digest, sha256
from ledger.record import AlignmentFile
from mechanism.campaign.injection import from_bytes
from mechanism.engine.asked import LaunchRequest
from mechanism.engine.protocol import Layer, Treatment
from mechanism.engine.simulated import SimulatedEngine
from mechanism.fixture.build import build
from mechanism.fixture.place import folder_of
from mechanism.fixture.store import verify
from mechanism.process import documents
from tests.reexecute.rebuilt import _layer
from tests.verifier import forge
from tests.verifier.forge import Parts

HERE = Path(__file__).resolve().parent
PLAN_NAME = "small"


def plan_bytes() -> bytes:
    """plans/quick.yaml with two cells, two replicates and a ledger of its own."""
    text = (forge.ROOT / "plans" / "quick.yaml").read_text(encoding="utf-8")
    for old, new in (
        ("\nname: quick\n", f"\nname: {PLAN_NAME}\n"),
        ("\nledger: quick\n", f"\nledger: {PLAN_NAME}\n"),
        ("replicates: 5", "replicates: 2"),
    ):
        if old not in text:
            raise ValueError(f"plans/quick.yaml: expected {old!r}, found it nowhere")
        text = text.replace(old, new)
    before, _, _ = text.partition("phases:\n")
    phases = """phases:
  - name: qualification
    cells:
      - {name: native, alignment: constructed, histories: [H0, H1]}
  - name: transfer
    cells:
      - {name: cross-order, alignment: opposite, histories: [H0, H1]}
"""
    return (before + phases).encode()


def ledger_bytes() -> bytes:
    """The claims of the base bundle."""
    return (HERE / "small_ledger.yaml").read_bytes()


def base_parts(*, plan: bytes | None = None, ledger: bytes | None = None) -> Parts:
    """The documents of the base bundle, good at every level; or of a plan and a ledger made from its own."""
    plan = plan_bytes() if plan is None else plan
    ledger = ledger_bytes() if ledger is None else ledger
    model = forge.read_plan(plan)
    with tempfile.TemporaryDirectory() as name:
        lock = build(model.fixture, Path(name))
        folder = folder_of(lock.recipe, Path(name))
        routing = json.loads((folder / "routing.json").read_bytes())
        layer = _layer(model, verify(folder, lock.model_dump(mode="json")))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(forge, "_routing", lambda _plan: routing)
        parts = forge.good_parts(plan=plan, ledger=ledger)
    parts.lock["fixture"] = lock.model_dump(mode="json")
    parts.build["source"] = {"mechanism/kernel/gemm.py": sha256(b"a fixed stand-in")}
    parts.objects = {}
    known: dict[str, Any] = {}
    for record in parts.records.values():
        key = record["treatment"]["alignment"]["sha256"]
        if key not in known:
            known[key] = _execute(record, parts, layer)
        _fill(parts, record, known[key])
    forge.relink(parts)
    return parts


def _execute(record: dict[str, Any], parts: Parts, layer: Layer) -> Any:
    """What the simulated engine gives under one delivered treatment."""
    asked = record["treatment"]
    file = parts.alignments[asked["alignment"]["sha256"]]
    aligned = AlignmentFile.model_validate_json(canonical(file)).model_dump(mode="json")
    keys = ("name", "tile_k", "tile_n", "threads", "grid")
    w13, w2 = (LaunchRequest(**{key: gemm[key] for key in keys}) for gemm in asked["gemms"])
    alignment = from_bytes(canonical(aligned), experts=layer.shape.experts, kernel=layer.kernel)
    return SimulatedEngine().execute(Treatment(alignment=alignment, launches=(w13, w2)), layer)


def _fill(parts: Parts, record: dict[str, Any], result: Any) -> None:
    """Put the engine's bits where the forge drew some."""
    record["treatment"]["gemms"] = [documents.gemm(gemm) for gemm in result.gemms]
    tensors = {s["name"]: documents.raw(result.surfaces[s["name"]]) for s in record["surfaces"]}
    for surface in record["surfaces"]:
        surface["sha256"] = sha256(tensors[surface["name"]])
    record["trajectory"] = digest([surface["sha256"] for surface in record["surfaces"]])
    shapes = {surface["name"]: surface["shape"] for surface in record["surfaces"]}
    forge.store(parts, record, forge.safetensors(tensors, shapes))
    record["activation"]["ambiguous_elements"] = result.ambiguous_elements
    order = {*result.assumptions, "U5"}
    record["assumptions"] = sorted(order, key=lambda name: int(name[1:]))
