"""The stable construction where no vLLM is: its switch, its plan, and what the patch refuses."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from mechanism.fixture.routing import routing_file
from mechanism.kernel import alignment
from mechanism.plan import geometry
from mechanism.plan.document import load_plan
from mechanism.plan.static import needed_assumptions, static_faults
from mechanism.plugin.stable_construction import SWITCH, enabled, patch, register

PLANS = Path(__file__).parents[2] / "plans"


@pytest.mark.parametrize(("value", "on"), [(None, False), ("", False), ("0", False), ("1", True)])
def test_the_switch(value: str | None, on: bool, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: FBT001
    monkeypatch.delenv(SWITCH, raising=False)
    if value is not None:
        monkeypatch.setenv(SWITCH, value)
    assert enabled() is on


def test_another_value_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "yes")
    with pytest.raises(ValueError, match="MARLIN_STABLE_CONSTRUCTION: expected 0 or 1, got 'yes'"):
        register()


def test_it_is_off_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """Registering without the switch imports no vLLM: none is installed here."""
    monkeypatch.delenv(SWITCH, raising=False)
    register()


def test_another_vllm_is_refused() -> None:
    with pytest.raises(RuntimeError, match=r"expected a function fused_marlin_moe, found none: another vLLM"):
        patch(SimpleNamespace())


def test_under_its_plan_every_history_constructs_the_stable_order() -> None:
    plan = load_plan(PLANS / "stable_construction.yaml").plan
    ids = routing_file(plan.fixture).topk_ids
    stable = alignment.stable(ids, experts=plan.fixture.experts, block_size_m=8)
    assert plan.stable_construction
    assert {geometry.native(plan, history, ids) for history in plan.histories} == {stable}
    assert "U5" not in needed_assumptions(plan, ids)
    assert static_faults(plan) == []


def test_the_cohorts_share_layer_and_launches_and_nothing_else() -> None:
    patched, mechanism = (
        load_plan(PLANS / f"{name}.yaml") for name in ("stable_construction", "route_block")
    )
    assert patched.plan.fixture == mechanism.plan.fixture
    assert patched.plan.build == mechanism.plan.build
    assert patched.sha256 != mechanism.sha256
    assert mechanism.plan.environment.get(SWITCH) is None
