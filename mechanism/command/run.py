"""`mechanism run`: a frozen plan becomes a bundle, and the verifier's verdict on it.

Never imports numpy or the verifier: the fixture is built, and the bundle verified, by programs started here.
"""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import click

from ledger.canonical import digest, parse_canonical
from ledger.lock import FixtureLock, Lock
from ledger.model import read_json
from ledger.record import RoutingFile
from mechanism.campaign.bundle import is_complete
from mechanism.campaign.damage import WAY_OUT, damaged
from mechanism.campaign.events import CampaignFinished, CampaignStarted, CellEnded, Event
from mechanism.campaign.request import CampaignResult, RunRequest
from mechanism.campaign.runner import run_campaign
from mechanism.command.exits import INCOMPLETE
from mechanism.command.extras import require
from mechanism.command.verdict import Verifier
from mechanism.engine.names import require_engine, require_machine
from mechanism.errors import CampaignError, PlanError
from mechanism.fixture.place import cache_root, folder_of
from mechanism.plan.deliver import refuse_static, refuse_undeliverable
from mechanism.plan.document import LoadedLedger, LoadedPlan, load_ledger, load_plan, lock_path
from mechanism.plan.freeze import make_lock, read_lock, require_frozen, require_same
from mechanism.process import files
from mechanism.show.counter import Counter
from mechanism.show.progress import counting
from mechanism.show.schedule_map import schedule_map
from mechanism.show.schedule_svg import schedule_svg
from mechanism.values import frozen

#: Damaged files are named up to so many.
_LISTED = 5


@frozen
class RunOptions:
    """What the command line asked for."""

    plan: Path
    out: Path | None
    jobs: int | None
    resume: bool
    as_json: bool


@frozen
class Frozen:
    """A plan that was frozen, still is, and can deliver; with the fixture it was frozen with."""

    plan: LoadedPlan
    ledger: LoadedLedger
    lock: Lock
    lock_bytes: bytes
    fixture: Path
    routing: bytes
    topk_ids: tuple[tuple[int, ...], ...]


def run(options: RunOptions, verifier: Verifier) -> int:
    """Steps: 1 plan, ledger, lock; 2 folder; 3 fixture; 4 treatments; 5 campaign; 6 picture; 7 verdict."""
    require("numpy", "safetensors")  # what every process will import, and this one does not
    out = _folder(options)
    frozen = frozen_plan(options.plan)
    started = time.monotonic()
    finished = options.resume and is_complete(out)
    try:
        result = _campaign(options, frozen, out)
    except KeyboardInterrupt as fault:
        return _hurried(options, out, fault)
    kept = _draw(frozen, picture_of(out))
    seconds = round(time.monotonic() - started)
    if not result.complete:
        return _incomplete(options, result, out, seconds)
    shown = Shown(folder=out, kept=kept, seconds=seconds, finished=finished)
    return _verdict(options, result, verifier, shown)


@frozen
class Shown:
    """What is told of a complete run: paths as they were given.

    `kept`: another picture was in its place. `finished`: the bundle was complete before.
    """

    folder: Path
    kept: bool
    seconds: int
    finished: bool


def picture_of(out: Path) -> Path:
    """Where the picture goes: beside the bundle, named after it."""
    named = out if out.name not in ("", "..") else Path(os.path.abspath(out))  # noqa: PTH100 - `..` as written
    return named.with_name(f"{named.name}.svg")


def _folder(options: RunOptions) -> Path:
    """The bundle's folder; what is in the way is refused early, before a fixture is built for nothing."""
    if options.resume and options.out is None:
        raise CampaignError("--resume: expected --out FOLDER, the bundle to go on with, got none")
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    out = options.out or Path("runs") / "local" / f"{options.plan.stem}-{stamp}"
    if options.resume:
        return out
    if out.exists():
        raise CampaignError(
            f"{out}: expected a folder that does not exist, got one that does;"
            " choose another by --out, or go on with it by --resume"
        )
    if picture_of(out).exists():
        raise CampaignError(
            f"{picture_of(out)}: expected no such file, since the run's picture goes there, got one;"
            " move it away, or choose another folder by --out"
        )
    return out


