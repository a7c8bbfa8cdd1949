"""From a cell, a row and a column to a trace; the one place where this room reads a folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ledger.plan import Plan
from ledger.record import Record, RoutingFile
from mechanism.fixture.obtain import routing_of
from mechanism.plan.document import load_plan
from mechanism.trace.element import Run, Tracer, value16
from mechanism.trace.errors import TraceError
from mechanism.trace.layer import LayerView
from mechanism.trace.parting import parting
from mechanism.trace.source import CellName, cell_name, document, planned_runs, recorded_runs
from mechanism.trace.story import Trace, Value


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """What to trace: `cell` as text, `surface`, `row` and `column`."""

    cell: str
    surface: str
    row: int
    column: int


def trace_plan(path: Path, asked: Asked, cache: Path) -> Trace:
    """A trace of what a plan would give.

    Raises:
        PlanError, FaultsError: The plan cannot be read.
        TraceError: No such cell or element.
    """
    plan = load_plan(path).plan
    name = cell_name(plan, asked.cell)
    runs = planned_runs(plan, name, routing_of(plan.fixture, cache))
    return trace_runs(plan, name, runs, asked, LayerView(plan, cache))


def trace_bundle(folder: Path, asked: Asked, cache: Path) -> Trace:
    """A trace of what a bundle recorded, held against its captures if they are there.

    Raises:
        PlanError, FaultsError: The bundle's plan cannot be read.
        TraceError: No bundle, or no such cell, element or record.
    """
    if not (folder / "plan.yaml").is_file():
        inner = folder / asked.cell
        if (inner / "plan.yaml").is_file():
            raise TraceError(f"{inner}: expected BUNDLE/CELL, got a bundle alone; name one of its cells too")
        raise TraceError(
            f"{folder}: expected the folder of a bundle, found no plan.yaml in it; check the path"
        )
    plan = load_plan(folder / "plan.yaml").plan
    name = cell_name(plan, asked.cell)
    document(RoutingFile, folder, "routing.json")  # a bundle without it is none
    runs, records = recorded_runs(folder, plan, name)
    captured = {}
    for history in filter(None, (name.history, name.other)):
        if (value := _captured(folder, records[history], asked)) is not None:
            captured[history] = value
    return trace_runs(plan, name, runs, asked, LayerView(plan, cache), captured)


def trace_runs(
    plan: Plan,
    name: CellName,
    runs: dict[str, Run],
    asked: Asked,
    layer: LayerView,
    captured: dict[str, Value] | None = None,
) -> Trace:
    """A trace of given runs. Raises TraceError for an element that the surface does not have."""
    _require_element(plan, asked)
    tracer = Tracer(plan, layer)
    mine = runs[name.history]
    other = runs[name.other] if name.other is not None else None
    left = tracer.element(mine, asked.surface, asked.row, asked.column, other=other)
    right = None
    if other is not None:
        right = tracer.element(other, asked.surface, asked.row, asked.column, other=mine)
    return Trace(
        title=f"{name.phase}.{name.cell.name}.{name.history} of plan {plan.name}",
        simulated=plan.engine == "simulated",
        surface=asked.surface,
        row=asked.row,
        column=asked.column,
        left=left,
        right=right,
        captured=tuple((captured or {}).items()),
        parts=parting(left, right),
    )


def surface_shape(plan: Plan, surface: str) -> tuple[int, int]:
    """Rows and columns of a surface (marlin-moe appendix B)."""
    fixture = plan.fixture
    return {
        "w13": (fixture.routes, 2 * fixture.intermediate),
        "activation": (fixture.routes, fixture.intermediate),
        "w2": (fixture.routes, fixture.hidden),
        "output": (fixture.tokens, fixture.hidden),
    }[surface]


def _require_element(plan: Plan, asked: Asked) -> None:
    rows, columns = surface_shape(plan, asked.surface)
    what = "tokens" if asked.surface == "output" else "routes"
    for option, value, size in (("--row", asked.row, rows), ("--column", asked.column, columns)):
        if not 0 <= value < size:
            of = f" ({what})" if option == "--row" else ""
            raise TraceError(f"{option}: expected 0..{size - 1} of {asked.surface}{of}, got {value}")


def _captured(folder: Path, record: Record, asked: Asked) -> Value | None:
    """The element in a capture; None if the captures were left out of the bundle."""
    path = folder / "objects" / f"{record.capture}.safetensors"
    if not path.exists():
        return None
    from safetensors import safe_open  # noqa: PLC0415 - only where there is a capture

    try:
        with safe_open(path, framework="numpy") as tensors:
            array = tensors.get_slice(asked.surface)
            rows, columns = array.get_shape()
            if asked.row >= rows or asked.column >= columns:
                return None
            return value16(np.asarray(array[asked.row : asked.row + 1])[:, asked.column])
    except Exception as fault:  # safetensors raises its own kinds
        raise TraceError(
            f"{path}: expected a capture with {asked.surface}, got: {fault}; `verifier check --level raw`"
            " says what is wrong"
        ) from fault
