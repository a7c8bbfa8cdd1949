"""Treatments computed anew, a share of them in each worker process.

Every worker hashes the fixture's bytes, and computes from the very arrays that it hashed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ledger.canonical import digest, sha256
from mechanism.campaign.injection import from_bytes
from mechanism.engine.asked import LaunchRequest, Shape
from mechanism.engine.protocol import Engine, Layer
from mechanism.engine.protocol import Treatment as EngineTreatment
from mechanism.engine.simulated import SimulatedEngine
from mechanism.errors import MechanismError
from mechanism.fixture.store import verify
from mechanism.kernel.errors import KernelError
from mechanism.process import documents
from mechanism.process.injected import require_legal
from mechanism.reexecute.arithmetic import arithmetic_of
from mechanism.reexecute.treatments import Treatment

#: What a record says of a GEMM that executing it says too: which code was launched, which slices it summed.
LAUNCHED = ("symbol", "slices")


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """What all treatments of a cohort have in common.

    Attributes:
        arithmetic: Which implementation is to compute.
        kernel: The pinned build.
        arch: Architecture of the pinned device.
        shape: The layer's sizes.
        launches: Of w13 and w2, with the pinned grid.
        fixture: The fixture's lock as plain data.
        fixture_folder: Where it lies.
    """

    arithmetic: str
    kernel: str
    arch: str
    shape: Shape
    launches: tuple[LaunchRequest, LaunchRequest]
    fixture: Mapping[str, Any]
    fixture_folder: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What one treatment gives, by the keys of a record: digests, counts, lists, as text.

    `assumptions` are those of the bits; what the alignment rests on comes from elsewhere. `fault`: why there
    is no result, else empty.
    """

    values: Mapping[str, str]
    assumptions: tuple[str, ...]
    fault: str = ""


def compute(work: Work, share: Sequence[tuple[Treatment, bytes]]) -> list[Outcome]:
    """Execute the layer once under each treatment of a share; with it come the bytes of its alignment's file.

    A treatment that cannot be executed is an Outcome with a fault; a fixture that is not its lock's raises.
    """
    engine = SimulatedEngine(arithmetic=arithmetic_of(work.arithmetic))
    layer = _layer(work)
    return [_outcome(work, treatment, data, layer, engine) for treatment, data in share]


def _outcome(work: Work, treatment: Treatment, data: bytes, layer: Layer, engine: Engine) -> Outcome:
    try:
        return Outcome(**_execute(work, treatment, data, layer, engine))
    except (MechanismError, KernelError, ValueError) as fault:
        return Outcome(values={}, assumptions=(), fault=" ".join(str(fault).split())[:1000] or "no result")


def _execute(work: Work, treatment: Treatment, data: bytes, layer: Layer, engine: Engine) -> dict[str, Any]:
    shape = work.shape
    if (got := sha256(data)) != treatment.alignment:
        raise MechanismError(f"alignment: expected the content its name says, got sha256 {got}")
    alignment = from_bytes(data, experts=shape.experts, kernel=work.kernel)
    for key, expected in (("routes", shape.tokens * shape.top_k), ("block_size_m", shape.block_size_m)):
        if (found := getattr(alignment, key)) != expected:
            raise MechanismError(f"alignment: {key}: expected {expected}, got {found}")
    require_legal(alignment, layer.topk_ids, experts=shape.experts, kernel=work.kernel)
    w13, w2 = (
        LaunchRequest(
            name=launch.name,
            tile_k=launch.tile_k,
            tile_n=launch.tile_n,
            threads=launch.threads,
            grid=grid,
        )
        for launch, grid in zip(work.launches, treatment.grids, strict=True)
    )
    result = engine.execute(EngineTreatment(alignment=alignment, launches=(w13, w2)), layer)
    surfaces = {name: sha256(documents.raw(array)) for name, array in result.surfaces.items()}
    values = {f"surfaces.{name}": value for name, value in surfaces.items()}
    for executed in result.gemms:
        launched = documents.gemm(executed)
        values |= {f"treatment.gemms.{executed.name}.{key}": launched[key] for key in LAUNCHED}
    values |= {
        "activation.candidate": result.candidate,
        "activation.ambiguous_elements": str(result.ambiguous_elements),
    }
    return {"values": values, "assumptions": result.assumptions}


def trajectory(values: Mapping[str, str], surfaces: Sequence[str]) -> str:
    """The digest of the surfaces' digests, in the plan's order (ledger.record)."""
    return digest([values[f"surfaces.{name}"] for name in surfaces])


def _layer(work: Work) -> Layer:
    tensors = verify(Path(work.fixture_folder), work.fixture)
    return Layer(
        shape=work.shape,
        kernel=work.kernel,
        arch=work.arch,
        tensors=tensors,
        topk_ids=tensors["topk_ids"].tolist(),
    )