def _draw(frozen: Frozen, picture: Path) -> bool:
    """Draw the schedule, or leave a picture that is there as it is; returns whether that is another one."""
    drawn = schedule_svg(schedule_map(frozen.plan.plan, frozen.topk_ids)).encode()
    if not picture.exists():
        files.replace(picture, drawn)
    return picture.read_bytes() != drawn


def frozen_plan(path: Path) -> Frozen:
    """Steps 1, 3 and 4. Raises before anything is started, except the program that builds the fixture."""
    plan = load_plan(path)
    refuse_static(plan)
    ledger = load_ledger(plan, path.parent)
    lock_file = lock_path(path)
    if not lock_file.exists():
        raise PlanError(
            f"{lock_file}: expected the plan's lock, found none; run `mechanism freeze {path}` first"
        )
    lock_bytes = lock_file.read_bytes()
    lock = read_lock(lock_bytes, name=lock_file.name)
    require_frozen(plan, ledger, lock, name=lock_file.name)
    require_engine(plan.plan.engine)
    pinned = plan.plan.build
    require_machine(plan.plan.engine, kernel=pinned.kernel, device=pinned.device.model_dump(mode="json"))
    fixture = _fixture(path, plan, lock, name=lock_file.name)
    routing = (fixture / "routing.json").read_bytes()
    topk_ids = read_json(RoutingFile, parse_canonical(routing), name="routing.json").topk_ids
    blocks = refuse_undeliverable(plan, ledger, topk_ids)
    require_same(lock, make_lock(plan, ledger, lock.fixture, padded_blocks=blocks), name=lock_file.name)
    return Frozen(
        plan=plan,
        ledger=ledger,
        lock=lock,
        lock_bytes=lock_bytes,
        fixture=fixture,
        routing=routing,
        topk_ids=topk_ids,
    )


def _fixture(path: Path, plan: LoadedPlan, lock: Lock, *, name: str) -> Path:
    """The folder of the fixture that the lock names; built by a program of its own if it is not there.

    Its bytes are not hashed here: every cold process hashes all that it maps.
    """
    folder = folder_of(digest(plan.plan.fixture.model_dump(mode="json")), cache_root())
    if not (folder / "fixture.json").exists():
        command = [sys.executable, "-m", "mechanism", "fixture", "build", str(path)]
        built = subprocess.run(command, check=False, stdout=subprocess.DEVNULL)
        if built.returncode != 0:
            raise CampaignError(f"the fixture could not be built: exit code {built.returncode}, see above")
    found = read_json(
        FixtureLock, parse_canonical((folder / "fixture.json").read_bytes()), name="fixture.json"
    )
    if found != lock.fixture:
        raise PlanError(
            f"{name}: expected a fixture with digest {lock.fixture.digest}, the recipe gives {found.digest};"
            " the recipe's code has changed since the plan was frozen: freeze it again"
        )
    return folder


def _campaign(options: RunOptions, frozen: Frozen, out: Path) -> CampaignResult:
    """Step 5, with progress on stderr."""
    # on a GPU what runs beside a process is part of its history: one at a time unless asked for
    one = frozen.plan.plan.engine == "vllm"
    jobs = options.jobs or (1 if one else len(os.sched_getaffinity(0)))
    with counting(frozen.plan.plan.name, unit="cells") as shown:
        return run_campaign(
            RunRequest(
                plan=frozen.plan.plan,
                plan_bytes=frozen.plan.data,
                lock=frozen.lock,
                lock_bytes=frozen.lock_bytes,
                ledger_bytes=frozen.ledger.data,
                routing_bytes=frozen.routing,
                fixture_folder=frozen.fixture,
                out=out,
                jobs=jobs,
                resume=options.resume,
                observer=lambda event: _show(shown, event),
            )
        )


