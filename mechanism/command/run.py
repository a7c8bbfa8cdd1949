"""`mechanism run`: a frozen plan becomes a bundle, and the verifier's verdict on it.

Never imports numpy or the verifier: the fixture is built, and the bundle verified, by programs started here.
"""

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from ledger.canonical import digest, parse_canonical
from ledger.lock import FixtureLock, Lock
from ledger.model import read_json
from ledger.record import RoutingFile
from mechanism.campaign.events import CampaignFinished, CampaignStarted, CellEnded, Event
from mechanism.campaign.request import CampaignResult, RunRequest
from mechanism.campaign.runner import run_campaign
from mechanism.command.exits import INCOMPLETE
from mechanism.engine.names import require_engine, require_machine
from mechanism.errors import CampaignError, PlanError
from mechanism.fixture.place import cache_root, folder_of
from mechanism.plan.deliver import refuse_static, refuse_undeliverable
from mechanism.plan.document import LoadedLedger, LoadedPlan, load_ledger, load_plan, lock_path
from mechanism.plan.freeze import make_lock, read_lock, require_frozen, require_same
from mechanism.process import files
from mechanism.show.progress import Counter, counting
from mechanism.show.schedule_map import schedule_map
from mechanism.show.schedule_svg import schedule_svg


@dataclass(frozen=True, kw_only=True, slots=True)
class RunOptions:
    """What the command line asked for."""

    plan: Path
    out: Path | None
    jobs: int | None
    resume: bool
    as_json: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Frozen:
    """A plan that was frozen, still is, and can deliver; with the fixture it was frozen with."""

    plan: LoadedPlan
    ledger: LoadedLedger
    lock: Lock
    lock_bytes: bytes
    fixture: Path
    routing: bytes
    topk_ids: tuple[tuple[int, ...], ...]


def run(options: RunOptions) -> int:
    """Steps: 1 plan, ledger, lock; 2 folder; 3 fixture; 4 treatments; 5 campaign; 6 picture; 7 verdict."""
    out = _folder(options)
    frozen = frozen_plan(options.plan)
    started = time.monotonic()
    result = _campaign(options, frozen, out)
    picture = out.with_name(f"{out.name}.svg")
    files.replace(picture, schedule_svg(schedule_map(frozen.plan.plan, frozen.topk_ids)).encode())
    seconds = round(time.monotonic() - started)
    if not result.complete:
        return _incomplete(options, result, seconds)
    return _verdict(options, result, picture, seconds)


def _folder(options: RunOptions) -> Path:
    """The bundle's folder; one that exists is refused early, before a fixture is built for nothing."""
    if options.resume and options.out is None:
        raise CampaignError("--resume: expected --out FOLDER, the bundle to go on with, got none")
    if options.out is None:
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        return Path("runs") / "local" / f"{options.plan.stem}-{stamp}"
    if not options.resume and options.out.exists():
        raise CampaignError(
            f"{options.out}: expected a folder that does not exist, got one that does;"
            " choose another by --out, or go on with it by --resume"
        )
    return options.out


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
    shown.at(now.done, now.total, failed=now.failed, seconds_left=now.left_s)


def _incomplete(options: RunOptions, result: CampaignResult, seconds: int) -> int:
    """What is missing and how to go on; the folder is kept as it is."""
    words = (
        f"mechanism: the bundle is not complete: {result.valid} of {result.total} cells have a valid record"
    )
    way_out = f"go on with: mechanism run {options.plan} --out {result.folder} --resume"
    reasons = [f"{name}: {reason}" for name, reason in result.failed]
    if options.as_json:
        failed = [{"cell": name, "reason": reason} for name, reason in result.failed]
        click.echo(
            json.dumps(
                {**_facts(result, seconds), "failed": failed, "stopped": result.stopped, "report": None}
            )
        )
    why = [result.stopped] if result.stopped else []
    click.echo("\n".join([words, *why, *reasons, way_out]), err=True)
    return result.exit_code or INCOMPLETE


def _verdict(options: RunOptions, result: CampaignResult, picture: Path, seconds: int) -> int:
    """Step 7: the verifier, as a child, at level raw, anchored at the plan file."""
    command = [sys.executable, "-m", "verifier", "check", str(result.folder), "--level", "raw"]
    command += ["--plan", str(options.plan), "--format", "json" if options.as_json else "text"]
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE)
    if options.as_json:
        facts = {**_facts(result, seconds), "picture": str(picture), "exit_code": done.returncode}
        click.echo(json.dumps({**facts, "report": _parsed(done.stdout)}))
    else:
        click.echo(done.stdout.decode(), nl=False)
        click.echo(
            f"\nbundle:  {result.folder}\npicture: {picture}\n{result.valid} cold processes in {seconds} s"
        )
    return done.returncode


def _facts(result: CampaignResult, seconds: int) -> dict[str, Any]:
    return {
        "bundle": str(result.folder),
        "complete": result.complete,
        "processes": {"total": result.total, "valid": result.valid, "failed": len(result.failed)},
        "seconds": seconds,
    }


def _parsed(report: bytes) -> Any:
    try:
        return json.loads(report)
    except ValueError as fault:
        raise CampaignError("the verifier gave no report; its message is above") from fault
