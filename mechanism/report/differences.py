"""Where two histories of a cell differ: how many elements of each surface, and the first of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ledger.plan import Cell
from ledger.record import record_path
from mechanism.kernel.rounding import differing_bits
from mechanism.report.errors import ReportError
from mechanism.report.source import Source


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """Two histories of one cell at one surface.

    Attributes:
        surface: Which.
        equal: Whether the digests are equal; known without captures.
        elements: Elements of the surface.
        differing: How many differ; None without captures.
        row: Of the first that differs, in row order; None without one.
        column: Of the same.
        rows: Rows that hold a difference, ascending.
        bits: The two bit patterns of the first, e.g. ``0x38E3``.
        decimals: The same as numbers.
    """

    surface: str
    equal: bool
    elements: int
    differing: int | None
    row: int | None = None
    column: int | None = None
    rows: tuple[int, ...] = ()
    bits: tuple[str, str] | None = None
    decimals: tuple[str, str] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class CellDifferences:
    """One cell's differences between two of its histories, surface by surface, first replicates."""

    phase: str
    cell: str
    histories: tuple[str, str]
    surfaces: tuple[Difference, ...]


def differences(source: Source) -> tuple[CellDifferences, ...]:
    """Every cell with two histories or more, its first two compared.

    Raises:
        ReportError: A capture is not what its record says.
    """
    return tuple(
        found
        for phase, cell in source.plan.cells()
        if len(cell.histories) > 1 and (found := _cell(source, phase.name, cell)) is not None
    )


def _cell(source: Source, phase: str, cell: Cell) -> CellDifferences | None:
    first, second = cell.histories[:2]
    pair = [source.records.get(record_path(phase, cell.name, history, 1)) for history in (first, second)]
    left, right = pair
    if left is None or right is None:
        return None
    paths = source.captured(left), source.captured(right)
    tensors: tuple[dict[str, np.ndarray], dict[str, np.ndarray]] | None = None
    if paths[0] is not None and paths[1] is not None:
        tensors = _load(paths[0]), _load(paths[1])
    surfaces = []
    for place, surface in enumerate(left.surfaces):
        equal = surface.sha256 == right.surfaces[place].sha256
        elements = surface.shape[0] * surface.shape[1]
        if tensors is None:
            surfaces.append(
                Difference(
                    surface=surface.name, equal=equal, elements=elements, differing=0 if equal else None
                )
            )
            continue
        a, b = tensors[0][surface.name], tensors[1][surface.name]
        surfaces.append(_surface(surface.name, a, b, equal=equal))
    return CellDifferences(phase=phase, cell=cell.name, histories=(first, second), surfaces=tuple(surfaces))


def _surface(name: str, a: np.ndarray, b: np.ndarray, *, equal: bool) -> Difference:
    found = differing_bits(a, b)
    if not len(found):
        return Difference(surface=name, equal=equal, elements=a.size, differing=0)
    row, column = divmod(int(found[0]), a.shape[1])
    pair = [tensor[row, column] for tensor in (a, b)]
    bits = [f"0x{int(np.asarray(value).view(np.uint16)):04X}" for value in pair]
    return Difference(
        surface=name,
        equal=equal,
        elements=a.size,
        differing=len(found),
        row=row,
        column=column,
        rows=tuple(sorted({int(index) // a.shape[1] for index in found})),
        bits=(bits[0], bits[1]),
        decimals=(str(pair[0]), str(pair[1])),
    )


def _load(path: Path) -> dict[str, np.ndarray]:
    from safetensors.numpy import load_file  # noqa: PLC0415 - only where there are captures

    try:
        loaded: dict[str, np.ndarray] = load_file(path)
    except Exception as fault:  # safetensors raises its own kinds
        raise ReportError(
            f"objects/{path.name}: expected captured tensors, got: {fault}; `verifier check --level raw`"
            " says what is wrong"
        ) from fault
    return loaded
