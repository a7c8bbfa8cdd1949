"""What is traced: a cell of a plan, or of a recorded bundle, under its histories."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel

from ledger.canonical import CanonicalError, parse_canonical
from ledger.model import read_json
from ledger.plan import Cell, Plan
from ledger.record import AlignmentFile, Record, RoutingFile, record_path
from mechanism.kernel.alignment import Alignment
from mechanism.plan import geometry
from mechanism.plan.inject import injected
from mechanism.trace.element import Run
from mechanism.trace.errors import TraceError

ModelT = TypeVar("ModelT", bound=BaseModel)


@dataclass(frozen=True, kw_only=True, slots=True)
class CellName:
    """A cell as named, ``[phase.]cell[.history[.replicate]]``, with what was left out filled in."""

    phase: str
    cell: Cell
    history: str
    replicate: int

    @property
    def other(self) -> str | None:
        """The history to compare with: the next one of the cell; None if it has one alone."""
        histories = self.cell.histories
        place = histories.index(self.history)
        return histories[(place + 1) % len(histories)] if len(histories) > 1 else None


def cell_name(plan: Plan, text: str) -> CellName:
    """The cell of a plan that a text names.

    Raises:
        TraceError: No such cell, history or replicate, with those there are.
    """
    for candidate in _readings(text):
        for phase, cell in plan.cells():
            named, history, replicate = candidate
            if cell.name != named[-1] or (len(named) == 2 and phase.name != named[0]):
                continue
            if history is not None and history not in cell.histories:
                continue
            if not 1 <= replicate <= plan.replicates:
                raise TraceError(f"{text}: expected a replicate of 1 to {plan.replicates}, got {replicate}")
            return CellName(
                phase=phase.name, cell=cell, history=history or cell.histories[0], replicate=replicate
            )
    known = ", ".join(f"{cell.name}.{history}" for _, cell in plan.cells() for history in cell.histories)
    raise TraceError(
        f"{text}: expected a cell of plan {plan.name}, [phase.]cell[.history[.replicate]]; it has {known}"
    )


def _readings(text: str) -> list[tuple[tuple[str, ...], str | None, int]]:
    """A text's parts as (names, history, replicate), longest reading first."""
    parts = text.removesuffix(".json").split(".")
    replicate = 1
    if len(parts) > 1 and parts[-1].isdecimal():
        replicate = int(parts.pop())
    readings: list[tuple[tuple[str, ...], str | None, int]] = []
    if 2 <= len(parts) <= 3:
        readings.append((tuple(parts[:-1]), parts[-1], replicate))
    if len(parts) <= 2:
        readings.append((tuple(parts), None, replicate))
    return readings


def planned_runs(plan: Plan, name: CellName, routing: RoutingFile) -> dict[str, Run]:
    """The cell's runs as the plan makes them, by history. Raises AlignmentError as the plan's rules do."""
    natives = {history: geometry.native(plan, history, routing.topk_ids) for history in plan.histories}
    return {
        history: _run(
            plan,
            name,
            history,
            natives[history]
            if name.cell.alignment == "constructed"
            else injected(plan, name.cell, history, natives, routing.topk_ids),
        )
        for history in name.cell.histories
    }


def recorded_runs(folder: Path, plan: Plan, name: CellName) -> tuple[dict[str, Run], Mapping[str, Record]]:
    """The cell's runs as recorded, by history, with their records.

    Raises:
        TraceError: A record or its alignment is not there, or is none.
    """
    runs, records = {}, {}
    for history in name.cell.histories:
        record = document(Record, folder, record_path(name.phase, name.cell.name, history, name.replicate))
        delivered = record.treatment.alignment
        aligned = document(AlignmentFile, folder, f"alignments/{delivered.sha256}.json")
        alignment = Alignment(
            block_size_m=aligned.block_size_m,
            routes=aligned.routes,
            sorted_token_ids=aligned.sorted_token_ids,
            expert_ids=aligned.expert_ids,
            num_tokens_post_padded=aligned.num_tokens_post_padded,
            sorted_length=delivered.sorted_length,
            expert_length=delivered.expert_length,
        )
        runs[history] = _run(plan, name, history, alignment)
        records[history] = record
    return runs, records


def document(model: type[ModelT], folder: Path, path: str) -> ModelT:
    """One canonical JSON document of a bundle.

    Raises:
        TraceError: It is not there, or not canonical JSON.
        FaultsError: It is not what it should be, with every fault.
    """
    try:
        return read_json(model, parse_canonical((folder / path).read_bytes()), name=path)
    except OSError as fault:
        raise TraceError(
            f"{folder / path}: cannot be read: {fault.strerror}; is the bundle complete?"
        ) from fault
    except CanonicalError as fault:
        raise TraceError(f"{folder / path}: {fault}; `verifier check` says what else is wrong") from fault


def _run(plan: Plan, name: CellName, history: str, alignment: Alignment) -> Run:
    w13, w2 = (
        geometry.schedule(plan, gemm, padded_blocks=len(alignment.expert_ids), grid=name.cell.grid)
        for gemm in geometry.gemms(plan.fixture)
    )
    return Run(history=history, alignment=alignment, schedules=(w13, w2))
