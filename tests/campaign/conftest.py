"""One small fixture for all campaigns of these tests."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ledger.lock import FixtureLock
from mechanism.fixture.build import build
from mechanism.plan.document import load_plan
from tests.campaign.campaign_setup import FAKE, PHASES, plan_text, prepare, run

Prepare = Callable[..., Path]


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, FixtureLock]:
    """The cache folder and the lock of the fixture in it."""
    folder = tmp_path_factory.mktemp("fixture")
    path = folder / "plan.yaml"
    path.write_text(plan_text(environment={"A": "1"}, replicates=1, time_limit_s=1, phases=PHASES))
    return folder / "cache", build(load_plan(path).plan.fixture, folder / "cache")


@pytest.fixture(scope="session")
def stored(tmp_path_factory: pytest.TempPathFactory, built: tuple[Path, FixtureLock]) -> Path:
    """A finished campaign of one replicate, whose records the quick child delivers again."""
    folder = tmp_path_factory.mktemp("stored")
    assert run(prepare(folder / "campaign", *built, stored=folder), folder / "out", module=FAKE).complete
    return folder / "out"


@pytest.fixture
def campaign(tmp_path: Path, built: tuple[Path, FixtureLock], stored: Path) -> Prepare:
    """Prepares a campaign in a folder of the test's own; see `prepare`."""

    def make(**more: Any) -> Path:
        return prepare(tmp_path / "campaign", *built, stored, **more)

    return make
