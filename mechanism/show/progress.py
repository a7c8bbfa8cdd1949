"""Progress on stderr: a live bar in a terminal, plain lines otherwise. stdout stays for results."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from mechanism.show.counter import Counter

#: Without a terminal a line is printed whenever another tenth is done, and for every failure.
PLAIN_STEPS = 10


@contextmanager
def fixture_progress() -> Iterator[Callable[[int, int], None]]:
    """A callback `(done, total)` that shows how far the build of a fixture is."""
    with counting("fixture", unit="matrices") as shown:
        yield shown.at


@contextmanager
def counting(name: str, *, unit: str, stream: TextIO | None = None) -> Iterator[Counter]:
    """Progress of `name`, counted in `unit`, on stderr or on `stream`."""
    out = sys.stderr if stream is None else stream
    if not out.isatty():
        yield _Lines(name, unit, out)
        return
    from mechanism.show.bar import live  # noqa: PLC0415 - a log file does not wait for what draws bars

    with live(name, out) as bar:
        yield bar


class _Lines(Counter):
    def __init__(self, name: str, unit: str, out: TextIO) -> None:
        self._name, self._unit, self._out = name, unit, out
        self._told = (-1, 0, 0)

    def at(
        self,
        done: int,
        total: int,
        *,
        failed: int = 0,
        interrupted: int = 0,
        seconds_left: float | None = None,
    ) -> None:
        step = done * PLAIN_STEPS // total if total else PLAIN_STEPS
        if (step, failed, interrupted) == self._told:
            return
        self._told = (step, failed, interrupted)
        going = seconds_left is not None and done < total and not interrupted
        left = f", about {seconds_left:.0f} s left" if going else ""
        stopped = f", {interrupted} interrupted" if interrupted else ""
        self.note(f"{self._name}: {done} of {total} {self._unit}, {failed} failed{stopped}{left}")

    def note(self, text: str) -> None:
        print(text, file=self._out, flush=True)
