"""A trace's final bits are the engine's, for any element of any surface under any alignment; and its sums add up."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.plan import Plan
from mechanism.fixture import recipe
from mechanism.fixture.build import build
from mechanism.fixture.routing import routing_file, topk_weights
from mechanism.kernel.alignment import block_of
from mechanism.kernel.dequantize import Weights
from mechanism.kernel.layer import LayerRun, moe_layer
from mechanism.kernel.rounding import bits16
from mechanism.plan import geometry
from mechanism.plan.document import load_plan
from mechanism.trace.element import Run, Tracer
from mechanism.trace.layer import LayerView
from mechanism.trace.parting import whole
from mechanism.trace.source import cell_name, planned_runs
from mechanism.trace.story import Trace
from mechanism.trace.tracing import Asked, surface_shape, trace_plan, trace_runs

QUICK = Path(__file__).parents[2] / "plans" / "quick.yaml"
SURFACES = ("w13", "activation", "w2", "output")
CELLS = ("native.H0", "native.H1", "canonical.H0", "within-block.H1", "forced-grid.H0")


def engine_run(plan: Plan, run: Run) -> LayerRun:
    """The whole layer by the engine's own arithmetic."""
    fixture = plan.fixture
    assert fixture.recipe == "packed-awq/1"
    made = {
        gemm: [recipe.projection(fixture, gemm, expert) for expert in range(fixture.experts)]
        for gemm in ("w13", "w2")
    }
    w13, w2 = (
        Weights(
            **{
                part: np.stack([getattr(item, part) for item in parts])
                for part in ("qweight", "qzeros", "scales")
            }
        )
        for parts in made.values()
    )
    launches = [geometry.launch(plan, gemm) for gemm in geometry.gemms(fixture)]
    if run.schedules[0].grid != launches[0].grid:
        from mechanism.kernel.configuration import forced  # noqa: PLC0415

        launches = [forced(launch, run.schedules[0].grid, sms=plan.build.device.sms) for launch in launches]
    return moe_layer(
        recipe.hidden_states(fixture),
        w13,
        w2,
        topk_weights(fixture),
        run.alignment,
        launch_w13=launches[0],
        launch_w2=launches[1],
        arch=plan.build.device.arch,
        kernel=plan.build.kernel,
    )


@pytest.fixture(scope="module")
def plan() -> Plan:
    return load_plan(QUICK).plan


@pytest.fixture(scope="module")
def engine(plan: Plan) -> Callable[[str], tuple[Run, LayerRun]]:
    """A cell's run with all its surfaces, computed once."""
    routing = routing_file(plan.fixture)
    done: dict[str, tuple[Run, LayerRun]] = {}

    def of(cell: str) -> tuple[Run, LayerRun]:
        if cell not in done:
            name = cell_name(plan, cell)
            run = planned_runs(plan, name, routing)[name.history]
            done[cell] = run, engine_run(plan, run)
        return done[cell]

    return of


