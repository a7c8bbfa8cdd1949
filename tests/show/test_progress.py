"""Progress is right at every moment: plain lines in a log file, a bar in a terminal, the same numbers."""

import io
import re

import pytest

from mechanism.show.progress import counting


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        """Yes."""
        return True


def shown(stream: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> str:
    """One cell of ten failed, seven are recorded, two are left, at 30 s each; then all is over."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    with counting("quick", unit="cells", stream=stream) as counter:
        counter.at(0, 10)
        counter.at(7, 10, failed=1, seconds_left=60.0)
        counter.note("ablation.forced-grid.H1.1: killed: ended by SIGSEGV (signal 11)")
        counter.at(9, 10, failed=1, seconds_left=0.0)
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue())


def test_log_file_gets_a_line_for_every_tenth_and_every_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(io.StringIO(), monkeypatch) == (
        "quick: 0 of 10 cells, 0 failed\n"
        "quick: 7 of 10 cells, 1 failed, about 60 s left\n"
        "ablation.forced-grid.H1.1: killed: ended by SIGSEGV (signal 11)\n"
        "quick: 9 of 10 cells, 1 failed, about 0 s left\n"
    )


def test_terminal_shows_the_runners_own_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the bar's, which would wait for the cell that failed."""
    text = shown(Terminal(), monkeypatch)
    assert "killed: ended by SIGSEGV (signal 11)" in text
    last = text.strip().rpartition("\n")[2].rpartition("\r")[2]
    assert "9/10" in last
    assert "1 failed" in last
    assert last.rstrip().endswith("0 s left")


def test_work_without_an_estimate_is_estimated_from_its_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for fixtures: nothing before the first part is done, then what the parts took."""
    ticks = iter([100.0, *[104.0] * 50])
    monkeypatch.setattr("mechanism.show.bar.time.monotonic", lambda: next(ticks, 104.0))
    stream = Terminal()
    monkeypatch.setenv("COLUMNS", "120")
    with counting("fixture", unit="matrices", stream=stream) as counter:
        counter.at(1, 4)
    assert "s left" in stream.getvalue()
