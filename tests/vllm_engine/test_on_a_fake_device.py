"""The engine `vllm` on a device that is none: the same treatments give the simulated engine's bits."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mechanism.engine.asked import LaunchRequest, Shape
from mechanism.engine.protocol import Layer, Treatment
from mechanism.engine.simulated import SimulatedEngine
from mechanism.engine.vllm_engine import VllmEngine
from mechanism.errors import EngineError
from mechanism.fixture.build import build
from mechanism.fixture.place import folder_of
from mechanism.fixture.store import verify
from mechanism.kernel import alignment, arrival
from mechanism.kernel.devices import Device
from mechanism.plan import geometry
from mechanism.plan.document import load_plan
from mechanism.process.delivery import require_delivered
from tests.vllm_engine.fake_device import FakeOperators, gpu

PLANS = Path(__file__).parents[2] / "plans"
SURFACES = ("w13", "activation", "w2", "output")
TOY = Device(name="toy", arch="sm_86", sms=8, shared_memory=101376)


@pytest.fixture(scope="module")
def layer(tmp_path_factory: pytest.TempPathFactory) -> Layer:
    """The small plan's layer."""
    cache = tmp_path_factory.mktemp("cache")
    fixture = load_plan(PLANS / "quick.yaml").plan.fixture
    lock = build(fixture, cache)
    tensors = verify(folder_of(lock.recipe, cache), lock.model_dump(mode="json"))
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


@pytest.fixture
def operators() -> FakeOperators:
    return FakeOperators(TOY, arrival.index_order)


@pytest.fixture
def engine(operators: FakeOperators) -> VllmEngine:
    return VllmEngine(operators=operators, gpu=gpu(TOY))  # type: ignore[arg-type]


def launches(*, grid: int, chosen_by: str) -> tuple[LaunchRequest, LaunchRequest]:
    w13, w2 = (
        LaunchRequest(name=name, tile_k=64, tile_n=128, threads=128, grid=grid, chosen_by=chosen_by)
        for name in ("w13", "w2")
    )
    return w13, w2


@pytest.mark.parametrize(
    ("grid", "chosen_by"), [(24, "kernel"), (24, "plan"), (16, "plan"), (12, "plan"), (14, "plan")]
)
def test_bits_are_the_simulated_ones(
    grid: int, chosen_by: str, layer: Layer, engine: VllmEngine, operators: FakeOperators
) -> None:
    """The kernel's own launch, the same told, another multiple, and grids that are no multiple of 8."""
    simulated = SimulatedEngine()
    built = engine.construct(engine.apply({"kind": "steps", "steps": []}, layer), layer)
    routes = layer.shape.tokens * layer.shape.top_k
    assert built.alignment == simulated.construct(arrival.index_order(routes), layer).alignment
    treatment = Treatment(alignment=built.alignment, launches=launches(grid=grid, chosen_by=chosen_by))
    got, want = engine.execute(treatment, layer), simulated.execute(treatment, layer)
    require_delivered(treatment, got, layer, surfaces=SURFACES)
    for name in SURFACES:
        assert got.surfaces[name].tobytes() == want.surfaces[name].tobytes(), name
    assert [gemm.slices for gemm in got.gemms] == [gemm.slices for gemm in want.gemms]
    assert got.candidate == "device"
    assert got.ambiguous_elements == want.ambiguous_elements
    told = [call.arguments for call in operators.calls if call.operator.endswith("marlin_gemm")]
    wanted = {"kernel": (-1, -1, -1), "plan": (64, 128, {24: 3, 16: 2, 12: 2, 14: 2}[grid])}[chosen_by]
    for given in told:
        assert (given["thread_k"], given["thread_n"], given["blocks_per_sm"]) == wanted
    for gemm in got.gemms:
        assert ("multiprocessors_told" in gemm.symbol) == (grid in (12, 14))


def test_a_launch_that_is_not_the_pinned_one_is_not_delivered(layer: Layer, engine: VllmEngine) -> None:
    """The plan expects a grid that this device's kernel does not choose: no record."""
    built = engine.construct(None, layer)
    treatment = Treatment(alignment=built.alignment, launches=launches(grid=16, chosen_by="kernel"))
    result = engine.execute(treatment, layer)
    with pytest.raises(Exception, match=r"w13\.grid: expected 16, got 24"):
        require_delivered(treatment, result, layer, surfaces=SURFACES)


