"""The steps of one cold process, each with its marker; every file it writes is whole or not there.

1 started; 2 fixture-verified: every byte that is mapped was hashed; 3 history-applied; 4 aligned:
constructed under the history, or read as bytes, and legal for the routing; 5 executed, and delivered as
asked; 6 captured; 7 recorded.
"""

import time
from dataclasses import field
from pathlib import Path
from typing import Any

from ledger.canonical import canonical, digest, sha256
from mechanism.engine.identity import build_file
from mechanism.engine.protocol import Engine, Layer, Result, Treatment
from mechanism.errors import CellError
from mechanism.fixture.store import verify
from mechanism.process import documents, files, held
from mechanism.process.delivery import require_delivered
from mechanism.process.injected import read_injection, require_legal
from mechanism.process.request import BUILD, CellRequest
from mechanism.process.symbols import Symbols
from mechanism.values import frozen


@frozen
class Markers:
    """Points that the process passed, with the monotonic clock in microseconds."""

    passed: list[dict[str, Any]] = field(default_factory=list)

    def mark(self, name: str) -> None:
        """Pass one."""
        self.passed.append({"name": name, "time_us": time.monotonic_ns() // 1000})


@frozen
class _Captured:
    """What was stored of a result: its surfaces as records name them, and the digests of its files."""

    surfaces: list[dict[str, Any]]
    capture: str
    alignment: str


def run_cell(request: CellRequest, engine: Engine) -> None:
    """Run one replicate and leave its files in the staging folder, the record last.

    Raises CellError, EngineError, FixtureError, KernelError or OSError, and then leaves no record.
    """
    markers = Markers()
    markers.mark("started")
    _require_environment(request)
    layer = _layer(request)
    markers.mark("fixture-verified")
    treatment, rests_on = _treat(request, engine, layer, markers)
    result = engine.execute(treatment, layer)
    require_delivered(treatment, result, layer, surfaces=request.surfaces)
    markers.mark("executed")
    captured = _capture(request, result)
    markers.mark("captured")
    staging = Path(request.staging)
    build = canonical(build_file(engine, kernel=request.kernel, device=request.device))
    _write(staging / BUILD, build)
    containment = held.found(
        request.containment, bundle=Path(request.bundle), fixture=Path(request.fixture_folder)
    )
    facts = documents.process_facts(Symbols(pairs=request.symbols), request.nonce, containment)
    markers.mark("recorded")
    record = {
        **_identity(request),
        "evidence": engine.identity().evidence,
        "engine": engine.name,
        "process": facts,
        "markers": markers.passed,
        "software": sha256(build),
        **_outcome(request, result, captured),
        "assumptions": sorted({*result.assumptions, *rests_on}, key=lambda name: int(name[1:])),
    }
    _write(staging / request.record, canonical(record))


def _capture(request: CellRequest, result: Result) -> _Captured:
    """Store what the engine left: the surfaces in one object, and the alignment if it was made here."""
    staging, dtype = Path(request.staging), request.shape.dtype
    tensors = [
        (name, result.surfaces[name].shape, documents.raw(result.surfaces[name])) for name in request.surfaces
    ]
    capture = documents.capture_bytes(tensors, dtype)
    stored = sha256(capture)
    _write(staging / "objects" / f"{stored}.safetensors", capture)
    aligned = documents.alignment_bytes(result.alignment)
    if request.injected is None:
        _write(staging / "alignments" / f"{sha256(aligned)}.json", aligned)
    return _Captured(
        surfaces=[documents.surface(name, shape, data, dtype) for name, shape, data in tensors],
        capture=stored,
        alignment=sha256(aligned),
    )


def _write(path: Path, data: bytes) -> None:
    """A file that is whole or not there; the runner has it on disk when it takes it over."""
    files.write_once(path, data, durable=False)


def _identity(request: CellRequest) -> dict[str, Any]:
    """The part of a record that says what was asked for."""
    return {
        "schema_version": 1,
        "plan": request.plan,
        "phase": request.phase,
        "cell": request.cell,
        "history": request.history,
        "replicate": request.replicate,
        "attempt": request.attempt,
        "fixture": request.fixture["digest"],
    }


def _outcome(request: CellRequest, result: Result, captured: _Captured) -> dict[str, Any]:
    """The part of a record that says what was done."""
    return {
        "treatment": {
            "alignment": {
                "source": "constructed" if request.injected is None else "injected",
                "sha256": captured.alignment,
                "sorted_length": result.alignment.sorted_length,
                "expert_length": result.alignment.expert_length,
            },
            "gemms": [documents.gemm(executed) for executed in result.gemms],
        },
        "surfaces": captured.surfaces,
        "trajectory": digest([item["sha256"] for item in captured.surfaces]),
        "capture": captured.capture,
        "activation": {
            "candidate": result.candidate,
            "ambiguous_elements": result.ambiguous_elements,
        },
    }


def _require_environment(request: CellRequest) -> None:
    found = documents.environment()
    if found != dict(request.environment):
        names = sorted(
            name
            for name in found.keys() | request.environment.keys()
            if found.get(name) != request.environment.get(name)
        )
        raise CellError(f"environment: expected the plan's, got another value of {', '.join(names)}")


def _layer(request: CellRequest) -> Layer:
    tensors = verify(Path(request.fixture_folder), request.fixture)
    return Layer(
        shape=request.shape,
        kernel=request.kernel,
        arch=str(request.device["arch"]),
        tensors=tensors,
        topk_ids=tensors["topk_ids"].tolist(),
    )


def _treat(
    request: CellRequest, engine: Engine, layer: Layer, markers: Markers
) -> tuple[Treatment, tuple[str, ...]]:
    """The treatment to deliver, and the assumptions that its alignment rests on."""
    experts = request.shape.experts
    if request.injected is None:
        history = engine.apply(request.arrival or {}, layer)
        markers.mark("history-applied")
        built = engine.construct(history, layer)
        alignment, rests_on = built.alignment, built.assumptions
    else:
        markers.mark("history-applied")  # none is: the marker keeps its place in the order
        folder = Path(request.bundle) / "alignments"
        injection = read_injection(folder, request.injected, experts=experts, kernel=request.kernel)
        alignment, rests_on = injection.take(request.shape), request.rests_on
    require_legal(alignment, layer.topk_ids, experts=experts, kernel=request.kernel)
    markers.mark("aligned")
    return Treatment(alignment=alignment, launches=request.launches), rests_on
