"""The schedule as people see it: the table's numbers, the picture's tiles, and the word simulated."""

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from mechanism.fixture.routing import routing_file
from mechanism.plan.document import load_plan
from mechanism.show.schedule_map import ScheduleMap, schedule_map
from mechanism.show.schedule_svg import MOVED, SPLIT, schedule_svg
from mechanism.show.schedule_text import schedule_text

PLANS = Path(__file__).parents[2] / "plans"
SVG = "{http://www.w3.org/2000/svg}"


def shown(name: str) -> ScheduleMap:
    plan = load_plan(PLANS / f"{name}.yaml").plan
    return schedule_map(plan, routing_file(plan.fixture).topk_ids)


def test_text_of_the_published_geometry() -> None:
    """Case S2: at 246 CTAs tiles 0..491 are whole and block 41 is the first split; at 200 nothing is."""
    lines = schedule_text(shown("route_block")).splitlines()
    assert lines[0] == "SIMULATED schedule of plan route_block on rtx-3090 (sm_86, 82 SMs)"
    assert [re.split(r" {2,}", line) for line in lines[4:8]] == [
        ["W13, pinned grid", "64 x 128", "246", "600", "2", "108", "16", "492", "108", "41"],
        ["W2, pinned grid", "64 x 128", "246", "800", "2", "308", "16", "646", "154", "30"],
        ["W13, forced grid", "64 x 128", "200", "600", "2", "200", "32", "600", "0", "none"],
        ["W2, forced grid", "64 x 128", "200", "800", "3", "200", "12", "800", "0", "none"],
    ]
    assert lines[-1] == "Routes that move between padded blocks from history to history: 51, 86"


@pytest.mark.parametrize("name", ["route_block", "quick"])
def test_picture_shows_every_split_tile_and_every_moved_route(name: str) -> None:
    view = shown(name)
    root = ET.fromstring(schedule_svg(view))
    split = [box for box in root.iter(f"{SVG}rect") if box.get("fill") == SPLIT]
    assert len(split) == sum(gemm.split_tiles for gemm in view.gemms) + 1  # one more in the legend
    moved = {int(span.text or "") for span in root.iter(f"{SVG}tspan") if span.get("fill") == MOVED}
    assert moved == set(view.moved_routes)
    assert (root.findtext(f"{SVG}title") or "").startswith("SIMULATED schedule of plan")


def test_picture_is_the_same_bytes_every_time() -> None:
    assert schedule_svg(shown("quick")) == schedule_svg(shown("quick"))


def test_committed_picture_is_the_default_plans() -> None:
    """Made by `mechanism schedule plans/route_block.yaml --svg plans/route_block.svg`."""
    assert (PLANS / "route_block.svg").read_text(encoding="utf-8") == schedule_svg(shown("route_block"))


def test_a_gpu_plan_is_not_called_simulated() -> None:
    plan = load_plan(PLANS / "quick.yaml").plan.model_copy(update={"engine": "vllm"})
    view = schedule_map(plan, routing_file(plan.fixture).topk_ids)
    assert "SIMULATED" not in schedule_text(view) + schedule_svg(view)
