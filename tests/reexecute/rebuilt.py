"""A bundle whose bits the simulated engine computed in this process: small, and without a single cold process."""

import json
from pathlib import Path
from typing import Any

import pytest

from ledger.canonical import canonical, digest, sha256
from ledger.plan import Plan
from ledger.record import AlignmentFile
from mechanism.campaign.injection import from_bytes
from mechanism.engine.asked import LaunchRequest, Shape
from mechanism.engine.identity import source_files
from mechanism.engine.protocol import Layer, Treatment
from mechanism.engine.simulated import SimulatedEngine
from mechanism.fixture.build import build
from mechanism.fixture.place import folder_of
from mechanism.fixture.store import verify
from mechanism.plan.geometry import block_size_m
from mechanism.process import documents
from tests.campaign.campaign_setup import PHASES, plan_text
from tests.verifier import forge
from tests.verifier.forge import Parts

Document = dict[str, Any]


def rebuilt_parts(cache: Path) -> Parts:
    """Eight processes: two that construct, six that inject, two of these on another grid."""
    text = plan_text(environment={"TZ": "UTC"}, replicates=1, time_limit_s=30, phases=PHASES).encode()
    plan = forge.read_plan(text)
    lock = build(plan.fixture, cache)
    folder = folder_of(lock.recipe, cache)
    routing = json.loads((folder / "routing.json").read_bytes())
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(forge, "_routing", lambda _plan: routing)
        parts = forge.good_parts(plan=text, ledger=b"none")
    parts.lock["fixture"] = lock.model_dump(mode="json")
    parts.build["source"] = dict(source_files())
    parts.objects = {}
    layer = _layer(plan, verify(folder, parts.lock["fixture"]))
    for record in parts.records.values():
        record["software"], record["fixture"] = sha256(canonical(parts.build)), lock.digest
        _fill(record, parts, layer)
    return parts


def _layer(plan: Plan, tensors: Any) -> Layer:
    fixture = plan.fixture
    return Layer(
        shape=Shape(
            tokens=fixture.tokens,
            experts=fixture.experts,
            top_k=fixture.top_k,
            hidden=fixture.hidden,
            intermediate=fixture.intermediate,
            group_size=fixture.group_size,
            dtype=fixture.dtype,
            block_size_m=block_size_m(fixture),
        ),
        kernel=plan.build.kernel,
        arch=plan.build.device.arch,
        tensors=tensors,
        topk_ids=tensors["topk_ids"].tolist(),
    )


def _fill(record: Document, parts: Parts, layer: Layer) -> None:
    """Put the engine's result where the forge drew bytes."""
    asked = record["treatment"]
    aligned = AlignmentFile.model_validate_json(
        canonical(parts.alignments[asked["alignment"]["sha256"]])
    ).model_dump(mode="json")
    w13, w2 = (
        LaunchRequest(**{key: gemm[key] for key in ("name", "tile_k", "tile_n", "threads", "grid")})
        for gemm in asked["gemms"]
    )
    alignment = from_bytes(canonical(aligned), experts=layer.shape.experts, kernel=layer.kernel)
    result = SimulatedEngine().execute(Treatment(alignment=alignment, launches=(w13, w2)), layer)
    asked["gemms"] = [documents.gemm(gemm) for gemm in result.gemms]
    for surface in record["surfaces"]:
        surface["sha256"] = sha256(documents.raw(result.surfaces[surface["name"]]))
    record["trajectory"] = digest([surface["sha256"] for surface in record["surfaces"]])
    record["activation"]["ambiguous_elements"] = result.ambiguous_elements
    order = {*result.assumptions, *(["U5"] if layer.shape.experts > 64 else [])}
    record["assumptions"] = sorted(order, key=lambda name: int(name[1:]))
