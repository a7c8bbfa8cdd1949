"""Which cell starts next: lock order, and no cell before the native alignment that it injects. Pure."""

from collections import deque
from collections.abc import Collection, Iterable, Mapping

from ledger.lock import LockedCell
from ledger.record import record_path
from mechanism.errors import CampaignError
from mechanism.values import frozen


def path_of(cell: LockedCell) -> str:
    """Where the cell's record lies; also the cell's name here."""
    return record_path(cell.phase, cell.cell, cell.history, cell.replicate)


def name_of(cell: LockedCell) -> str:
    """The cell as messages name it: transfer.canonical.H0.3."""
    return path_of(cell).removeprefix("records/").removesuffix(".json")


def donors(cells: Iterable[LockedCell]) -> Mapping[str, str]:
    """For every history, the record whose alignment other cells inject: its first native replicate.

    Raises CampaignError if a cell injects what no cell before it constructs.
    """
    found: dict[str, str] = {}
    for cell in cells:
        if cell.alignment == "constructed":
            found.setdefault(cell.history, path_of(cell))
        elif cell.donor is not None and cell.donor not in found:
            raise CampaignError(
                f"{name_of(cell)} injects the native alignment of {cell.donor}: expected a cell before it"
                " that constructs it, found none"
            )
    return found


@frozen
class Held:
    """A cell that needs the alignment of `donor`. `waits`: it is being made; otherwise it ended without."""

    cell: LockedCell
    donor: str
    waits: bool


class Queue:
    """The cells that are still to run, in lock order. None overtakes another."""

    def __init__(self, cells: Iterable[LockedCell], valid: Collection[str]) -> None:
        every = tuple(cells)
        self.donors = donors(every)
        self._waiting = deque(cell for cell in every if path_of(cell) not in valid)

    def __len__(self) -> int:
        return len(self._waiting)

    def take(self, valid: Collection[str], running: Collection[str]) -> LockedCell | Held | None:
        """The next cell to start; None when all are taken; Held when the next one cannot start yet.

        Cells behind it are not started instead: processes start in the lock's order, so that drift cannot
        pose as a treatment.
        """
        if not self._waiting:
            return None
        cell = self._waiting[0]
        donor = None if cell.donor is None else self.donors[cell.donor]
        if donor is None or donor in valid:
            return self._waiting.popleft()
        return Held(cell=cell, donor=donor, waits=donor in running)
