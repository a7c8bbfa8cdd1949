"""Who the records are, all looked at at once: where that is as it should be, no check looks at each again."""

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ledger.record import record_path
from verifier.bundle import Facts, Unreadable
from verifier.found import ArmKey
from verifier.store.table import Table, hashed
from verifier.workings import PlanWorkings


@dataclass(frozen=True, kw_only=True, slots=True)
class Census:
    """There is one only where V401 to V405 find nothing.

    Every process of the plan has one record, under its own name, and no two are the same process.
    `arms`: the places of the records of each. `by_attempt`: the last record with markers, by place from 1.
    """

    arms: Mapping[ArmKey, "array[int]"]
    by_attempt: Table


def taken(items: Sequence[Facts | Unreadable], planned: PlanWorkings | None) -> Census | None:
    """The census of some records; None if there is anything that a check should say."""
    if planned is None or len(items) != len(planned.cells):
        return None
    cells = planned.cells
    there = bytearray(len(cells))
    nonces, processes, by_attempt = Table(), Table(), Table()
    arms: dict[ArmKey, array[int]] = {}
    for place, facts in enumerate(items):
        if isinstance(facts, Unreadable) or (at := cells.place(facts.slot)) is None or there[at]:
            return None
        there[at] = 1
        if facts.path != record_path(*facts.slot):
            return None
        if nonces.first(hashed(facts.nonce), 1) or processes.first(hashed(facts.process), 1):
            return None
        if (arm := arms.get(facts.arm)) is None:
            arm = arms[facts.arm] = array("I")
        arm.append(place)
        if facts.markers:
            by_attempt.set(facts.attempt, place + 1)
    return Census(arms=arms, by_attempt=by_attempt)


def identity(item: Facts | Unreadable) -> tuple[object, ...]:
    """What a census looks at."""
    if isinstance(item, Unreadable):
        return tuple(item)
    return item.path, item.slot, item.nonce, item.process, item.attempt, bool(item.markers)
