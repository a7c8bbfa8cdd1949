"""The runner: every locked cell in a cold process of its own, each attempt logged, until the bundle is whole.

It sleeps while cells run, never imports numpy, and retries nothing: a cell without a valid record is left
for `resume`.
"""

import contextlib
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from ledger.canonical import CanonicalError, parse_canonical
from ledger.fault import FaultsError
from ledger.model import read_json
from ledger.record import RoutingFile
from mechanism.campaign import bundle, folder_lock, interrupt
from mechanism.campaign.accept import Cohort
from mechanism.campaign.asking import Asking
from mechanism.campaign.attempts import Log, LogWriter, mend, read_log
from mechanism.campaign.events import CampaignFinished
from mechanism.campaign.holding import choose
from mechanism.campaign.order import path_of
from mechanism.campaign.recover import Recovered, recover, require_vouched
from mechanism.campaign.request import CampaignResult, RunRequest
from mechanism.campaign.slots import Slots, now_us, storage_problem
from mechanism.engine.names import require_engine, require_machine
from mechanism.errors import CampaignError
from mechanism.process.compiled import compile_sources
from mechanism.process.launch import interpreter, set_subreaper
from mechanism.process.request import BUILD
from mechanism.process.symbols import Symbols, symbols

SOURCE = Path(__file__).resolve().parents[2]


def run_campaign(request: RunRequest) -> CampaignResult:
    """Run a campaign, or the rest of one, and finish its bundle if every cell has a valid record.

    Raises CampaignError if the folder cannot be used or the campaign cannot begin, EngineError if there is
    no such engine; both before any process starts. From then on the result says everything.
    """
    require_engine(request.plan.engine)
    pinned = request.plan.build
    require_machine(request.plan.engine, kernel=pinned.kernel, device=pinned.device.model_dump(mode="json"))
    folder = request.out.absolute()
    _require_system(request, folder)
    made = False
    with contextlib.ExitStack() as stack:
        try:
            if not request.resume:
                bundle.create(folder)
                made = True
            else:
                bundle.require_resumable(folder, request.documents())
                if bundle.is_complete(folder):
                    folder_lock.clear(folder)
                    total = len(request.lock.cells)
                    return CampaignResult(complete=True, folder=folder, total=total, valid=total)
            lease = stack.enter_context(folder_lock.held(folder))
            bundle.furnish(folder, request.documents())
            slots, notes = _prepare(request, folder, lease.descriptor, stack)
        except CampaignError:
            if made:  # what this system or plan cannot do leaves nothing that could be resumed
                bundle.discard(folder)
            raise
        except OSError as fault:
            where = fault.filename or folder
            raise CampaignError(
                f"{where}: {fault.strerror or fault}; no cell was started: see to it, or name another"
                " place by --out"
            ) from fault
        stop = stack.enter_context(interrupt.watched())
        stack.enter_context(_subreaper())
        slots.work(stop, notes)
        lease.abandoned = slots.abandoned
        return _finish(request, folder, slots, stop, notes)


def _require_system(request: RunRequest, folder: Path) -> None:
    """Refuse what would fail in every process, or in none of them understandably."""
    if sys.platform != "linux" or not Path("/proc/self/stat").exists():
        raise CampaignError(
            "expected Linux with /proc, where process trees can be owned, got neither; run it on such a"
            " system"
        )
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError as fault:
        raise CampaignError(
            f"expected Linux 5.3 or newer, where processes can be waited for by descriptor: {fault.strerror}"
        ) from fault
    if request.jobs < 1:
        raise CampaignError(f"jobs: expected 1 or more, got {request.jobs}")
    for path in (folder, request.fixture_folder.absolute(), Path(interpreter())):
        if not str(path).isprintable():  # names that are not UTF-8 read as lone surrogates
            raise CampaignError(f"{str(path)!a}: expected a path of printable UTF-8, got another; rename it")


@contextlib.contextmanager
def _subreaper() -> Iterator[None]:
    """Inherit what a killed supervisor leaves behind, so that it can be ended too."""
    before = set_subreaper(wanted=True)
    try:
        yield
    finally:
        set_subreaper(wanted=before)


