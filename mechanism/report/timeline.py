"""When which process ran, and how it ended. Pure: events in, bars on lanes out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from xml.etree import ElementTree as ET

from ledger.bundle import AttemptEnded, AttemptStarted, LogResumed

WIDTH, LEFT, LANE, TOP, BOTTOM = 940, 56, 26, 10, 34  # pixels
_STEPS = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400)  # seconds between marks


@dataclass(frozen=True, kw_only=True, slots=True)
class Bar:
    """One attempt. Times in microseconds after the first start; `lane` counts from 0."""

    attempt: int
    name: str
    start_us: int
    end_us: int
    lane: int
    outcome: str
    reason: str

    @property
    def seconds(self) -> str:
        """How long it took, for people."""
        return f"{(self.end_us - self.start_us) / 1e6:.2f}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Timeline:
    """All attempts in the order of their start. `resumed`: how often another runner went on."""

    bars: tuple[Bar, ...]
    resumed: int

    @property
    def lanes(self) -> int:
        """Most attempts at one time."""
        return max((bar.lane for bar in self.bars), default=-1) + 1

    @property
    def end_us(self) -> int:
        """End of the last one."""
        return max((bar.end_us for bar in self.bars), default=0)

    @property
    def failed(self) -> tuple[Bar, ...]:
        """Those that left no valid record."""
        return tuple(bar for bar in self.bars if bar.outcome != "valid")


def timeline(events: Iterable[AttemptStarted | AttemptEnded | LogResumed]) -> Timeline:
    """Lay attempts on as few lanes as they need. One that never ended is drawn as it began.

    Clocks of two runners do not agree: after a resumption times go on from the last one seen.
    """
    started: dict[int, tuple[AttemptStarted, int]] = {}
    ended: dict[int, tuple[AttemptEnded, int]] = {}
    resumed, last, shift = 0, 0, None
    for event in events:
        if isinstance(event, LogResumed):
            resumed, shift = resumed + 1, last - event.time_us
            continue
        if shift is None:
            shift = -event.time_us
        now = max(event.time_us + shift, 0)
        last = max(last, now)
        if isinstance(event, AttemptStarted):
            started[event.attempt] = event, now
        else:
            ended[event.attempt] = event, now
    bars, free = [], list[int]()
    for number, (event, start) in sorted(started.items(), key=lambda item: (item[1][1], item[0])):
        end, at = ended.get(number, (None, start))
        lane = next((place for place, until in enumerate(free) if until <= start), len(free))
        free[lane : lane + 1] = [at]
        bars.append(
            Bar(
                attempt=number,
                name=f"{event.phase}.{event.cell}.{event.history}.{event.replicate}",
                start_us=start,
                end_us=at,
                lane=lane,
                outcome=end.outcome if end else "no end recorded",
                reason=end.reason if end else "the log has no end of it",
            )
        )
    return Timeline(bars=tuple(bars), resumed=resumed)


def timeline_svg(found: Timeline) -> str:
    """The picture's text; colours are classes of the page's style sheet, and failures also bear a cross."""
    height = TOP + LANE * max(found.lanes, 1) + BOTTOM
    scale = (WIDTH - LEFT - 14) / max(found.end_us, 1)
    root = ET.Element(
        "svg",
        {
            "xmlns": "http://www.w3.org/2000/svg",
            "viewBox": f"0 0 {WIDTH} {height}",
            "width": str(WIDTH),
            "height": str(height),
            "role": "img",
            "class": "timeline",
            "aria-labelledby": "timeline-title",
        },
    )
    ET.SubElement(root, "title", {"id": "timeline-title"}).text = (
        f"{len(found.bars)} attempts over {found.end_us / 1e6:.0f} seconds, at most {found.lanes} at a time,"
        f" {len(found.failed)} of them without a valid record. The table below lists them."
    )
    _marks(root, found.end_us, scale, height - BOTTOM)
    for lane in range(found.lanes):
        _text(root, 6, TOP + LANE * lane + 17, f"slot {lane + 1}", "axis")
    for bar in found.bars:
        x, width = LEFT + bar.start_us * scale, max((bar.end_us - bar.start_us) * scale - 1, 1.5)
        y = TOP + LANE * bar.lane + 3
        good = "valid" if bar.outcome == "valid" else "bad"
        size = {"width": f"{width:.2f}", "height": str(LANE - 6), "rx": "2"}
        box = ET.SubElement(root, "rect", {"x": f"{x:.2f}", "y": str(y), **size, "class": f"bar {good}"})
        ET.SubElement(box, "title").text = f"{bar.name}: {bar.outcome}, {bar.seconds} s"
        if good == "bad":
            _text(root, x + width / 2, y + 15, "✕", "cross")
    return ET.tostring(root, encoding="unicode")


def _marks(root: ET.Element, end_us: int, scale: float, bottom: int) -> None:
    seconds = end_us / 1e6
    step = next((step for step in _STEPS if seconds / step <= 8), _STEPS[-1])
    for mark in range(0, int(seconds) + 1, step):
        x = f"{LEFT + mark * 1e6 * scale:.2f}"
        ET.SubElement(
            root, "line", {"x1": x, "x2": x, "y1": str(TOP), "y2": str(bottom + 4), "class": "tick"}
        )
        _text(root, float(x), bottom + 20, f"{mark} s", "axis middle")


def _text(root: ET.Element, x: float, y: float, text: str, kind: str) -> None:
    ET.SubElement(root, "text", {"x": f"{x:g}", "y": f"{y:g}", "class": kind}).text = text
