"""One forged bundle for all tests of the verifier, and a quick way to ask what is found in a bent one."""

from collections.abc import Callable
from pathlib import Path

import pytest

from ledger.claim import Level
from tests.verifier import forge
from tests.verifier.forge import Files, Parts
from verifier.assess import assess
from verifier.evidence import Evidence, FolderEvidence, OverlayEvidence
from verifier.library import Library
from verifier.report import Checked, check_evidence

#: What assess finds, as (code, where).
Findings = list[tuple[str, str]]
Find = Callable[..., Findings]
Judge = Callable[..., Checked]
Overlay = Callable[[Files], Evidence]


@pytest.fixture(scope="session")
def good() -> Parts:
    """The documents of a good bundle; copy before bending."""
    return forge.good_parts()


@pytest.fixture(scope="session")
def good_files(good: Parts) -> Files:
    """Its files."""
    return forge.seal(good)


@pytest.fixture(scope="session")
def good_folder(good_files: Files, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """It, on disk. Read only."""
    return forge.write(good_files, tmp_path_factory.mktemp("good") / "bundle")


@pytest.fixture
def parts(good: Parts) -> Parts:
    """The documents of a good bundle, to be bent."""
    return good.copy()


@pytest.fixture(scope="session")
def overlay(good_folder: Path, good_files: Files) -> Overlay:
    """Files in memory as a bundle; what is equal to the good one is not hashed again."""
    base = FolderEvidence(good_folder)

    def make(files: Files) -> Evidence:
        changed = {path: data for path, data in files.items() if good_files.get(path) != data}
        return OverlayEvidence(base, changed=changed, removed=frozenset(good_files.keys() - files.keys()))

    return make


@pytest.fixture(scope="session")
def find(overlay: Overlay) -> Find:
    """The findings in a bundle, without judging its claims."""
    library = Library()

    def run(bundle: Files | Path, level: Level = "records", anchor: str | None = None) -> Findings:
        evidence = FolderEvidence(bundle) if isinstance(bundle, Path) else overlay(bundle)
        found = assess(evidence, library, level=level, anchor=anchor).found
        return [(item.code, item.where) for item in found]

    return run


@pytest.fixture(scope="session")
def judge(overlay: Overlay) -> Judge:
    """The whole answer on a bundle."""
    library = Library()

    def run(bundle: Files, level: Level = "records", anchor: str | None = None) -> Checked:
        return check_evidence(overlay(bundle), level=level, anchor=anchor, library=library)

    return run
