"""Level reexecute: the child's answer becomes findings; without a good answer nothing passes."""

import json
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ledger.canonical import sha256
from tests.reexecute.rebuilt import rebuilt_parts
from tests.verifier import forge
from tests.verifier.forge import Parts
from verifier.evidence import FolderEvidence
from verifier.reexecute import AGREEMENT, RE_EXECUTION, Reexecuted, reexecute

NATIVE = "records/qualification.native.H0.1.json"
SURFACES = ("w13", "activation", "w2", "output")
Answer = dict[str, Any]
Ask = Callable[..., Reexecuted]


@pytest.fixture
def answer(good: Parts, good_files: dict[str, bytes]) -> Answer:
    """An answer about the good bundle: everything is equal."""
    records = [
        {
            "path": path,
            "sha256": sha256(good_files[path]),
            "treatment": 0,
            "compared": [_compared(f"surfaces.{name}", "ab" * 32) for name in SURFACES]
            + [_compared("trajectory", "cd" * 32), _compared("assumptions", "U2, U5")],
        }
        for path in sorted(good.records)
    ]
    digest = good.lock["fixture"]["digest"]
    return {
        "schema_version": 1,
        "kind": "re-execution",
        "computed": "simulated",
        "arithmetic": "numpy",
        "cohort": {
            "name": "quick",
            "engine": "simulated",
            "evidence": "simulated",
            "plan": sha256(good_files["plan.yaml"]),
            "software": sha256(good_files["build.json"]),
        },
        "fixture": {"recorded": digest, "rebuilt": digest, "equal": True},
        "source": [],
        "treatments": [{"alignment": "ab" * 32, "grids": [24, 24], "records": 70, "fault": None}],
        "records": records,
        "unread": [],
        "surfaces": [{"surface": name, "equal": 70, "compared": 70} for name in SURFACES],
        "equal": True,
    }


def _compared(quantity: str, value: str) -> Answer:
    return {"quantity": quantity, "equal": True, "recorded": value, "recomputed": value}


@pytest.fixture
def ask(good_folder: Path, tmp_path: Path) -> Ask:
    """Re-execution of the good bundle by a program that prints what it is given."""

    def run(
        said: str, *, code: int = 0, stderr: str = "", already: frozenset[str] = frozenset()
    ) -> Reexecuted:
        (tmp_path / "said").write_text(said)
        program = tmp_path / "python"
        program.write_text(
            f'#!/bin/sh\ncat {tmp_path}/said\n[ -d "$5" ] && echo \'{stderr}\' "$5" >&2\nexit {code}\n'
        )
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        return reexecute(FolderEvidence(good_folder), already=already, python=str(program))

    return run


def differ(answer: Answer, *quantities: str) -> None:
    """Have quantities of the native record differ."""
    record = next(item for item in answer["records"] if item["path"] == NATIVE)
    for item in record["compared"]:
        if item["quantity"] in quantities:
            item |= {"equal": False, "recomputed": "00"}
    answer["equal"] = False


def found(result: Reexecuted) -> list[tuple[str, str]]:
    return [(item.code, item.where) for item in result.findings]


def test_equal_bits_give_no_finding(ask: Ask, answer: Answer) -> None:
    result = ask(json.dumps(answer))
    assert (result.findings, result.checked, result.not_checked) == ((), RE_EXECUTION, {})
    assert [note.reason for note in result.notes] == ["equal on 70 of 70 records, numpy"] * 4


def test_differences_become_findings(ask: Ask, answer: Answer) -> None:
    """A trajectory that follows from its surfaces is not one more."""
    differ(answer, "surfaces.w2", "trajectory", "assumptions")
    result = ask(json.dumps(answer), code=1)
    assert found(result) == [
        ("V851", f"{NATIVE}:surfaces.w2"),
        ("V853", f"{NATIVE}:assumptions"),
    ]
    assert result.findings[1].expected == "00, recomputed"
    assert result.findings[1].got == "U2, U5"


def test_a_trajectory_alone_is_a_finding(ask: Ask, answer: Answer) -> None:
    differ(answer, "trajectory")
    assert found(ask(json.dumps(answer), code=1)) == [("V851", f"{NATIVE}:trajectory")]


def test_another_fixture_is_a_finding(ask: Ask, answer: Answer) -> None:
    answer["fixture"] |= {"rebuilt": "ab" * 32, "equal": False}
    answer |= {"records": [], "treatments": [], "equal": False}
    assert found(ask(json.dumps(answer), code=1)) == [("V850", "plan.lock:fixture.digest")]


