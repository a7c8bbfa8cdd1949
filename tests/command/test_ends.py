"""How both programs end: with their code, all that they said written, and in words where nobody can read it."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

QUICK = Path(__file__).parents[2] / "plans" / "quick.yaml"
FULL = Path("/dev/full")


@pytest.mark.skipif(not FULL.exists(), reason="no device that is always full")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("mechanism", "--help"), "mechanism: No space left on device\n"),
        (
            ("mechanism", "schedule", QUICK),
            "mechanism: No space left on device; nothing recorded was changed\n",
        ),
        (("verifier", "--help"), "cannot go on: No space left on device\n"),
    ],
)
def test_nowhere_to_write_is_one_line_and_4(arguments: tuple[object, ...], said: str) -> None:
    with FULL.open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", *map(str, arguments)],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (done.returncode, done.stderr) == (4, said)


@pytest.mark.parametrize("closed", [1, 2])
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("mechanism", "schedule", QUICK), 0),
        (("mechanism", "status", "/no/such"), 4),
        (("verifier", "check", QUICK.parents[1] / "runs" / "route-block"), 0),
        (("verifier", "check", QUICK), 3),
    ],
)
def test_a_stream_that_is_closed_is_no_verdict(arguments: tuple[object, ...], code: int, closed: int) -> None:
    """As a daemon starts programs: the exit code is what it is, and nothing else is said."""
    argv = " ".join(shlex.quote(str(word)) for word in (sys.executable, "-m", *arguments))
    done = subprocess.run(["sh", "-c", f"{argv} {closed}>&-"], capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.parametrize("program", ["mechanism", "verifier"])
def test_all_that_was_said_arrives(program: str) -> None:
    """Through a pipe, whose buffer nobody else would empty."""
    done = subprocess.run(
        [sys.executable, "-m", program, "--version"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("0.1.0\n")
