"""Progress in a terminal: a live bar, with the estimate that was last given counted down."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskID,
    TextColumn,
)
from rich.text import Text

from mechanism.show.counter import Counter


@contextmanager
def live(name: str, out: TextIO) -> Iterator[Counter]:
    """A bar for `name` on a terminal."""
    with Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[failed]}"),
        _Left(),
        console=Console(file=out),
        transient=False,
    ) as bar:
        yield _Bar(bar, bar.add_task(name, total=None, failed="", ends=None))


class _Left(ProgressColumn):
    """The estimate last given, counted down. The bar's own would wait for cells that failed."""

    def render(self, task: Task) -> Text:
        """Seconds left; nothing while there is no estimate."""
        ends = task.fields["ends"]
        return Text("" if ends is None else f"{max(0, ends - time.monotonic()):.0f} s left")


class _Bar(Counter):
    def __init__(self, bar: Progress, task: TaskID) -> None:
        self._bar, self._task = bar, task
        self._began = time.monotonic()

    def at(
        self,
        done: int,
        total: int,
        *,
        failed: int = 0,
        interrupted: int = 0,
        seconds_left: float | None = None,
    ) -> None:
        now = time.monotonic()
        if seconds_left is None and done:
            seconds_left = (now - self._began) / done * (total - done)
        ends = None if seconds_left is None or done == total or interrupted else now + seconds_left
        told = [
            f"{count} {what}" for count, what in ((failed, "failed"), (interrupted, "interrupted")) if count
        ]
        self._bar.update(self._task, completed=done, total=total, failed=", ".join(told), ends=ends)

    def note(self, text: str) -> None:
        self._bar.console.print(text, markup=False, highlight=False)
