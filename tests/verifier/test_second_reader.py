"""The second reader agrees with the verifier, claim by claim and in its exit code, on all that it can see."""

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
from tests.verifier import forge
from tests.verifier.conftest import Judge
from tests.verifier.edits import EDITS, Edit
from tests.verifier.forge import Files, Parts
from verifier.evidence import FolderEvidence
from verifier.library import Library
from verifier.load import load
from verifier.mutations import apply
from verifier.write import write_folder

SCRIPT = Path(second_reader.__file__)
#: What it does not look at, by finding code, and why; with these it may say that all is well.
BEYOND = {
    "plan.yaml and ledger.yaml say it": "V204 V307 V308 V312 V313 V314 V315 V316 V406 V607 V702 V704",
    "circumstances of a process and bookkeeping of the log": "V405 V407 V409 V411 V412 V414 V415 V416"
    " V417 V418 V419",
    "alignments are taken as they are": "V501 V503 V505 V506",
    "shapes, symbols, counts, captures": "V108 V605 V703 V803 V805 V810",
    "in part: the ledger's name, a nonce, an attempt without a record": "V304 V410 V413",
}
NOT_SEEN = {code for codes in BEYOND.values() for code in codes.split()}
RECORDS = [edit for edit in EDITS if edit.level == "records" and edit.anchor is None]
SEEN = [edit for edit in RECORDS if not NOT_SEEN & {code for code, _ in edit.found}]
UNSEEN = [edit for edit in RECORDS if edit not in SEEN]


def some_slow(edits: list[Edit]) -> list[object]:
    """Every fifth at once, the others where slow tests are run."""
    return [
        pytest.param(edit, id=edit.name, marks=() if place % 5 == 0 else pytest.mark.slow)
        for place, edit in enumerate(edits)
    ]


def second(folder: Path) -> tuple[dict[str, str], int]:
    """Its verdicts without C11, which needs raw bytes, and its exit code."""
    verdicts, code = second_reader.judge(folder)
    return {claim: verdict for claim, verdict in verdicts.items() if claim != "C11"}, code


def first(judge: Judge, files: Files) -> tuple[dict[str, str], int]:
    """The verifier's."""
    checked = judge(files)
    return {
        claim.id: claim.verdict for claim in checked.report.claims if claim.id != "C11"
    }, checked.exit_code


def test_it_is_small_and_stands_alone() -> None:
    text = SCRIPT.read_text()
    assert text.count("\n") <= 200
    names = {
        (node.module or "" if isinstance(node, ast.ImportFrom) else node.names[0].name).split(".")[0]
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    assert names <= set(sys.stdlib_module_names)


def test_it_agrees_on_a_good_bundle(good_folder: Path, good_files: Files, judge: Judge) -> None:
    assert second(good_folder) == first(judge, good_files)
    assert set(second(good_folder)[0].values()) == {"supported"}


@pytest.mark.parametrize("edit", some_slow(SEEN))
def test_it_agrees_on_a_broken_one(edit: Edit, parts: Parts, judge: Judge, tmp_path: Path) -> None:
    files = edit.make(parts)
    assert second(forge.write(files, tmp_path / "bundle")) == first(judge, files)


@pytest.mark.slow
@pytest.mark.parametrize("codes", BEYOND.values(), ids=BEYOND.keys())
def test_what_it_cannot_see_is_that_and_no_more(
    codes: str, parts: Parts, judge: Judge, tmp_path: Path
) -> None:
    """Each code of the list is in an edit that the two judge differently; it never accuses out of itself."""
    different = set()
    for edit in UNSEEN:
        if {code for code, _ in edit.found} & set(codes.split()):
            files = edit.make(parts.copy())
            mine, verifiers = second(forge.write(files, tmp_path / edit.name)), first(judge, files)
            assert set(mine[0].values()) <= {"supported", "refuted", *verifiers[0].values()}
            different |= {code for code, _ in edit.found} if mine != verifiers else set()
    assert set(codes.split()) <= different


def test_most_of_all_edits_are_seen() -> None:
    assert len(SEEN) >= 45


@pytest.mark.parametrize("place", range(7))
def test_it_agrees_on_what_refutes_a_claim(
    place: int, good_folder: Path, judge: Judge, tmp_path: Path
) -> None:
    """The known-bad of every causal claim: a process with the bytes of another treatment, all digests right."""
    data = (good_folder / "ledger.yaml").read_bytes()
    claims = read_yaml(Ledger, load_yaml(data, name="ledger"), name="ledger").claims
    known_bad = [claim.known_bad for claim in claims if claim.known_bad is not None]
    overlay = apply(known_bad[place], load(FolderEvidence(good_folder), Library()))
    write_folder(overlay, tmp_path / "bundle")
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
    assert json.loads(done.stdout)["C06"] == "supported"
