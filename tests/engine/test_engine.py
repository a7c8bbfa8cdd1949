"""Engines by the protocol: the simulated one does what the kernel rooms do, and reports what was executed."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ledger.plan import ExplicitArrival, IndexArrival, SeededArrival, WarpArrival
from mechanism.engine import identity
from mechanism.engine.asked import LaunchRequest, Shape
from mechanism.engine.names import require_engine
from mechanism.engine.open import open_engine
from mechanism.engine.protocol import Layer, Treatment
from mechanism.engine.simulated import SYMBOL, arrival_order
from mechanism.errors import CellError, EngineError
from mechanism.fixture.build import build
from mechanism.fixture.place import folder_of
from mechanism.fixture.store import verify
from mechanism.plan import geometry
from mechanism.plan.document import load_plan
from mechanism.process.delivery import require_delivered
from tests.campaign.campaign_setup import PHASES, plan_text

SURFACES = ("w13", "activation", "w2", "output")


@pytest.fixture(scope="module")
def layer(tmp_path_factory: pytest.TempPathFactory) -> Layer:
    folder = tmp_path_factory.mktemp("layer")
    path = folder / "plan.yaml"
    path.write_text(plan_text(environment={"A": "1"}, replicates=1, time_limit_s=1, phases=PHASES))
    fixture = load_plan(path).plan.fixture
    lock = build(fixture, folder)
    tensors = verify(folder_of(lock.recipe, folder), lock.model_dump(mode="json"))
    return Layer(
        shape=Shape(
            tokens=fixture.tokens,
            experts=fixture.experts,
            top_k=fixture.top_k,
            hidden=fixture.hidden,
            intermediate=fixture.intermediate,
            group_size=fixture.group_size,
            dtype=fixture.dtype,
            block_size_m=geometry.block_size_m(fixture),
        ),
        kernel="vllm==0.22.0",
        arch="sm_86",
        tensors=tensors,
        topk_ids=tensors["topk_ids"].tolist(),
    )


def launches(grid: int) -> tuple[LaunchRequest, LaunchRequest]:
    w13, w2 = (
        LaunchRequest(name=name, tile_k=64, tile_n=128, threads=128, grid=grid) for name in ("w13", "w2")
    )
    return w13, w2


def reversed_order(layer: Layer) -> Mapping[str, Any]:
    return {"kind": "explicit", "routes": list(range(layer.shape.tokens * layer.shape.top_k))[::-1]}


@pytest.mark.parametrize("name", ["simulated", pytest.param("vllm", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("grid", [1, 3, 24])
def test_what_is_asked_for_is_delivered(layer: Layer, name: str, grid: int) -> None:
    engine = open_engine(name)
    history = {"kind": "index"} if name == "simulated" else {"kind": "steps", "steps": []}
    built = engine.construct(engine.apply(history, layer), layer)
    asked = Treatment(alignment=built.alignment, launches=launches(grid))
    result = engine.execute(asked, layer)
    require_delivered(asked, result, layer, surfaces=SURFACES)
    assert set(result.surfaces) == set(SURFACES)
    assert engine.identity().evidence in {"simulated", "gpu"}
    again = engine.execute(asked, layer)
    for surface in SURFACES:
        assert again.surfaces[surface].tobytes() == result.surfaces[surface].tobytes()


def test_simulated_says_so(layer: Layer) -> None:
    engine = open_engine("simulated")
    built = engine.construct(engine.apply({"kind": "index"}, layer), layer)
    result = engine.execute(Treatment(alignment=built.alignment, launches=launches(24)), layer)
    assert {gemm.symbol for gemm in result.gemms} == {SYMBOL}
    assert SYMBOL.startswith("simulated:")
    assert (engine.identity().evidence, engine.identity().arithmetic) == ("simulated", "numpy")
    assert result.candidate == "rn32"


def test_lane_order_is_an_assumption_of_the_history_that_needs_it(layer: Layer) -> None:
    engine = open_engine("simulated")
    ascending = engine.construct(engine.apply({"kind": "index"}, layer), layer)
    descending = engine.construct(engine.apply(reversed_order(layer), layer), layer)
    assert (ascending.assumptions, descending.assumptions) == ((), ("U5",))
    assert ascending.alignment != descending.alignment


def test_delivery_names_everything_that_differs(layer: Layer) -> None:
    engine = open_engine("simulated")
    built = engine.construct(engine.apply({"kind": "index"}, layer), layer)
    other = engine.construct(engine.apply(reversed_order(layer), layer), layer)
    asked = Treatment(alignment=built.alignment, launches=launches(24))
    result = engine.execute(Treatment(alignment=other.alignment, launches=launches(3)), layer)
    with pytest.raises(CellError) as refusal:
        require_delivered(asked, result, layer, surfaces=SURFACES)
    message = str(refusal.value)
    assert message.startswith("the engine did not deliver the treatment: alignment: expected ")
    for part in ("w13.grid: expected 24, got 3", "w2.grid: expected 24, got 3", "w13: slices of tile (0, 0)"):
        assert part in message


@pytest.mark.parametrize(
    "given",
    [
        IndexArrival(kind="index"),
        WarpArrival(kind="warps", warps=(1, 0)),
        ExplicitArrival(kind="explicit", routes=tuple(range(47, -1, -1))),
        SeededArrival(kind="seeded", seed=7),
    ],
)
def test_arrivals_mean_the_same_in_plan_and_engine(given: Any) -> None:
    assert arrival_order(given.model_dump(mode="json"), 48) == geometry.arrival_order(given, 48)


def test_unknown_arrival() -> None:
    with pytest.raises(EngineError, match="arrival: expected index, warps, explicit or seeded, got luck"):
        arrival_order({"kind": "luck"}, 48)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("cuda", "engine: expected simulated or vllm, got cuda"),
    ],
)
def test_engines_that_are_not_there(name: str, message: str) -> None:
    with pytest.raises(EngineError) as refusal:
        require_engine(name)
    assert str(refusal.value) == message


def test_identity_lists_the_source_that_computes() -> None:
    files = dict(identity.source_files())
    for name in ("mechanism/kernel/gemm.py", "mechanism/process/steps.py", "mechanism/fixture/store.py"):
        assert len(files[name]) == 64
    assert list(files) == sorted(files)
    assert not any(Path(name).is_absolute() for name in files)
