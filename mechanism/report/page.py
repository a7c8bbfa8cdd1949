"""From a bundle and the verifier's report to the page: sections as data, then one template."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from mechanism.kernel.assumptions import ASSUMPTIONS
from mechanism.report.differences import differences
from mechanism.report.schedule import recorded_map, stretches, themed_svg
from mechanism.report.source import Source, attempt, read_build, read_events
from mechanism.report.stories import first_cell, stories
from mechanism.report.timeline import timeline, timeline_svg
from mechanism.report.trajectories import trajectories
from mechanism.report.trajectory_svg import trajectory_svg
from mechanism.trace.rows import rows

#: What a verdict looks like without its colour.
MARKS = {
    "supported": "✓",
    "refuted": "✕",
    "missing": "○",
    "not-run": "○",
    "malformed": "!",
    "ambiguous": "?",
    "out-of-scope": "–",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdicts:
    """The verifier's JSON report, and the level it was asked for."""

    report: Mapping[str, Any]
    level: str


def page(source: Source, verdicts: Verdicts, cache: Path) -> str:
    """The whole page. The same bundle and report give the same text.

    Raises ImportError if the template engine is not installed.
    """
    from jinja2 import Environment, StrictUndefined  # noqa: PLC0415 - an extra, told by name if missing
    from markupsafe import Markup  # noqa: PLC0415

    templates = files("mechanism.report") / "templates"
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    template = environment.from_string((templates / "page.html.j2").read_text(encoding="utf-8"))
    style = (templates / "style.css").read_text(encoding="utf-8")
    pictures = {name: Markup(svg) for name, svg in _pictures(source).items()}  # noqa: S704 - built by ElementTree
    return template.render(
        style=Markup(style),  # noqa: S704 - our own file
        pictures=pictures,
        marks=MARKS,
        assumptions=ASSUMPTIONS,
        **_sections(source, verdicts, cache),
    )


def _pictures(source: Source) -> dict[str, str]:
    shown, _ = attempt(lambda: themed_svg(recorded_map(source)))
    times, _ = attempt(lambda: timeline_svg(timeline(read_events(source))))
    paths = trajectories(source.records.values(), source.plan.surfaces)
    return {"schedule": shown or "", "timeline": times or "", "trajectories": trajectory_svg(paths)}


def _sections(source: Source, verdicts: Verdicts, cache: Path) -> dict[str, Any]:
    """Everything the template names. A section that cannot be made says why instead."""
    shown, no_schedule = attempt(lambda: recorded_map(source))
    times, no_times = attempt(lambda: timeline(read_events(source)))
    build, no_build = attempt(lambda: read_build(source))
    found, no_differences = attempt(lambda: differences(source))
    cell = first_cell(source, found or ())
    traced, no_traces = (None, "") if cell is None else attempt(lambda: stories(source, cell, cache))
    report = verdicts.report
    return {
        "source": source,
        "plan": source.plan,
        "report": report,
        "level": verdicts.level,
        "claims": report["claims"],
        "findings": report["findings"],
        "non_claims": report["non_claims"],
        "not_checked": report["not_checked"],
        "shown": shown,
        "stretches": stretches(shown) if shown else (),
        "no_schedule": no_schedule,
        "paths": trajectories(source.records.values(), source.plan.surfaces),
        "differences": found or (),
        "no_differences": no_differences,
        "cell": cell,
        "traces": [{"trace": trace, "rows": list(rows(trace))} for trace in traced or ()],
        "no_traces": no_traces,
        "times": times,
        "no_times": no_times,
        "build": build,
        "no_build": no_build,
    }
