"""A trace as rows of three columns, label, left, right: what the text and the page both show."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest

from mechanism.trace.story import ElementStory, GemmStory, SliceStory, Step, Trace, Value


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One line.

    Attributes:
        label: What is told, with its section; parts of a slice begin with two spaces.
        left: Under the history asked for.
        right: Under the other one.
        values: Whether the two are numbers.
        comparable: Whether they are sums of the same products, so that it means something if they differ.
    """

    label: str
    left: str
    right: str
    values: bool
    comparable: bool

    @property
    def differs(self) -> bool:
        """Whether both sides have a number that could be the same, and is not."""
        return self.values and self.comparable and bool(self.left and self.right) and self.left != self.right


def rows(trace: Trace) -> Iterator[Row]:
    """All lines, in the order of the operations."""
    right = trace.right
    compact = len(trace.left.gemms) > 2
    for place, mine in enumerate(trace.left.gemms):
        theirs = right.gemms[place] if right else None
        yield from _compact(place, mine, theirs) if compact else _gemm(mine, theirs)
    yield from _steps(trace.left.steps, right.steps if right else ())
    yield from _final(trace.left, right)


def _compact(place: int, mine: GemmStory, theirs: GemmStory | None) -> Iterator[Row]:
    """One line for a GEMM element that is one of many."""

    def told(story: GemmStory | None) -> str:
        if story is None:
            return ""
        return f"{story.final}  block {story.block}, {len(story.slices)} slice{'s' * (len(story.slices) > 1)}"

    yield _row(f"x{place}: W2 of route {mine.route}", told(mine), told(theirs))


def _gemm(mine: GemmStory, theirs: GemmStory | None) -> Iterator[Row]:
    yield _row(f"{mine.gemm.upper()} column {mine.column}", _place(mine), _place(theirs) if theirs else "")
    yield _row("", _tile(mine), _tile(theirs) if theirs else "")
    others: tuple[SliceStory, ...] = theirs.slices if theirs else ()
    for place, pair in enumerate(zip_longest(mine.slices, others)):
        yield from _slice(place, *pair)
    yield from _steps(mine.adds, theirs.adds if theirs else ())
    yield from _steps(mine.roundings, theirs.roundings if theirs else ())


def _slice(place: int, mine: SliceStory | None, theirs: SliceStory | None) -> Iterator[Row]:
    def head(item: SliceStory | None) -> str:
        return "" if item is None else f"CTA {item.cta}, K [{item.k[0]}, {item.k[1]})"

    yield _row(f"slice {place} [5.3]", head(mine), head(theirs))
    alike = mine is not None and theirs is not None and mine.k == theirs.k
    for row in range(max(len(item.warp_rows) if item else 0 for item in (mine, theirs))):
        yield _row(
            f"  warp row {row} [6.3]",
            *(_value(item.warp_rows[row]) if item else "" for item in (mine, theirs)),
            comparable=alike,
        )
    totals = (_value(item.total) if item else "" for item in (mine, theirs))
    yield _row("  sum of warp rows [6.4]", *totals, comparable=alike)


def _steps(mine: tuple[Step, ...], theirs: tuple[Step, ...]) -> Iterator[Row]:
    for left, right in zip_longest(mine, theirs):
        label = left or right
        if label is not None:
            yield _row(
                f"{label.label} [{label.section}]",
                _value(left.value) if left else "",
                _value(right.value) if right else "",
            )


def _final(left: ElementStory, right: ElementStory | None) -> Iterator[Row]:
    yield _row("element", _value(left.final), _value(right.final) if right else "")


def _place(story: GemmStory) -> str:
    return f"block {story.block} (expert {story.expert}), slot {story.slot}"


def _tile(story: GemmStory) -> str:
    return f"column tile {story.column_tile}: {story.schedule_class}, part {story.part}"


def _value(value: Value) -> str:
    return f"{value}  {value.decimal}"


def _row(label: str, left: str, right: str, *, comparable: bool = True) -> Row:
    values = left.startswith("0x") or right.startswith("0x")
    return Row(label=label, left=left, right=right, values=values, comparable=comparable)