def test_a_grid_that_could_hang_is_refused(layer: Layer, engine: VllmEngine) -> None:
    """37 CTAs are prime and more than 8 multiprocessors hold: a split tile would wait for ever."""
    built = engine.construct(None, layer)
    treatment = Treatment(alignment=built.alignment, launches=launches(grid=37, chosen_by="plan"))
    with pytest.raises(EngineError) as refusal:
        engine.execute(treatment, layer)
    assert str(refusal.value) == (
        "grid 37: cannot be delivered on 8 multiprocessors: tile 64x128 fits with 1 CTAs per SM, and CTAs of a"
        " split tile wait for each other, so all must be resident; choose a grid that is, or one that splits no tile"
    )


STEPS: list[dict[str, Any]] = [
    {"kind": "allocate", "bytes": 64, "count": 5, "keep": "alternate"},
    {"kind": "align", "tokens": 100, "top_k": 4, "experts": 72, "repeats": 3, "seed": 1},
    {"kind": "gemm", "repeats": 2, "seed": 4},
    {"kind": "prewarm", "repeats": 1},
]


def test_a_history_is_its_steps_in_order(layer: Layer, engine: VllmEngine, operators: FakeOperators) -> None:
    kept = engine.apply({"kind": "steps", "steps": STEPS}, layer)
    assert [array.shape for array in kept] == [(64,)] * 3
    names = [call.operator.partition("::")[2] for call in operators.calls]
    one_pass = ["moe_wna16_marlin_gemm", "silu_and_mul", "moe_wna16_marlin_gemm", "moe_sum"]
    assert names == ["moe_align_block_size"] * 3 + one_pass * 3


def test_an_arrival_order_is_no_history_of_a_gpu(layer: Layer, engine: VllmEngine) -> None:
    with pytest.raises(EngineError, match="expected steps to do on a GPU, got an arrival order, index"):
        engine.apply({"kind": "index"}, layer)


def test_another_device_than_the_pinned_one(layer: Layer, engine: VllmEngine) -> None:
    with pytest.raises(EngineError, match="wrong GPU: expected sm_90, got Fake GPU, sm_86"):
        engine.execute(
            Treatment(
                alignment=alignment.stable(layer.topk_ids, experts=72, block_size_m=8),
                launches=launches(grid=24, chosen_by="kernel"),
            ),
            replace(layer, arch="sm_90"),
        )


def test_w13_is_captured_before_its_buffer_is_reused(layer: Layer, engine: VllmEngine) -> None:
    """One buffer holds W13 and then routed W2: both surfaces differ from what lies there at the end."""
    built = engine.construct(None, layer)
    got = engine.execute(
        Treatment(alignment=built.alignment, launches=launches(grid=24, chosen_by="kernel")), layer
    )
    assert not np.array_equal(got.surfaces["w13"].ravel()[:100], got.surfaces["w2"].ravel()[:100])


def test_stable_construction_is_another_alignment(
    layer: Layer, operators: FakeOperators, monkeypatch: pytest.MonkeyPatch
) -> None:
    operators.order = lambda routes: tuple(reversed(range(routes)))
    engine = VllmEngine(operators=operators, gpu=gpu(TOY))  # type: ignore[arg-type]
    native = engine.construct(None, layer).alignment
    monkeypatch.setenv("MARLIN_STABLE_CONSTRUCTION", "1")
    stable = engine.construct(None, layer).alignment
    assert stable == alignment.stable(layer.topk_ids, experts=72, block_size_m=8)
    assert native != stable
    assert engine.identity().versions["construction"] == "stable"


def test_identity_names_what_computed(engine: VllmEngine) -> None:
    told = engine.identity()
    assert told.evidence == "gpu"
    assert told.device["gpu"] == "Fake GPU"
    assert told.versions["jit-cache"] == "not used: the wheel's own sm_80 code runs"
    assert any(name.startswith("libc") for name in told.libraries)
