"""One small fixture for all campaigns of these tests."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ledger.lock import FixtureLock
from mechanism.fixture.build import build
from mechanism.plan.document import load_plan
from tests.campaign.campaign_setup import PHASES, plan_text, prepare

Prepare = Callable[..., Path]


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, FixtureLock]:
    """The cache folder and the lock of the fixture in it."""
    folder = tmp_path_factory.mktemp("fixture")
    path = folder / "plan.yaml"
    path.write_text(plan_text(environment={"A": "1"}, replicates=1, time_limit_s=1, phases=PHASES))
    return folder / "cache", build(load_plan(path).plan.fixture, folder / "cache")


@pytest.fixture
def campaign(tmp_path: Path, built: tuple[Path, FixtureLock]) -> Prepare:
    """Prepares a campaign in a folder of the test's own; see `prepare`."""

    def make(**more: Any) -> Path:
        return prepare(tmp_path / "campaign", *built, **more)

    return make
