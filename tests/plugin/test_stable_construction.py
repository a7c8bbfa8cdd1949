"""The stable construction where no vLLM is: its switch, its plan, and what the patch refuses."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from ledger.claim import Anchored
from mechanism.fixture.routing import routing_file
from mechanism.kernel import alignment
from mechanism.plan import geometry
from mechanism.plan.document import load_ledger, load_plan
from mechanism.plan.freeze import read_lock
from mechanism.plan.static import needed_assumptions, static_faults
from mechanism.plugin.stable_construction import SWITCH, enabled, patch, register
from verifier.predicates import judge

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


def test_the_anchor_is_what_the_mechanisms_plan_reaches() -> None:
    """The digest in the ledger is that of the other plan's lock and fixture, not of a copy."""
    ledger = load_ledger(load_plan(PLANS / "stable_construction.yaml"), PLANS).ledger
    lock = read_lock((PLANS / "route_block.lock").read_bytes(), name="route_block.lock")
    anchors = [item for claim in ledger.claims for item in claim.outcome if isinstance(item, Anchored)]
    assert {(item.plan, item.fixture) for item in anchors} == {(lock.plan.sha256, lock.fixture.digest)}
    assert [item.arm.history for item in anchors] == ["H0", "H1"]


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({}, "2 processes have the anchor's trajectory"),
        ({"trajectory": "b" * 64}, "the anchor bbb"),
        ({"fixture": "b" * 64}, "the anchor's is bbb"),
        ({"plan": "e" * 64}, "it must be another cohort's"),
    ],
    ids=["shared", "trajectory", "fixture", "own-plan"],
)
def test_an_anchor_is_refuted_by_any_digest_that_differs(changed: dict[str, str], words: str) -> None:
    predicate = Anchored.model_validate(
        {
            "kind": "anchored",
            "arm": {"cell": "native", "history": "H0"},
            "trajectory": "a" * 64,
            "fixture": "c" * 64,
            "plan": "d" * 64,
            "cell": "canonical",
            **changed,
        }
    )
    facts = SimpleNamespace(path="records/x.json", trajectory="a" * 64)
    lock = SimpleNamespace(fixture=SimpleNamespace(digest="c" * 64))
    view = SimpleNamespace(
        lacking=lambda _arms: None,
        arm=lambda _arm: [facts, facts],
        bundle=SimpleNamespace(lock=lock, digest=lambda _name: "e" * 64),
    )
    outcome = judge(predicate, view)  # type: ignore[arg-type]
    assert words in str(outcome)
    assert outcome.verdict == ("supported" if not changed else "refuted")
