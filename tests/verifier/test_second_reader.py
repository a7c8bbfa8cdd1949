"""The second reader and the verifier say the same of every case, but for those that only others than JSON tell."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from ledger.claim import Ledger
from ledger.model import read_yaml
from ledger.strict_yaml import load as load_yaml
from tests import second_reader
from tests.evidence.base_bundle import HERE
from tests.evidence.materialise import files_of, materialise, write_folder
from tests.verifier import forge
from tests.verifier.conftest import Judge
from tests.verifier.edits import EDITS, Edit
from tests.verifier.forge import Files, Parts
from verifier.evidence import FolderEvidence
from verifier.library import Library
from verifier.load import load
from verifier.mutations import apply
from verifier.write import write_folder as write_overlay

SCRIPT = Path(second_reader.__file__)
CASES = sorted((HERE / "cases").iterdir())
#: Cases of which it says another exit code, and why it cannot tell. A case that is not here must agree, and a
#: case that is here must not. Beside these: an archive or a release that must be refused, for its wrapping.
BEYOND = {
    "plan.yaml and ledger.yaml are YAML: their syntax": "the-ledger-has-an-anchor yaml-crlf yaml-directive"
    " yaml-key-twice yaml-norway yaml-nul yaml-tag yaml-two-documents",
    "ledger.yaml alone says it: its name, its claims, its mutations": "the-lock-names-another-ledger"
    " a-claim-cites-a-cell-that-is-not-there claim-refuted mutation-not-refused treatment-not-delivered"
    " mutation-that-cannot-be-made",
    "plan.yaml alone says it: which routes are pinned": "a-pinned-route-is-elsewhere",
    "it refuses, but by the claim that is then refuted": "treatment-that-cannot-matter",
    "the bytes of captured tensors": "a-bit-is-flipped a-capture-is-none a-capture-lacks-a-tensor"
    " a-nan-is-not-said captures-are-asked-for-and-left-out",
    "re-execution": "fixture-of-another-recipe bits-no-engine-computed ambiguous-elements-made-up",
}
#: The codes of those. None is of a file's digest, of coverage, or of an equality that the default plan's ledger
#: claims (V901 is of a ledger that claims something else): these are what it works out, and of them it agrees
#: on every case.
CODES_BEYOND = (
    {"V204", "V304", "V312", "V313", "V315", "V901", "V902", "V903", "V904"}  # what YAML says
    | {"V801", "V806", "V807", "V808", "V809"}  # level raw
    | {"V850", "V851", "V853"}  # level reexecute
)
NOT_SEEN = {f"{name}_fail" for names in BEYOND.values() for name in names.split()}
#: The same of the edits of the larger bundle: YAML but for the last, which it refuses by a claim.
EDITS_NOT_SEEN = {
    *("the_ledger_has_an_anchor", "the_plan_has_an_unknown_key", "the_lock_names_another_ledger"),
    *("a_pinned_route_is_elsewhere", "a_claim_cites_a_cell_that_is_not_there"),
    "a_swap_is_not_within_a_block",
}
RECORDS = [edit for edit in EDITS if edit.level == "records"]


def some_slow(edits: list[Edit]) -> list[object]:
    """Every fifth at once, the others where slow tests are run."""
    return [
        pytest.param(edit, id=edit.name, marks=() if place % 5 == 0 else pytest.mark.slow)
        for place, edit in enumerate(edits)
    ]


def second(folder: Path, anchor: str | None = None) -> tuple[dict[str, str], int]:
    """Its verdicts without C11, which needs raw bytes, and its exit code."""
    verdicts, code, faults = second_reader.judge(folder, anchor or "")
    assert bool(faults) == (code in {2, 3} and "supported" not in verdicts.values())
    return {claim: verdict for claim, verdict in verdicts.items() if claim != "C11"}, code


def first(judge: Judge, files: Files, anchor: str | None = None) -> tuple[dict[str, str], int]:
    """The verifier's."""
    checked = judge(files, anchor=anchor)
    return {
        claim.id: claim.verdict for claim in checked.report.claims if claim.id != "C11"
    }, checked.exit_code


