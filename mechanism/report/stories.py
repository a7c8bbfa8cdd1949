"""The first difference at every surface, traced: the sums that led there."""

from __future__ import annotations

from pathlib import Path

from mechanism.report.differences import CellDifferences
from mechanism.report.source import Source
from mechanism.trace.story import Trace
from mechanism.trace.tracing import Asked, trace_bundle


def first_cell(source: Source, found: tuple[CellDifferences, ...]) -> CellDifferences | None:
    """The cell whose differences are shown in full: the first that constructs its alignment and differs."""
    constructed = {cell.name for _, cell in source.plan.cells() if cell.alignment == "constructed"}
    ranked = sorted(found, key=lambda cell: cell.cell not in constructed)
    return next((cell for cell in ranked if any(item.differing for item in cell.surfaces)), None)


def stories(source: Source, cell: CellDifferences, cache: Path) -> tuple[Trace, ...]:
    """One trace per surface with a difference. Raises as ``trace_bundle``."""
    return tuple(
        trace_bundle(
            source.folder,
            Asked(
                cell=f"{cell.phase}.{cell.cell}.{cell.histories[0]}.1",
                surface=item.surface,
                row=item.row,
                column=item.column,
            ),
            cache,
        )
        for item in cell.surfaces
        if item.row is not None and item.column is not None
    )
