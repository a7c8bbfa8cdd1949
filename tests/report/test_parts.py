"""Trajectories and timeline as laws: letters mean bytes, lanes never overlap, the pictures say what the data say."""

import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st

from ledger.bundle import AttemptEnded, AttemptStarted, LogResumed
from mechanism.report.schedule import recorded_map, stretches, themed_svg
from mechanism.report.source import read_source
from mechanism.report.timeline import timeline, timeline_svg
from mechanism.report.trajectories import trajectories
from mechanism.report.trajectory_svg import trajectory_svg
from mechanism.show.schedule_svg import DIRECT, INK, MOVED, PALE, SPLIT

SVG = "{http://www.w3.org/2000/svg}"
ZERO = "0" * 64


def started(attempt: int, time_us: int) -> AttemptStarted:
    return AttemptStarted(
        event="started",
        previous=ZERO,
        attempt=attempt,
        phase="p",
        cell="c",
        history="H0",
        replicate=attempt,
        nonce="0" * 32,
        time_us=time_us,
    )


def ended(attempt: int, time_us: int, outcome: str = "valid") -> AttemptEnded:
    return AttemptEnded(
        event="ended",
        previous=ZERO,
        attempt=attempt,
        outcome=outcome,  # type: ignore[arg-type]
        reason="" if outcome == "valid" else "because",
        exit_code=0,
        signal=None,
        descendants_killed=0,
        stderr=None,
        record=None,
        time_us=time_us,
    )


def record(cell: str, history: str, *digests: str) -> Any:
    surfaces = [SimpleNamespace(sha256=digest) for digest in digests]
    return SimpleNamespace(phase="p", cell=cell, history=history, surfaces=surfaces)


def test_letters_mean_bytes() -> None:
    found = trajectories(
        [
            record("a", "H0", "1", "x"),
            record("a", "H0", "1", "x"),
            record("b", "H0", "1", "y"),
            record("c", "H0", "2", "y"),
        ],
        ("w13", "output"),
    )
    assert [(path.letters, [(arm.name, arm.processes) for arm in path.arms]) for path in found.paths] == [
        (("A", "A"), [("a H0", 2)]),
        (("A", "B"), [("b H0", 1)]),
        (("B", "B"), [("c H0", 1)]),
    ]
    assert len(found.of("a", "H0")) == 1
    root = ET.fromstring(trajectory_svg(found))
    assert len(list(root.iter(f"{SVG}circle"))) == 4  # two distinct bytes at each of two surfaces
    assert len(list(root.iter(f"{SVG}path"))) == 3
    assert root.findtext(f"{SVG}title") == (
        "3 distinct trajectories; 2 distinct at w13, 2 distinct at output. The table below says the same."
    )


@given(st.lists(st.lists(st.sampled_from("pqrs"), min_size=3, max_size=3), min_size=1, max_size=30))
def test_same_letter_exactly_where_same_bytes(rows: list[list[str]]) -> None:
    found = trajectories([record(str(n), "H0", *row) for n, row in enumerate(rows)], ("a", "b", "c"))
    for place in range(3):
        letters = {path.digests[place]: path.letters[place] for path in found.paths}
        assert len(set(letters.values())) == len(letters) == len({row[place] for row in rows})
    assert sum(arm.processes for path in found.paths for arm in path.arms) == len(rows)


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(1, 300)), min_size=1, max_size=40))
def test_bars_of_a_lane_never_overlap(spans: list[tuple[int, int]]) -> None:
    """As many lanes as attempts ran at once, no fewer and no more."""
    events: list[Any] = []
    for attempt, (start, length) in enumerate(spans, start=1):
        events += [(start, 1, started(attempt, start)), (start + length, 0, ended(attempt, start + length))]
    found = timeline(event for _, _, event in sorted(events, key=lambda item: item[:2]))
    for lane in range(found.lanes):
        bars = sorted((bar for bar in found.bars if bar.lane == lane), key=lambda bar: bar.start_us)
        assert all(before.end_us <= after.start_us for before, after in itertools.pairwise(bars))
    busiest = max(sum(s <= start < s + length for s, length in spans) for start, _ in spans)
    assert found.lanes == busiest


def test_clocks_of_two_runners_are_joined_and_unended_attempts_kept() -> None:
    found = timeline(
        [
            started(1, 5000),
            ended(1, 6000, "killed"),
            started(2, 6500),
            LogResumed(event="resumed", previous=ZERO, torn="", time_us=100),
            started(3, 300),
            ended(3, 400),
        ]
    )
    assert [(bar.attempt, bar.start_us, bar.end_us, bar.outcome) for bar in found.bars] == [
        (1, 0, 1000, "killed"),
        (2, 1500, 1500, "no end recorded"),
        (3, 1700, 1800, "valid"),
    ]
    assert (found.resumed, [bar.attempt for bar in found.failed]) == (1, [1, 2])
    root = ET.fromstring(timeline_svg(found))
    assert sum(text.text == "✕" for text in root.iter(f"{SVG}text")) == 2


def test_an_empty_log_has_an_empty_picture() -> None:
    found = timeline([])
    assert (found.bars, found.lanes, found.end_us) == ((), 0, 0)
    ET.fromstring(timeline_svg(found))


def test_schedule_map_of_a_bundle_is_that_of_its_plan(bundle: Path) -> None:
    shown = recorded_map(read_source(bundle))
    assert shown.moved_routes == (20, 37)
    rows = stretches(shown)
    assert [row.blocks for row in rows] == ["0–6", "7", "8", "9–11"]
    assert [name for name, _ in rows[1].routes] == ["H0", "H1"]
    assert [route for route, moved in rows[2].routes[0][1] if moved] == [37]
    picture = themed_svg(shown)
    assert not any(f'"{colour}"' in picture for colour in (DIRECT, INK, MOVED, PALE, SPLIT, "#ffffff"))
    assert "SIMULATED schedule of plan quick" in picture
