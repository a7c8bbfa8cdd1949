"""The trajectory graph: surfaces across, one station per distinct bytes, one line per path."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from mechanism.report.trajectories import Trajectories, Trajectory

LABELS, STEP, LINE, TOP, RIGHT, DOT = 330, 190, 18, 54, 40, 14  # pixels
PER_LINE = 3  # arms named on one line


def trajectory_svg(found: Trajectories) -> str:
    """The picture's text; colours are classes of the page's style sheet. Same paths, same bytes."""
    heights = [max(2 * DOT + 14, LINE * len(_names(path)) + 22) for path in found.paths]
    tops = [TOP + sum(heights[:place]) for place in range(len(heights))]
    middles = [top + height / 2 for top, height in zip(tops, heights, strict=True)]
    width = LABELS + 40 + STEP * (len(found.surfaces) - 1) + DOT + RIGHT
    root = ET.Element(
        "svg",
        {
            "xmlns": "http://www.w3.org/2000/svg",
            "viewBox": f"0 0 {width} {TOP + sum(heights) + 8}",
            "width": str(width),
            "height": str(TOP + sum(heights) + 8),
            "role": "img",
            "class": "graph",
            "aria-labelledby": "trajectory-title",
        },
    )
    ET.SubElement(root, "title", {"id": "trajectory-title"}).text = _says(found)
    stations = _stations(found, middles)
    for place, surface in enumerate(found.surfaces):
        _text(root, _x(place), 24, surface, "station-name")
    for number, (path, middle) in enumerate(zip(found.paths, middles, strict=True)):
        _line(root, number, path, stations, middle)
    for (place, letter), y in stations.items():
        ET.SubElement(
            root, "circle", {"cx": str(_x(place)), "cy": f"{y:g}", "r": str(DOT), "class": "station"}
        )
        _text(root, _x(place), y + 5, letter, "letter")
    for path, top, height in zip(found.paths, tops, heights, strict=True):
        names = _names(path)
        start = top + (height - LINE * len(names)) / 2 + 13
        for row, name in enumerate(names):
            _text(root, 6, start + LINE * row, name, "arm")
    return ET.tostring(root, encoding="unicode")


def _x(place: int) -> int:
    return LABELS + 40 + STEP * place


def _stations(found: Trajectories, middles: list[float]) -> dict[tuple[int, str], float]:
    """Height of every station: the mean of the paths that pass it, so that shared ones are met half way."""
    passing: dict[tuple[int, str], list[float]] = {}
    for path, middle in zip(found.paths, middles, strict=True):
        for place, letter in enumerate(path.letters):
            passing.setdefault((place, letter), []).append(middle)
    return {key: sum(heights) / len(heights) for key, heights in passing.items()}


def _line(
    root: ET.Element, number: int, path: Trajectory, stations: dict[tuple[int, str], float], middle: float
) -> None:
    x, y = float(LABELS - 12), middle
    drawn = f"M {x:g} {y:g}"
    for place, letter in enumerate(path.letters):
        to_x, to_y = float(_x(place)), stations[place, letter]
        half = (x + to_x) / 2
        drawn += f" C {half:g} {y:g} {half:g} {to_y:g} {to_x:g} {to_y:g}"
        x, y = to_x, to_y
    weight = f"{1.5 + 0.35 * sum(arm.processes for arm in path.arms) ** 0.7:.1f}"
    ET.SubElement(root, "path", {"d": drawn, "class": f"path path-{number % 6}", "stroke-width": weight})


def _names(path: Trajectory) -> list[str]:
    """Arms by cell, a few on a line."""
    names = [arm.name for arm in path.arms]
    return ["  ·  ".join(names[start : start + PER_LINE]) for start in range(0, len(names), PER_LINE)]


def _text(root: ET.Element, x: float, y: float, text: str, kind: str) -> None:
    ET.SubElement(root, "text", {"x": f"{x:g}", "y": f"{y:g}", "class": kind}).text = text


def _says(found: Trajectories) -> str:
    stations = ", ".join(
        f"{len({path.letters[place] for path in found.paths})} distinct at {surface}"
        for place, surface in enumerate(found.surfaces)
    )
    return f"{len(found.paths)} distinct trajectories; {stations}. The table below says the same."
