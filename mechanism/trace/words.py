"""A trace for people: where the bits part, then two histories side by side, one line an operation."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from mechanism.trace.rows import rows
from mechanism.trace.story import Trace

WIDTH = 100
LABEL = 28  # columns of the first column


def words(trace: Trace) -> str:
    """The whole text."""
    return "\n".join(_lines(trace)) + "\n"


def _lines(trace: Trace) -> Iterator[str]:
    evidence = "SIMULATED " if trace.simulated else ""
    yield f"{evidence}{trace.surface} [{trace.row}, {trace.column}], {trace.title}"
    yield ""
    yield from textwrap.wrap(trace.parts, WIDTH)
    yield ""
    yield _line("", trace.left.history, trace.right.history if trace.right else "")
    for row in rows(trace):
        yield _line(row.label, row.left, row.right) + ("  <" if row.differs else "")
    for history, value in trace.captured:
        traced = next(story for story in (trace.left, trace.right) if story and story.history == history)
        agrees = "the same bits" if traced.final.bits == value.bits else "OTHER BITS"
        yield f"captured under {history}: {value}, {agrees}"


def _line(label: str, left: str, right: str) -> str:
    return f"{label:<{LABEL}}  {left:<34}  {right}".rstrip()
