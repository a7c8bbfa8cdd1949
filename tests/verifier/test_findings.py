"""Every edit of a good bundle gives exactly the findings that it lists, and every code has an edit."""

import pytest

from tests.verifier.conftest import Find
from tests.verifier.edits import EDITS, Edit
from tests.verifier.forge import Files, Parts
from verifier.codes import CODES

#: Codes that no edit of files can trip alone; each has a test of its own.
ELSEWHERE = {"V100", "V104", "V112", "V901", "V902", "V903", "V904", "V905", "V999"}
ELSEWHERE |= {code for code in CODES if code.startswith(("V12", "V85"))}  # releases, re-execution


def test_a_good_bundle_has_no_findings(good_files: Files, find: Find) -> None:
    """The bundle that all edits start from is good, at both levels."""
    assert find(good_files) == []
    assert find(good_files, level="raw") == []


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.name)
def test_edit(edit: Edit, parts: Parts, find: Find) -> None:
    """An edit gives what it lists, nothing else."""
    files = edit.make(parts)
    assert find(files, level=edit.level, anchor=edit.anchor) == edit.found


def test_every_code_has_an_edit() -> None:
    """No code is only promised."""
    assert {code for edit in EDITS for code, _ in edit.found} >= set(CODES) - ELSEWHERE - {"V506", "V807"}


def test_edits_have_names_of_their_own() -> None:
    """A failing case names itself."""
    names = [edit.name for edit in EDITS]
    assert len(set(names)) == len(names)