def _prepare(
    request: RunRequest, folder: Path, hold: int, stack: contextlib.ExitStack
) -> tuple[Slots, tuple[str, ...]]:
    log, recovered = _recover(folder, resume=request.resume)
    writer = stack.enter_context(contextlib.closing(LogWriter(bundle.log_path(folder), log)))
    for end in recovered.ends:
        writer.append(end)
    compile_sources(SOURCE / name for name in ("ledger", "mechanism"))
    asking = Asking(
        plan=request.plan,
        lock=request.lock,
        routing=_routing(request.routing_bytes),
        fixture_folder=request.fixture_folder.absolute(),
        folder=folder,
        symbols=known_paths(folder, request.fixture_folder.absolute()),
        kind=choose(request, folder, recovered.containment),
        writable=request.writable,
    )
    build = folder / BUILD
    slots = Slots(
        request=request,
        asking=asking,
        writer=writer,
        valid=recovered.valid,
        cohort=Cohort(
            build=build.read_bytes() if build.exists() else None, containment=recovered.containment
        ),
        next_attempt=log.next_attempt,
        hold=hold,
    )
    return slots, recovered.notes


def _recover(folder: Path, *, resume: bool) -> tuple[Log, Recovered]:
    path = bundle.log_path(folder)
    log = read_log(path.read_bytes() if path.exists() else b"", name=str(path))
    if not resume or not (log.events or log.torn):
        require_vouched(folder, ())  # an empty log vouches for none
        return log, Recovered(valid={}, ends=(), notes=())
    resumed_us = now_us()
    recovered = recover(folder, log, now_us=now_us)  # may refuse, and then nothing was changed
    torn = log.torn
    log = mend(path, log, time_us=resumed_us)
    notes = recovered.notes
    if torn:
        notes = (
            f"{path.name}: {len(torn)} bytes after the last whole line were torn; kept in the log",
            *notes,
        )
    return log, replace(recovered, notes=notes)


def _finish(
    request: RunRequest, folder: Path, slots: Slots, stop: interrupt.Interrupt, notes: tuple[str, ...]
) -> CampaignResult:
    total = len(request.lock.cells)
    stopped = slots.problem
    complete = False
    if len(slots.valid) == total and stop.signal is None and not stopped:
        try:
            dropped = bundle.finalise(
                folder,
                name=request.plan.name,
                records={path_of(cell) for cell in request.lock.cells},
                attempts=slots.next_attempt - 1,
            )
            complete = True
            left = tuple(
                f"{path}: no record names it; a process that was stopped left it, removed" for path in dropped
            )
            notes = (*notes, *left)
            request.observer(CampaignFinished(progress=slots.progress(), notes=left))
        except (CampaignError, OSError) as fault:
            stopped = storage_problem(fault) if isinstance(fault, OSError) else str(fault)
    return CampaignResult(
        complete=complete,
        folder=folder,
        total=total,
        valid=len(slots.valid),
        failed=tuple(slots.failed.items()),
        interrupted=tuple(slots.interrupted.items()),
        stopped_by=stop.signal,
        stopped=stopped,
        notes=notes,
    )


def _routing(data: bytes) -> RoutingFile:
    try:
        return read_json(RoutingFile, parse_canonical(data), name="routing.json")
    except (CanonicalError, FaultsError) as fault:
        raise CampaignError(
            f"routing.json: {fault}; the fixture in the cache is damaged: see `mechanism fixture build PLAN`"
        ) from fault


def known_paths(folder: Path, fixture_folder: Path) -> Symbols:
    """The real paths that may turn up in what processes say, and what stands for them."""
    known = [
        (Path(interpreter()), "$PYTHON"),
        (folder, "$BUNDLE"),
        (fixture_folder, "$CACHE"),
        (Path(sys.prefix), "$PREFIX"),
        (Path(sys.base_prefix), "$BASE"),
        (SOURCE, "$SOURCE"),
    ]
    for find, symbol in ((Path.cwd, "$HERE"), (Path.home, "$HOME")):
        with contextlib.suppress(OSError, RuntimeError):  # there may be none
            known.append((find(), symbol))
    return symbols((str(path), symbol) for real, symbol in known for path in (real, real.resolve()))
