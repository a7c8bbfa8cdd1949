"""The page says what the code does: outcomes and exit codes."""

import re
from pathlib import Path
from typing import get_args

from ledger.bundle import Outcome
from mechanism.process import exits, supervisor

PAGE = (Path(__file__).resolve().parents[2] / "mechanism" / "campaign" / "README.md").read_text()


def test_every_outcome_is_explained() -> None:
    assert re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE) == [
        "valid",
        "failed",
        "killed",
        "timeout",
        "invalid",
        "interrupted",
    ]
    assert set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)) == set(get_args(Outcome))


def test_exit_codes_of_a_cold_process() -> None:
    table = PAGE.partition("of a cold process")[2].partition("\n\n")[0]
    codes = {value for name, value in vars(exits).items() if name.isupper()} | {supervisor.CANNOT_START}
    assert {int(code) for code in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)} == codes
