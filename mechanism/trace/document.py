"""A trace as one JSON object."""

from __future__ import annotations

from typing import Any

from mechanism.trace.story import ElementStory, GemmStory, Step, Trace, Value


def document(trace: Trace) -> dict[str, Any]:
    """The whole trace as plain data; bits as hexadecimal text."""
    return {
        "title": trace.title,
        "evidence": "simulated" if trace.simulated else "gpu",
        "surface": trace.surface,
        "row": trace.row,
        "column": trace.column,
        "histories": [_element(story) for story in (trace.left, trace.right) if story is not None],
        "captured": {history: _value(value) for history, value in trace.captured},
        "agrees": trace.agrees,
        "parts": trace.parts,
    }


def _element(story: ElementStory) -> dict[str, Any]:
    return {
        "history": story.history,
        "final": _value(story.final),
        "inputs_differ": story.inputs_differ,
        "gemms": [_gemm(gemm) for gemm in story.gemms],
        "steps": [_step(step) for step in story.steps],
    }


def _gemm(story: GemmStory) -> dict[str, Any]:
    return {
        "gemm": story.gemm,
        "route": story.route,
        "column": story.column,
        "expert": story.expert,
        "block": story.block,
        "slot": story.slot,
        "column_tile": story.column_tile,
        "class": story.schedule_class,
        "part": story.part,
        "slices": [
            {
                "cta": item.cta,
                "k": list(item.k),
                "warp_rows": [_value(row) for row in item.warp_rows],
                "sum": _value(item.total),
            }
            for item in story.slices
        ],
        "adds": [_step(step) for step in story.adds],
        "roundings": [_step(step) for step in story.roundings],
    }


def _step(step: Step) -> dict[str, Any]:
    return {"label": step.label, "section": step.section, **_value(step.value)}


def _value(value: Value) -> dict[str, Any]:
    return {"bits": str(value), "decimal": value.decimal}
