"""A trace for people: two histories side by side, one line an operation; then where the bits part."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from itertools import zip_longest

from mechanism.trace.story import ElementStory, GemmStory, SliceStory, Step, Trace, Value

WIDTH = 100
LABEL = 28  # columns of the first column


def words(trace: Trace) -> str:
    """The whole text."""
    return "\n".join(_lines(trace)) + "\n"


def _lines(trace: Trace) -> Iterator[str]:
    yield (
        f"{'SIMULATED ' if trace.simulated else ''}{trace.surface} [{trace.row}, {trace.column}],"
        f" {trace.title}"
    )
    yield ""
    yield from textwrap.wrap(trace.parts, WIDTH)
    yield ""
    right = trace.right
    yield _row("", trace.left.history, right.history if right else "")
    compact = len(trace.left.gemms) > 2
    for place, mine in enumerate(trace.left.gemms):
        theirs = right.gemms[place] if right else None
        yield from _compact(place, mine, theirs) if compact else _gemm(mine, theirs)
    yield from _steps(trace.left.steps, right.steps if right else ())
    yield from _final(trace.left, right)
    for history, value in trace.captured:
        traced = next(story for story in (trace.left, right) if story and story.history == history)
        agrees = "the same bits" if traced.final.bits == value.bits else "OTHER BITS"
        yield f"captured under {history}: {value}, {agrees}"


def _compact(place: int, mine: GemmStory, theirs: GemmStory | None) -> Iterator[str]:
    """One line for a GEMM element that is one of many."""

    def told(story: GemmStory | None) -> str:
        if story is None:
            return ""
        return f"{story.final}  block {story.block}, {len(story.slices)} slice{'s' * (len(story.slices) > 1)}"

    yield _row(f"x{place}: W2 of route {mine.route}", told(mine), told(theirs))


def _gemm(mine: GemmStory, theirs: GemmStory | None) -> Iterator[str]:
    yield _row(f"{mine.gemm.upper()} column {mine.column}", _place(mine), _place(theirs) if theirs else "")
    yield _row("", _tile(mine), _tile(theirs) if theirs else "")
    others: tuple[SliceStory, ...] = theirs.slices if theirs else ()
    for place, pair in enumerate(zip_longest(mine.slices, others)):
        yield from _slice(place, *pair)
    yield from _steps(mine.adds, theirs.adds if theirs else ())
    yield from _steps(mine.roundings, theirs.roundings if theirs else ())


def _slice(place: int, mine: SliceStory | None, theirs: SliceStory | None) -> Iterator[str]:
    def head(item: SliceStory | None) -> str:
        return "" if item is None else f"CTA {item.cta}, K [{item.k[0]}, {item.k[1]})"

    yield _row(f"slice {place} [5.3]", head(mine), head(theirs))
    rows = max(len(item.warp_rows) if item else 0 for item in (mine, theirs))
    for row in range(rows):
        yield _row(
            f"  warp row {row} [6.3]",
            *(_value(item.warp_rows[row]) if item else "" for item in (mine, theirs)),
        )
    yield _row("  sum of warp rows [6.4]", *(_value(item.total) if item else "" for item in (mine, theirs)))


def _steps(mine: tuple[Step, ...], theirs: tuple[Step, ...]) -> Iterator[str]:
    for left, right in zip_longest(mine, theirs):
        label = left or right
        if label is not None:
            yield _row(
                f"{label.label} [{label.section}]",
                _value(left.value) if left else "",
                _value(right.value) if right else "",
            )


def _final(left: ElementStory, right: ElementStory | None) -> Iterator[str]:
    yield _row("element", _value(left.final), _value(right.final) if right else "")


def _place(story: GemmStory) -> str:
    return f"block {story.block} (expert {story.expert}), slot {story.slot}"


def _tile(story: GemmStory) -> str:
    return f"column tile {story.column_tile}: {story.schedule_class}, part {story.part}"


def _value(value: Value) -> str:
    return f"{value}  {value.decimal}"


def _row(label: str, left: str, right: str) -> str:
    mark = "  <" if left and right and left != right and left.startswith("0x") else ""
    return f"{label:<{LABEL}}  {left:<34}  {right}{mark}".rstrip()
