"""The page says what the code does: outcomes and exit codes."""

import re
from pathlib import Path
from typing import get_args

from ledger.bundle import Outcome
from mechanism.command.exits import REFUSED
from mechanism.command.status import CODES
from mechanism.process import exits, supervisor
from mechanism.process.containment import KINDS

PAGE = (Path(__file__).resolve().parents[2] / "mechanism" / "campaign" / "README.md").read_text()


def rows(header: str) -> list[str]:
    """First cells of the table that starts with this header."""
    table = PAGE.partition(header)[2].partition("\n\n")[0].partition("| --- |")[2]
    return re.findall(r"^\| `?(\w+)`? \|", table, re.MULTILINE)


def test_every_outcome_is_explained() -> None:
    assert set(rows("| outcome |")) == set(get_args(Outcome))


def test_every_way_to_hold_a_cell_is_explained_best_first() -> None:
    assert tuple(rows("| `by` |")) == KINDS


def test_exit_codes_of_status() -> None:
    assert set(rows("of `mechanism status DIR`")) == {*map(str, CODES.values()), str(REFUSED)}


def test_exit_codes_of_a_cold_process() -> None:
    table = PAGE.partition("of a cold process")[2].partition("\n\n")[0]
    codes = {value for name, value in vars(exits).items() if name.isupper()} | {supervisor.CANNOT_START}
    assert {int(code) for code in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)} == codes