def test_it_is_small_and_stands_alone() -> None:
    text = SCRIPT.read_text()
    assert text.count("\n") <= 200
    assert max(map(len, text.splitlines())) <= 110
    names = {
        (node.module or "" if isinstance(node, ast.ImportFrom) else node.names[0].name).split(".")[0]
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    assert names <= set(sys.stdlib_module_names)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_it_agrees_on_every_case(case: Path, tmp_path: Path) -> None:
    """Its exit code is the one that the case expects. What an archive holds is shown to it as a folder."""
    expected = json.loads((case / "expected.json").read_text(encoding="utf-8"))
    path = materialise(case, tmp_path / "bundle")
    beyond = case.name in NOT_SEEN or (path.is_file() and case.name.endswith("_fail"))
    if path.is_file():
        patch = json.loads((case / "patch.json").read_text(encoding="utf-8"))
        beside = patch["archive"].get("beside", ())
        files = {name: data for name, data in files_of(case, patch).items() if name not in beside}
        path = write_folder(files, patch, tmp_path / "unpacked")
    agrees = second(path, expected["expect_plan"])[1] == expected["exit_code"]
    assert agrees != beyond


def test_what_is_beyond_it_is_listed_once() -> None:
    """Each is a case, and they are few."""
    assert {case.name for case in CASES} >= NOT_SEEN
    assert len(NOT_SEEN) == sum(len(names.split()) for names in BEYOND.values()) == 24
    assert len(CASES) - len(NOT_SEEN) >= 165


def test_what_is_beyond_it_is_of_these_codes() -> None:
    """And every other finding of the conformance cases is one that it refuses too: the test above."""
    found = {
        finding["code"]
        for name in NOT_SEEN
        for finding in json.loads((HERE / "cases" / name / "expected.json").read_text())["findings"]
    }
    assert found == CODES_BEYOND


def test_it_agrees_on_a_good_bundle(good_folder: Path, good_files: Files, judge: Judge) -> None:
    assert second(good_folder) == first(judge, good_files)
    assert set(second(good_folder)[0].values()) == {"supported"}


@pytest.mark.parametrize("edit", some_slow(RECORDS))
def test_it_agrees_on_a_broken_one(edit: Edit, parts: Parts, judge: Judge, tmp_path: Path) -> None:
    """The exit code is the verifier's; where the evidence is in order, so is the verdict on every claim."""
    files = edit.make(parts)
    mine = second(forge.write(files, tmp_path / "bundle"), edit.anchor)
    theirs = first(judge, files, edit.anchor)
    assert (mine[1] == theirs[1]) == (edit.name not in EDITS_NOT_SEEN)
    if theirs[1] == 0:
        assert mine == theirs


def test_the_edits_beyond_it_are_named() -> None:
    assert {edit.name for edit in RECORDS} >= EDITS_NOT_SEEN


@pytest.mark.parametrize("place", range(7))
def test_it_agrees_on_what_refutes_a_claim(
    place: int, good_folder: Path, judge: Judge, tmp_path: Path
) -> None:
    """The known-bad of every causal claim: a process with the bytes of another treatment, all digests right."""
    data = (good_folder / "ledger.yaml").read_bytes()
    claims = read_yaml(Ledger, load_yaml(data, name="ledger"), name="ledger").claims
    known_bad = [claim.known_bad for claim in claims if claim.known_bad is not None]
    overlay = apply(known_bad[place], load(FolderEvidence(good_folder), Library()))
    write_overlay(overlay, tmp_path / "bundle")
    files = {
        path.relative_to(tmp_path / "bundle").as_posix(): path.read_bytes()
        for path in (tmp_path / "bundle").rglob("*")
        if path.is_file()
    }
    assert second(tmp_path / "bundle") == first(judge, files)
    assert second(tmp_path / "bundle")[1] == 1


def test_the_command(good_folder: Path) -> None:
    """Isolated: nothing but the interpreter and the script."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", SCRIPT, good_folder], check=False, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    said = json.loads(done.stdout)
    assert (said["C06"], said["faults"]) == ("supported", [])
    assert said["not checked"] == (
        "plan.yaml, ledger.yaml and tensors but by digest; if alignments are legal; archives; re-execution"
    )
    argv = [sys.executable, "-I", "-S", str(SCRIPT), str(good_folder), "0" * 64]
    anchored = subprocess.run(argv, check=False, capture_output=True, text=True)
    assert (anchored.returncode, json.loads(anchored.stdout)["faults"]) == (2, ["the anchor"])
