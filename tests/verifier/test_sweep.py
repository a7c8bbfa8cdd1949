"""The sweep: every class caught but for what the table argues; a hole in the verifier does not stay hidden."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.verifier import forge
from tests.verifier.edits import H0
from tests.verifier.forge import Parts
from verifier import unchecked
from verifier.__main__ import cli
from verifier.assess import assess
from verifier.evidence import FolderEvidence
from verifier.library import Library
from verifier.sweep.bits import leaf_changed
from verifier.sweep.survey import sweep

SMALL = Path(__file__).resolve().parents[1] / "evidence" / "base"
KINDS = {
    "bit flipped",
    "file deleted",
    "file duplicated",
    "file truncated",
    "files swapped",
    "identities swapped",
    "leaf changed",
    "leaf removed",
    "leaf retyped",
}


def test_a_sample_is_caught() -> None:
    """One change in 40 of each class, as it is and forged; nothing survives without a reason."""
    done = CliRunner().invoke(cli, ["mutate", str(SMALL), "--sweep", "--sample", "40"], standalone_mode=False)
    lines = done.output.splitlines()
    assert done.return_value == 0
    assert {line.partition(",")[0] for line in lines if " / " in line} == KINDS
    assert lines[-1] == "survive without a reason: 0"


@pytest.mark.slow
def test_all_of_the_small_bundle_is_caught() -> None:
    library = Library()
    base = assess(FolderEvidence(SMALL), library, level="raw", anchor=None)
    survey = sweep(base, library, level="raw")
    assert survey.wrong == []
    for kind in KINDS - {"leaf changed", "leaf removed"}:
        assert survey.caught[kind, "forged"] == survey.tried[kind, "forged"]
    assert sum(survey.tried.values()) > 10_000


def test_what_no_reason_covers_fails_the_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the table, the fields that no claim rests on are told as survivors."""
    monkeypatch.setattr(unchecked, "_SURVIVE", ())
    done = CliRunner().invoke(cli, ["mutate", str(SMALL), "--sweep", "--sample", "25"], standalone_mode=False)
    assert done.return_value == 1
    assert "leaf changed, forged: records/" in done.output


@pytest.mark.parametrize(
    ("path", "old", "new", "place"),
    [
        (
            "records/x.json",
            b'{"flags":{"quiet":0,"debug":1}}',
            b'{"flags":{"quiet":1,"debug":1}}',
            ".flags.quiet",
        ),
        (
            "records/x.json",
            b'{"flags":{"quiet":0,"debug":1}}',
            b'{"flags":{"puiet":0,"debug":1}}',
            ".flags.quiet",
        ),
        ("records/x.json", b'{"a":[{"b":"c"},{"b":"c"}]}', b'{"a":[{"b":"c"},{"b":"s"}]}', ".a[*].b"),
        ("records/x.json", b'{"a":1,"b":2}', b'{"a":1,"a":2}', ""),
        ("records/x.json", b'{"a":1,"b":2}', b'{"a":1,"b":2]', ""),
        ("attempts.jsonl", b'{"a":1}\n{"a":2}\n', b'{"a":1}\n{"a":3}\n', "[*].a"),
    ],
)
def test_a_flipped_bit_is_argued_for_by_the_value_that_it_changed(
    path: str, old: bytes, new: bytes, place: str
) -> None:
    assert leaf_changed(path, old, new) == place


def test_a_bundle_with_findings_is_not_swept(parts: Parts, tmp_path: Path) -> None:
    parts.records[H0]["process"]["environment"]["TZ"] = "CET"
    folder = forge.write(forge.seal(parts), tmp_path / "bundle")
    done = CliRunner().invoke(cli, ["mutate", str(folder), "--sweep"], standalone_mode=False)
    assert done.return_value == 3
    assert "expected a bundle without findings, got V406 records/" in done.output