def _show(shown: Counter, event: Event) -> None:
    if isinstance(event, CampaignStarted | CampaignFinished):
        for note in event.notes:
            shown.note(note)
    if isinstance(event, CellEnded) and event.outcome != "valid":
        shown.note(f"{event.name}: {event.outcome}: {event.reason}")
    now = event.progress
    shown.at(now.done, now.total, failed=now.failed, interrupted=now.interrupted, seconds_left=now.left_s)


def _way_out(options: RunOptions, out: Path) -> str:
    """The command that goes on, as it can be typed."""
    return (
        f"go on with: mechanism run {shlex.quote(str(options.plan))} --out {shlex.quote(str(out))} --resume"
    )


def _hurried(options: RunOptions, out: Path, fault: KeyboardInterrupt) -> int:
    """Stopped without waiting, by a second signal or before the first process."""
    number = next(iter(fault.args), signal.SIGINT)
    how = "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name
    click.echo(f"mechanism: stopped by {how}", err=True)
    if out.is_dir():
        click.echo(_way_out(options, out), err=True)
    return 128 + number


def _incomplete(options: RunOptions, result: CampaignResult, out: Path, seconds: int) -> int:
    """What is missing and how to go on; the folder is kept as it is."""
    words = (
        f"mechanism: the bundle is not complete: {result.valid} of {result.total} cells have a valid record"
    )
    reasons = [f"{name}: {reason}" for name, reason in (*result.failed, *result.interrupted)]
    if options.as_json:
        facts = _facts(result, out, seconds)
        for key, cells in (("failed", result.failed), ("interrupted", result.interrupted)):
            facts[key] = [{"cell": name, "reason": reason} for name, reason in cells]
        click.echo(json.dumps({**facts, "stopped": result.stopped, "report": None}))
    why = [result.stopped] if result.stopped else []
    click.echo("\n".join([words, *why, *reasons, _way_out(options, out)]), err=True)
    return result.exit_code or INCOMPLETE


def _verdict(options: RunOptions, result: CampaignResult, verifier: Verifier, shown: Shown) -> int:
    """Step 7: what the verifier says, and where everything is."""
    code, report = verifier.report(shown.folder)
    picture = picture_of(shown.folder)
    lost = damaged(shown.folder) if shown.finished and code in (2, 3) else ()
    if options.as_json:
        facts = _facts(result, shown.folder, shown.seconds)
        more = {"picture": None if shown.kept else str(picture), "exit_code": code, "report": _parsed(report)}
        more["damaged"] = list(lost)
        click.echo(json.dumps({**facts, **more}))
    else:
        click.echo(report.decode(), nl=False)
        other = "; it was there, is not this run's, and was kept" if shown.kept else ""
        how = " in all; this call took" if options.resume else " in"
        click.echo(
            f"\nbundle:  {shown.folder}\npicture: {picture}{other}"
            f"\n{result.valid} cold processes{how} {shown.seconds} s"
        )
    if lost:
        names = ", ".join(lost[:_LISTED]) + (f" and {len(lost) - _LISTED} more" if lost[_LISTED:] else "")
        click.echo(
            f"mechanism: {shown.folder} was finished, and was damaged since: {names}; {WAY_OUT}", err=True
        )
    return code


def _facts(result: CampaignResult, out: Path, seconds: int) -> dict[str, Any]:
    return {
        "bundle": str(out),
        "complete": result.complete,
        "processes": {
            "total": result.total,
            "valid": result.valid,
            "failed": len(result.failed),
            "interrupted": len(result.interrupted),
        },
        "seconds": seconds,
    }


def _parsed(report: bytes) -> Any:
    try:
        return json.loads(report)
    except ValueError as fault:
        raise CampaignError("the verifier gave no report; its message is above") from fault