@pytest.fixture(scope="module")
def tracer(plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> Tracer:
    return Tracer(plan, LayerView(plan, tmp_path_factory.mktemp("empty")))


@given(cell=st.sampled_from(CELLS), surface=st.sampled_from(SURFACES), data=st.data())
@settings(max_examples=60, deadline=None)
def test_final_bits_are_the_engines(
    plan: Plan,
    engine: Callable[[str], tuple[Run, LayerRun]],
    tracer: Tracer,
    cell: str,
    surface: str,
    data: st.DataObject,
) -> None:
    rows, columns = surface_shape(plan, surface)
    row, column = data.draw(st.integers(0, rows - 1)), data.draw(st.integers(0, columns - 1))
    run, computed = engine(cell)
    story = tracer.element(run, surface, row, column)
    assert story.final.bits == int(bits16(getattr(computed, surface))[row, column])


@pytest.mark.parametrize("surface", SURFACES)
def test_bits_of_the_moved_routes_are_the_engines(
    engine: Callable[[str], tuple[Run, LayerRun]], tracer: Tracer, surface: str
) -> None:
    """Every element that differs between the histories, up to a dozen: where it matters most."""
    (first, a), (second, b) = engine("native.H0"), engine("native.H1")
    differing = np.argwhere(bits16(getattr(a, surface)) != bits16(getattr(b, surface)))
    assert len(differing)
    for row, column in differing[:12].tolist():
        for run, computed in ((first, a), (second, b)):
            story = tracer.element(run, surface, row, column)
            assert story.final.bits == int(bits16(getattr(computed, surface))[row, column])


@pytest.mark.parametrize(
    ("kernel", "top_k", "tp_shape"),
    [
        ("vllm==0.11.0", 4, (512, 192)),
        ("vllm==0.29.0", 4, (512, 192)),
        ("vllm==0.22.0", 6, (128, 64)),
        ("vllm==0.22.0", 4, (512, 64)),
    ],
    ids=["interleaved", "one-accumulator", "four-accumulators", "channelwise-w2-and-defect"],
)
def test_other_builds_and_arithmetics(
    plan: Plan, tmp_path: Path, kernel: str, top_k: int, tp_shape: tuple[int, int]
) -> None:
    fixture = plan.fixture.model_copy(
        update={"hidden": tp_shape[0], "intermediate": tp_shape[1], "top_k": top_k, "twin_pairs": 1}
    )
    changed = plan.model_copy(
        update={"fixture": fixture, "build": plan.build.model_copy(update={"kernel": kernel})}
    )
    if top_k != 4:
        pinned = fixture.routing.pinned[0].model_copy(update={"routes": (1, 8, 13, 20, 27, 34, 41, 48, 55)})  # type: ignore[union-attr]
        order = tuple(range(fixture.tokens * top_k))
        changed = changed.model_copy(
            update={
                "fixture": fixture.model_copy(
                    update={"routing": fixture.routing.model_copy(update={"pinned": (pinned,)})}  # type: ignore[union-attr]
                ),
                "histories": {
                    name: history.model_copy(
                        update={"arrival": history.arrival.model_copy(update={"routes": order})}
                    )
                    for name, history in plan.histories.items()
                },
            }
        )
    name = cell_name(changed, "native.H0")
    run = planned_runs(changed, name, routing_file(changed.fixture))["H0"]
    computed = engine_run(changed, run)
    tracer = Tracer(changed, LayerView(changed, tmp_path))
    rng = np.random.default_rng(1)
    for surface in SURFACES:
        rows, columns = surface_shape(changed, surface)
        for _ in range(3):
            row, column = int(rng.integers(rows)), int(rng.integers(columns))
            story = tracer.element(run, surface, row, column)
            assert story.final.bits == int(bits16(getattr(computed, surface))[row, column]), (
                surface,
                row,
                column,
            )


def test_slices_cover_k_and_add_up(plan: Plan, tracer: Tracer) -> None:
    routing = routing_file(plan.fixture)
    name = cell_name(plan, "native.H0")
    run = planned_runs(plan, name, routing)["H0"]
    story = tracer.element(run, "w13", 37, 5).gemms[0]
    assert story.block == block_of(run.alignment, 37) == 8
    assert [item.k for item in story.slices] == [(0, 256), (256, 512)]
    total = np.float32(0)
    for item in reversed(story.slices):
        total = np.array([item.total.bits], dtype=np.uint32).view(np.float32)[0] + total
    assert int(total.view(np.uint32)) == whole(story).bits
    assert story.roundings[0].value.bits == int(np.float16(total).view(np.uint16))


def traced(asked: Asked, tmp_path: Path) -> Trace:
    return trace_plan(QUICK, asked, tmp_path)


def test_a_stored_fixture_and_a_drawn_one_give_one_trace(plan: Plan, tmp_path: Path) -> None:
    asked = Asked(cell="native", surface="w2", row=20, column=3)
    drawn = traced(asked, tmp_path)
    assert plan.fixture.recipe == "packed-awq/1"
    build(plan.fixture, tmp_path)
    stored = LayerView(plan, tmp_path)
    assert stored.stored
    name = cell_name(plan, "native")
    runs = planned_runs(plan, name, routing_file(plan.fixture))
    assert trace_runs(plan, name, runs, asked, stored) == drawn


def test_where_the_bits_part(tmp_path: Path) -> None:
    """The published story in one sentence each: cut differently, summed differently, rounded differently."""
    found = traced(Asked(cell="native.H0", surface="w13", row=37, column=5), tmp_path)
    assert found.parts == (
        "W13 is cut differently over K: H0 in block 8 [0, 256) + [256, 512), H1 in block 7 [0, 512). Its fp32 sums"
        " are 0x3F1C5800 under H0 and 0x3F1C5980 under H1. RN16 rounds both to 0x38E3: the difference ends here."
        " The element is the same under both: 0x38E3."
    )
    still = traced(Asked(cell="native.H0", surface="w13", row=0, column=5), tmp_path)
    assert still.parts.startswith(
        "Nothing parts: every sum is the same. The element is the same under both: 0x"
    )
    within = traced(Asked(cell="forced-grid.H0", surface="w13", row=37, column=5), tmp_path)
    assert within.parts.startswith("Nothing parts")


def test_a_parted_element_says_where(engine: Callable[[str], tuple[Run, LayerRun]], tmp_path: Path) -> None:
    (_, a), (_, b) = engine("native.H0"), engine("native.H1")
    row, column = np.argwhere(bits16(a.w13) != bits16(b.w13))[0].tolist()
    found = traced(Asked(cell="native.H0", surface="w13", row=row, column=column), tmp_path)
    ours, theirs = found.left.final, found.right.final if found.right else None
    assert f"RN16 gives {ours} and {theirs}: here the bits part." in found.parts
    assert found.parts.endswith(f"The element is {ours} under H0 and {theirs} under H1.")


def test_every_number_is_told_exactly(tmp_path: Path) -> None:
    """The decimal of a value reads back as its bits."""
    found = traced(Asked(cell="native.H0", surface="w2", row=37, column=0), tmp_path)
    kinds: dict[int, Any] = {16: (np.float16, np.uint16), 32: (np.float32, np.uint32)}
    for step in (*found.left.gemms[0].roundings, *found.left.gemms[0].adds):
        real, bits = kinds[step.value.width]
        assert int(real(step.value.decimal).view(bits)) == step.value.bits
