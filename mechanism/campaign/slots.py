"""Slots: as many cold processes at a time as jobs, and what is done before and after each.

Order of one attempt: the files it reads; `started` in the log and on disk; the process; the checks of
`accept`; its files moved into the bundle, the record last; `ended` in the log.
"""

import secrets
import selectors
import shutil
import time
from collections.abc import Mapping

from ledger.bundle import AttemptEnded, AttemptStarted, StderrKept
from ledger.bundle import Outcome as Verdict
from ledger.canonical import NO_DIGEST, sha256
from ledger.lock import LockedCell
from mechanism.campaign import bundle
from mechanism.campaign.accept import Cohort, Refused, examine, said
from mechanism.campaign.asking import Asking
from mechanism.campaign.attempts import LogWriter
from mechanism.campaign.events import CampaignStarted, CellEnded, CellStarted, Progress
from mechanism.campaign.interrupt import Interrupt
from mechanism.campaign.order import Held, Queue, name_of, path_of
from mechanism.campaign.request import RunRequest
from mechanism.process.launch import Launch, Outcome, Running, end_orphans, interpreter
from mechanism.process.request import REQUEST, CellRequest
from mechanism.process.supervisor import children
from mechanism.values import frozen

#: How long supervisors may take to end their trees after they were told to.
STOP_S = 15.0
_STDERR_TAIL = 4000  # characters, ledger.bundle.StderrKept
_REASON = 2000  # characters, ledger.bundle.AttemptEnded


@frozen
class _Slot:
    """One attempt at work."""

    cell: LockedCell
    request: CellRequest
    launch: Launch
    process: Running


