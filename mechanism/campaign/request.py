"""A campaign as asked for, and how it ended."""

from collections.abc import Mapping
from pathlib import Path

from ledger.lock import Lock
from ledger.plan import Plan
from mechanism.campaign import bundle
from mechanism.campaign.events import Observer, unobserved
from mechanism.process.containment import Kind
from mechanism.process.launch import CHILD
from mechanism.values import frozen

INCOMPLETE = 5


@frozen
class RunRequest:
    """A campaign to run.

    Attributes:
        plan: The plan, checked and frozen.
        plan_bytes: Its file, like the three that follow; copied into the bundle byte for byte.
        lock: What freezing fixed.
        lock_bytes: The lock's file.
        ledger_bytes: The claim ledger's file.
        routing_bytes: `routing.json` of the fixture.
        fixture_folder: Where the fixture lies, built and complete.
        out: The bundle's folder: new, or to be resumed.
        jobs: Cold processes at a time.
        resume: Go on with what is in `out`.
        observer: Told of every event, in the runner's own thread.
        module: The child's module; tests aim it at children of theirs.
        grace_us: How long a process has to heed TERM, microseconds.
        containment: How cells are to be held; None: as well as this system can.
        writable: Folders that cells may write to beside their own; for tests, whose children leave marks.
    """

    plan: Plan
    plan_bytes: bytes
    lock: Lock
    lock_bytes: bytes
    ledger_bytes: bytes
    routing_bytes: bytes
    fixture_folder: Path
    out: Path
    jobs: int = 1
    resume: bool = False
    observer: Observer = unobserved
    module: str = CHILD
    grace_us: int = 1_000_000
    containment: Kind | None = None
    writable: tuple[Path, ...] = ()

    def documents(self) -> Mapping[str, bytes]:
        """The bundle's frozen documents by name."""
        files = (self.plan_bytes, self.lock_bytes, self.ledger_bytes, self.routing_bytes)
        return dict(zip(bundle.FROZEN, files, strict=True))


@frozen
class CampaignResult:
    """How a campaign ended.

    Attributes:
        complete: Every cell has a valid record, and manifest and summary are written.
        folder: The bundle.
        total: Cells of the lock.
        valid: Cells with a valid record.
        failed: (cell, reason) of every cell that was tried now and has none, in the order they ended.
        interrupted: Likewise for cells that were stopped with the runner.
        stopped_by: The signal that stopped the runner; None if none did.
        stopped: Why the campaign could not go on to its end; empty if it could.
        notes: What resuming found.
    """

    complete: bool
    folder: Path
    total: int
    valid: int
    failed: tuple[tuple[str, str], ...] = ()
    interrupted: tuple[tuple[str, str], ...] = ()
    stopped_by: int | None = None
    stopped: str = ""
    notes: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """0 complete; 128 + signal if one stopped it (130 Ctrl-C, 143 TERM); 5 not complete."""
        if self.complete:
            return 0
        return INCOMPLETE if self.stopped_by is None else 128 + self.stopped_by
