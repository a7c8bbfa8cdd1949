"""Lock order, donors first, nobody overtakes."""

import pytest

from ledger.lock import LockedCell
from mechanism.campaign.order import Held, Queue, donors, name_of, path_of
from mechanism.errors import CampaignError


def cell(name: str, history: str, *, donor: str | None = None, replicate: int = 1) -> LockedCell:
    return LockedCell(
        phase="p",
        cell=name,
        history=history,
        replicate=replicate,
        alignment="constructed" if donor is None else "own",
        donor=donor,
        swap=None,
        grids=(1, 1),
    )


CELLS = (
    cell("native", "H0"),
    cell("native", "H1"),
    cell("replay", "H1", donor="H1"),
    cell("replay", "H0", donor="H0"),
    cell("native", "H0", replicate=2),
)


def test_names() -> None:
    assert (path_of(CELLS[2]), name_of(CELLS[2])) == ("records/p.replay.H1.1.json", "p.replay.H1.1")


def test_donor_is_the_first_native_replicate() -> None:
    assert donors(CELLS) == {"H0": "records/p.native.H0.1.json", "H1": "records/p.native.H1.1.json"}


def test_cell_waits_for_its_donor_and_those_behind_it_wait_too() -> None:
    queue = Queue(CELLS, valid=())
    running = {path_of(CELLS[0]), path_of(CELLS[1])}
    assert [queue.take((), running), queue.take((), running)] == list(CELLS[:2])
    held = Held(cell=CELLS[2], donor=path_of(CELLS[1]), waits=True)
    assert queue.take({path_of(CELLS[0])}, {path_of(CELLS[1])}) == held
    assert queue.take({path_of(CELLS[1])}, set()) == CELLS[2]
    assert queue.take({path_of(CELLS[1])}, set()) == Held(cell=CELLS[3], donor=path_of(CELLS[0]), waits=False)
    assert len(queue) == 2


def test_valid_cells_are_not_taken_again() -> None:
    valid = {path_of(item) for item in CELLS[:4]}
    queue = Queue(CELLS, valid)
    assert [queue.take(valid, ()), queue.take(valid, ())] == [CELLS[4], None]


def test_donor_that_no_cell_constructs() -> None:
    with pytest.raises(CampaignError) as refusal:
        Queue((cell("native", "H0"), cell("replay", "H1", donor="H1")), valid=())
    assert str(refusal.value) == (
        "p.replay.H1.1 injects the native alignment of H1: expected a cell before it that constructs it,"
        " found none"
    )