def test_other_source_is_said(ask: Ask, answer: Answer) -> None:
    answer["source"] = [{"path": "mechanism/kernel/gemm.py", "recorded": "ab" * 32, "here": None}]
    result = ask(json.dumps(answer))
    assert result.findings == ()
    assert (result.notes[-1].name, result.notes[-1].reason) == ("source", "1: mechanism/kernel/gemm.py")


def test_agreement_with_a_gpu_cohort_concerns_no_claim(ask: Ask, answer: Answer) -> None:
    answer |= {"kind": "agreement", "cohort": {**answer["cohort"], "engine": "vllm", "evidence": "gpu"}}
    differ(answer, "surfaces.w13")
    answer["surfaces"][0]["equal"] = 69
    result = ask(json.dumps(answer), code=1)
    (item,) = result.findings
    assert (item.code, item.claims, item.got) == ("V856", frozenset(), "others; equal on 69 of 70 records")
    assert result.checked == AGREEMENT
    assert result.notes[0].says == "agreement of a model, no evidence"


@pytest.mark.parametrize(
    ("bend", "got"),
    [
        (
            lambda a: a["records"].pop(0),
            "nothing about records/ablation.block-boundary.H0.1.json: not in the lock",
        ),
        (
            lambda a: a["records"][0].update(sha256="ab" * 32),
            f"an answer about records/ablation.block-boundary.H0.1.json with sha256 {'ab' * 32}, which here is ",
        ),
        (
            lambda a: a.update(equal=False),
            "an answer that does not keep its schema: answer:1: expected equal: true",
        ),
        (
            lambda a: a.update(more=1),
            "an answer that does not keep its schema: answer:1: more: expected no such key",
        ),
    ],
    ids=["record-left-out", "other-bytes", "contradiction", "unknown-key"],
)
def test_an_answer_about_something_else_is_none(
    ask: Ask, answer: Answer, bend: Callable[[Answer], object], got: str
) -> None:
    bend(answer)
    result = ask(json.dumps(answer))
    assert found(result) == [("V855", ".")]
    assert result.findings[0].got.startswith(got)
    assert set(result.not_checked) == set(RE_EXECUTION) - {"V855"}


@pytest.mark.parametrize(
    ("said", "code", "got"),
    [
        ("", 4, "exit code 4: refused $BUNDLE"),
        ("", 1, "exit code 1: refused $BUNDLE"),
        ("{", 0, "an answer that does not keep its schema: expected one JSON value, got something else: "),
        (
            '{"a":1,"a":1}',
            0,
            "an answer that does not keep its schema: expected each key once, got 'a' twice",
        ),
    ],
)
def test_no_answer_is_missing_evidence(ask: Ask, said: str, code: int, got: str) -> None:
    result = ask(said, code=code, stderr="refused")
    assert found(result) == [("V855", ".")]
    assert result.findings[0].got.startswith(got)


def test_an_answer_at_odds_with_its_exit_code_is_none(ask: Ask, answer: Answer) -> None:
    (item,) = ask(json.dumps(answer), code=1).findings
    assert item.got == "exit code 1 with an answer that says equal: True"


def test_no_answer_on_a_bundle_found_wanting_is_not_one_more_finding(ask: Ask) -> None:
    result = ask("", code=4, stderr="refused", already=frozenset({"plan.lock"}))
    assert result.findings == ()
    assert set(result.not_checked) == set(RE_EXECUTION)


def test_without_mechanism_it_says_what_to_install(
    good_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    (item,) = reexecute(FolderEvidence(good_folder)).findings
    assert (item.code, item.got) == (
        "V855",
        "mechanism is not installed here; install the extra `run`: in the project's folder: pip install -e '.[run]'; then check again",
    )


def test_the_program_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bundle with right bits but for one surface; the child's cache is the test's."""
    monkeypatch.setitem(os.environ, "MECHANISM_CACHE", str(tmp_path / "cache"))
    parts = rebuilt_parts(tmp_path / "cache")
    parts.records[NATIVE]["surfaces"][0]["sha256"] = "ab" * 32
    folder = forge.write(forge.seal(parts), tmp_path / "bundle")
    result = reexecute(FolderEvidence(folder), python=sys.executable)
    assert found(result) == [("V851", f"{NATIVE}:surfaces.w13")]
