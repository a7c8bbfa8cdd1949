"""What there is to compute: each distinct (alignment, grids) of a cohort once. Pure, no numpy."""

from collections.abc import Mapping
from dataclasses import dataclass

from ledger.lock import LockedCell
from ledger.plan import Plan
from ledger.record import Record, RoutingFile, record_path
from mechanism.kernel.alignment import variant
from mechanism.kernel.arrival import relies_on_lane_order
from mechanism.plan.geometry import arrival_order
from mechanism.reexecute.source import BundleError, Source

#: Distinct trajectories beyond this many are refused: an honest cohort has a few, each takes a second or two.
MOST = 1000


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class Treatment:
    """An alignment by its sha256, and the CTAs of w13 and w2."""

    alignment: str
    grids: tuple[int, int]


def treatment_of(record: Record) -> Treatment:
    """What a record says its process was given."""
    w13, w2 = record.treatment.gemms
    return Treatment(alignment=record.treatment.alignment.sha256, grids=(w13.grid, w2.grid))


def distinct(source: Source) -> tuple[Treatment, ...]:
    """Every treatment of a bundle once, sorted. Raises BundleError for more than MOST."""
    found = sorted({treatment_of(item.record) for item in source.records.values()})
    if len(found) > MOST:
        raise BundleError(f"records: expected at most {MOST} distinct treatments, got {len(found)}")
    return tuple(found)


def alignment_assumptions(source: Source) -> Mapping[str, tuple[str, ...]]:
    """Per record path, what its alignment rests on beside its bits: U5 if that needs lanes out of order.

    Only where it stems from a history in simulation; a stable order is nobody's history.
    """
    plan, routing = source.plan.plan, source.routing
    lanes = {name: _needs_lanes(plan, name, routing) for name in plan.histories}
    return {
        record_path(cell.phase, cell.cell, cell.history, cell.replicate): (
            ("U5",) if lanes.get(_history(cell) or "", False) else ()
        )
        for cell in source.lock.cells
    }


def _history(cell: LockedCell) -> str | None:
    return cell.history if cell.alignment == "constructed" else cell.donor


def _needs_lanes(plan: Plan, history: str, routing: RoutingFile) -> bool:
    fixture = plan.fixture
    atomics = plan.engine == "simulated" and variant(fixture.routes, fixture.experts) == "large"
    if not atomics or plan.stable_construction:
        return False
    order = arrival_order(plan.histories[history].arrival, fixture.routes)
    return relies_on_lane_order(order, routing.topk_ids)
