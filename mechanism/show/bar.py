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

from mechanism.show.counter import Counter, Standing


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

    def show(self, now: Standing) -> None:
        clock, left = time.monotonic(), now.seconds_left
        if left is None and now.done:
            left = (clock - self._began) / now.done * (now.total - now.done)
        ends = None if left is None or now.done == now.total or now.interrupted else clock + left
        counts = ((now.failed, "failed"), (now.interrupted, "interrupted"))
        told = ", ".join(f"{count} {what}" for count, what in counts if count)
        self._bar.update(self._task, completed=now.done, total=now.total, failed=told, ends=ends)

    def note(self, text: str) -> None:
        self._bar.console.print(text, markup=False, highlight=False)
