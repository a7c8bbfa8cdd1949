"""Progress on stderr: a live bar in a terminal, plain lines otherwise. stdout stays for results."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from mechanism.show.counter import Counter, Standing

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

    def show(self, now: Standing) -> None:
        step = now.done * PLAIN_STEPS // now.total if now.total else PLAIN_STEPS
        if (step, now.failed, now.interrupted) == self._told:
            return
        self._told = (step, now.failed, now.interrupted)
        going = now.seconds_left is not None and now.done < now.total and not now.interrupted
        left = f", about {now.seconds_left:.0f} s left" if going else ""
        stopped = f", {now.interrupted} interrupted" if now.interrupted else ""
        self.note(f"{self._name}: {now.done} of {now.total} {self._unit}, {now.failed} failed{stopped}{left}")

    def note(self, text: str) -> None:
        print(text, file=self._out, flush=True)
