"""What a campaign tells its observer while it works: frozen events; showing them is somebody else's."""

from collections.abc import Callable

from ledger.bundle import Outcome
from mechanism.values import frozen


@frozen
class Progress:
    """Where a campaign stands, in cells. `left_s`: seconds, estimated; None before the first cell ended.

    `interrupted`: cells that were stopped with the runner; nothing is known against them.
    """

    done: int
    failed: int
    interrupted: int
    running: int
    total: int
    left_s: float | None


@frozen
class CampaignStarted:
    """Before the first process. `notes`: what resuming found, for people."""

    progress: Progress
    notes: tuple[str, ...]


@frozen
class CellStarted:
    """A cold process is about to start."""

    attempt: int
    name: str
    progress: Progress


@frozen
class CellEnded:
    """A cold process ended, and this is in the log."""

    attempt: int
    name: str
    outcome: Outcome
    reason: str
    progress: Progress


@frozen
class CampaignFinished:
    """The bundle is complete. `notes`: what finishing it did beside, for people."""

    progress: Progress
    notes: tuple[str, ...]


Event = CampaignStarted | CellStarted | CellEnded | CampaignFinished
Observer = Callable[[Event], None]


def unobserved(_event: Event) -> None:
    """For callers who do not want to know."""