class Slots:
    """The state of a campaign at work.

    Attributes:
        valid: The alignment digest of every valid process, by the path of its record.
        failed: Why a cell tried now has no valid record, by the cell's name.
        interrupted: Likewise for cells that were stopped with the runner.
        problem: Why no further process is started; empty while all is well.
        next_attempt: Number of the next attempt.
        abandoned: Supervisors were still at work when waiting for them was given up.
    """

    def __init__(
        self,
        *,
        request: RunRequest,
        asking: Asking,
        writer: LogWriter,
        valid: Mapping[str, str],
        cohort: Cohort,
        next_attempt: int,
        hold: int,
    ) -> None:
        self.valid = dict(valid)
        self.failed: dict[str, str] = {}
        self.interrupted: dict[str, str] = {}
        self.problem = ""
        self.abandoned = False
        self.next_attempt = next_attempt
        self._request = request
        self._asking = asking
        self._writer = writer
        self._cohort = cohort
        self._hold = hold
        self._queue = Queue(request.lock.cells, self.valid)
        self._running: dict[str, _Slot] = {}
        self._bystanders = frozenset(children())
        self._began = time.monotonic()
        self._ended = 0
        self._litter: list[str] = []
        self._broken = False
        self._stopping = False

    def work(self, stop: Interrupt, notes: tuple[str, ...] = ()) -> None:
        """Run the queue to its end, or until a signal or a problem; no process is left when it returns."""
        self._request.observer(CampaignStarted(progress=self.progress(), notes=notes))
        with selectors.DefaultSelector() as selector:
            selector.register(stop, selectors.EVENT_READ)
            try:
                self._fill(selector)
                while self._running and self._turn(selector, stop):
                    pass
            finally:  # a second Ctrl-C, or a fault of ours: supervisors end their trees without us
                self._stop()

    def _turn(self, selector: selectors.BaseSelector, stop: Interrupt) -> bool:
        """Sleep until something happens and see to it. Returns False if supervisors do not end when told."""
        ready = selector.select(STOP_S if self._stopping else None)
        if not ready and self._stopping:
            self.problem = f"{len(self._running)} supervisors do not end their processes; {self.problem}"
            self.abandoned = True
            return False
        for key, _ in ready:
            if key.fileobj is stop:
                stop.drain()
            elif key.data.process.read():
                selector.unregister(key.fileobj)
                self._end(key.data)
        if stop.signal is not None or self._broken:
            self._stop()
        else:
            self._fill(selector)
        while self._litter:  # while the next cells run
            shutil.rmtree(self._litter.pop(), ignore_errors=True)
        return True

    def progress(self, *, starting: int = 0) -> Progress:
        """Where the campaign stands; `starting`: cells taken from the queue that are not at work yet."""
        left = len(self._queue) + len(self._running) + starting
        pace = (time.monotonic() - self._began) / self._ended if self._ended else None
        return Progress(
            done=len(self.valid),
            failed=len(self.failed),
            interrupted=len(self.interrupted),
            running=len(self._running) + starting,
            total=len(self._request.lock.cells),
            left_s=None if pace is None else pace * left,
        )

    def _fill(self, selector: selectors.BaseSelector) -> None:
        while len(self._running) < self._request.jobs and not self.problem:
            cell = self._queue.take(self.valid, self._running)
            if isinstance(cell, Held) and not cell.waits:
                self.problem = (
                    f"{name_of(cell.cell)} injects the alignment of {cell.donor}, which ended without a valid"
                    " record; cells start in the lock's order, so the rest waits for --resume"
                )
            if cell is None or isinstance(cell, Held):
                return
            try:
                slot = self._start(cell)
            except OSError as fault:
                self._break(fault)
                return
            self._running[path_of(cell)] = slot
            selector.register(slot.process, selectors.EVENT_READ, slot)

    def _break(self, fault: OSError) -> None:
        """Files cannot be written: nothing that still runs could be kept, so it is stopped as well."""
        self.problem = storage_problem(fault)
        self._broken = True

    def _stop(self) -> None:
        if not self._stopping:
            self._stopping = True
            for slot in self._running.values():
                slot.process.stop()

    def _start(self, cell: LockedCell) -> _Slot:
        attempt, nonce = self.next_attempt, secrets.token_hex(16)
        staging = self._asking.folder / bundle.STAGING / str(attempt)
        donor = None if cell.donor is None else self.valid[self._queue.donors[cell.donor]]
        request = self._asking.request(
            cell,
            attempt=attempt,
            nonce=nonce,
            injected_sha256=self._asking.place_alignment(cell, donor),
            staging=staging,
        )
        for name in ("", *bundle.FOLDERS):
            (staging / name).mkdir()
        (staging / REQUEST).write_bytes(request.to_bytes())
        launch = Launch(
            python=interpreter(),
            module=self._request.module,
            request=str(staging / REQUEST),
            environment=request.environment,
            limit_us=self._request.plan.time_limit_s * 1_000_000,
            grace_us=self._request.grace_us,
            hold=(self._hold,),
            contain=self._asking.contain(request),
        )
        self._request.observer(
            CellStarted(attempt=attempt, name=name_of(cell), progress=self.progress(starting=1))
        )
        self._writer.append(
            AttemptStarted(
                event="started",
                previous=NO_DIGEST,
                attempt=attempt,
                phase=cell.phase,
                cell=cell.cell,
                history=cell.history,
                replicate=cell.replicate,
                nonce=nonce,
                time_us=now_us(),
            )
        )
        self.next_attempt += 1
        return _Slot(cell=cell, request=request, launch=launch, process=Running(launch))

    def _end(self, slot: _Slot) -> None:
        outcome = slot.process.finish()
        del self._running[path_of(slot.cell)]
        self._ended += 1
        if outcome.fault:
            end_orphans(self._bystanders | {other.process.pid for other in self._running.values()})
        try:
            verdict, reason, record = self._judge(slot, outcome)
            self._log(slot, outcome, verdict, reason, record)
        except OSError as fault:
            self._break(fault)
            verdict, reason = "interrupted", self.problem
        self._litter.append(slot.request.staging)
        name = name_of(slot.cell)
        if verdict != "valid":
            kept = self.interrupted if verdict == "interrupted" else self.failed
            kept[name] = f"{verdict}: {reason}"
        self._request.observer(
            CellEnded(
                attempt=slot.request.attempt,
                name=name,
                outcome=verdict,
                reason=reason,
                progress=self.progress(),
            )
        )

    def _judge(self, slot: _Slot, outcome: Outcome) -> tuple[Verdict, str, str | None]:
        """The verdict, its reason, and the digest of the record, whose files are in place then."""
        found = examine(outcome, slot.launch, slot.request, self._asking.symbols, self._cohort)
        if isinstance(found, Refused):
            if found.foreign:
                self.problem = f"{found.reason}; go on as it was then, or start a new run"
            return found.verdict, found.reason, None
        try:
            bundle.promote(self._asking.folder, found.staged, read_only=self._asking.kind == "modes")
        except FileExistsError:
            return "invalid", "its record was in place before it ended; something else wrote it", None
        self._cohort = Cohort(build=found.build, containment=found.record.process.containment)
        self.valid[path_of(slot.cell)] = found.record.treatment.alignment.sha256
        return "valid", "", sha256(found.data)

    def _log(self, slot: _Slot, outcome: Outcome, verdict: Verdict, reason: str, record: str | None) -> None:
        self._writer.append(
            AttemptEnded(
                event="ended",
                previous=NO_DIGEST,
                attempt=slot.request.attempt,
                outcome=verdict,
                reason=reason[:_REASON],
                exit_code=outcome.exit_code,
                signal=outcome.signal,
                descendants_killed=outcome.descendants_killed,
                stderr=StderrKept(
                    size=outcome.stderr_size,
                    sha256=outcome.stderr_sha256,
                    tail=said(outcome, self._asking.symbols)[-_STDERR_TAIL:],
                ),
                record=record,
                time_us=now_us(),
            )
        )


def storage_problem(fault: OSError) -> str:
    """One message for a disk that is full, a folder that is read-only, and their like."""
    what = fault.strerror or str(fault)
    where = f"{fault.filename}: " if fault.filename else ""
    return f"{where}{what}; what is recorded is kept: see to it, then --resume"


def now_us() -> int:
    """The monotonic clock, microseconds."""
    return time.monotonic_ns() // 1000
