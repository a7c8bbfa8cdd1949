"""A small campaign to break: plan, lock and fixture in a folder, children of ours that misbehave by name.

Which cell misbehaves how is read by the child from the file that $FAKES names: {"native.H0.1": "segv"}.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ledger.canonical import canonical
from ledger.lock import FixtureLock
from ledger.plan import Plan
from mechanism.campaign.events import Observer, unobserved
from mechanism.campaign.request import CampaignResult, RunRequest
from mechanism.campaign.runner import run_campaign
from mechanism.fixture.place import ROUTING, folder_of
from mechanism.kernel.alignment import Alignment
from mechanism.plan import geometry
from mechanism.plan.document import load_ledger, load_plan
from mechanism.plan.freeze import lock_bytes, make_lock, read_lock

ROOT = Path(__file__).resolve().parents[2]
#: The real child with an engine of ours, and a child that needs no engine; both do as the file of fakes says.
FAKE, QUICK = "tests.campaign.fake_child", "tests.campaign.quick_child"
#: Native cells of both histories, two that inject, one of them on another grid: 8 processes a replicate.
PHASES = """
phases:
  - name: qualification
    cells:
      - {name: native, alignment: constructed, histories: [H0, H1]}
      - {name: replay, alignment: own, histories: [H0, H1]}
  - name: transfer
    cells:
      - {name: cross-order, alignment: opposite, histories: [H0, H1]}
  - name: ablation
    cells:
      - {name: forced-grid, alignment: own, histories: [H0, H1], grid: 12}
"""


def plan_text(*, environment: Mapping[str, str], replicates: int, time_limit_s: int, phases: str) -> str:
    """plans/quick.yaml on the smallest layer, with another matrix and environment."""
    text = (ROOT / "plans" / "quick.yaml").read_text()
    for old, new in (
        ("hidden: 512", "hidden: 128"),
        ("intermediate: 192", "intermediate: 64"),
        ("twin_pairs: 4", "twin_pairs: 1"),
        ("replicates: 5", f"replicates: {replicates}"),
        ("time_limit_s: 30", f"time_limit_s: {time_limit_s}"),
    ):
        assert old in text
        text = text.replace(old, new)
    before, _, rest = text.partition("environment:\n")
    assert rest
    listed = "".join(f"  {name}: {json.dumps(value)}\n" for name, value in environment.items())
    return f"{before}environment:\n{listed}{phases}"


def prepare(
    folder: Path,
    cache: Path,
    fixture: FixtureLock,
    stored: Path,
    *,
    replicates: int = 1,
    time_limit_s: int = 30,
    phases: str = PHASES,
    environment: Mapping[str, str] | None = None,
) -> Path:
    """Write plan, lock and the file of fakes into `folder`; returns it.

    The fixture is in `cache`, what the quick child delivers in the campaign `stored`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    given = {
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT),
        "FAKES": str(folder / "fakes.json"),
        "STORED": str(stored),
        **(environment or {}),
    }
    (folder / "plan.yaml").write_text(
        plan_text(environment=given, replicates=replicates, time_limit_s=time_limit_s, phases=phases)
    )
    (folder / "cache").write_text(str(cache))
    set_fakes(folder, {})
    plan = load_plan(folder / "plan.yaml")
    lock = make_lock(plan, load_ledger(plan, folder), fixture, padded_blocks=_padded_blocks(plan.plan, cache))
    (folder / "plan.lock").write_bytes(lock_bytes(lock))
    return folder


def set_fakes(folder: Path, fakes: Mapping[str, str]) -> None:
    """From now on the cells named do what is said; the others run a quick engine of ours."""
    (folder / "fakes.json").write_text(json.dumps(fakes))


def request(folder: Path, out: Path, *, module: str = QUICK, **more: Any) -> RunRequest:
    """What the command line would ask for, of a prepared folder."""
    plan = load_plan(folder / "plan.yaml")
    data = (folder / "plan.lock").read_bytes()
    lock = read_lock(data, name="plan.lock")
    fixture = folder_of(lock.fixture.recipe, Path((folder / "cache").read_text()))
    return RunRequest(
        plan=plan.plan,
        plan_bytes=plan.data,
        lock=lock,
        lock_bytes=data,
        ledger_bytes=load_ledger(plan, folder).data,
        routing_bytes=(fixture / ROUTING).read_bytes(),
        fixture_folder=fixture,
        out=out,
        module=module,
        **{"jobs": 2, "grace_us": 300_000, "writable": (folder.parent,), **more},
    )


def run(folder: Path, out: Path, *, observer: Observer = unobserved, **more: Any) -> CampaignResult:
    """Run the campaign of a prepared folder in this process."""
    return run_campaign(request(folder, out, observer=observer, **more))


def read_events(out: Path) -> list[dict[str, Any]]:
    """The attempts log, line by line."""
    return [json.loads(line) for line in (out / "attempts.jsonl").read_bytes().splitlines()]


def ends(out: Path) -> dict[str, dict[str, Any]]:
    """The last end of every cell, by the cell's name without its phase."""
    started = {event["attempt"]: event for event in read_events(out) if event["event"] == "started"}
    return {
        "{cell}.{history}.{replicate}".format(**started[event["attempt"]]): event
        for event in read_events(out)
        if event["event"] == "ended"
    }


def _padded_blocks(plan: Plan, cache: Path) -> int:
    from mechanism.fixture.build import recipe_digest  # noqa: PLC0415 - numpy, which the runner must not have

    path = folder_of(recipe_digest(plan.fixture), cache) / ROUTING
    ids = tuple(tuple(row) for row in json.loads(path.read_bytes())["topk_ids"])
    native: Alignment = geometry.native(plan, "H0", ids)
    return len(native.expert_ids)


if __name__ == "__main__":  # a runner of its own, to be killed: FOLDER OUT [--resume] [--fake]
    child = FAKE if "--fake" in sys.argv else QUICK
    done = run(Path(sys.argv[1]), Path(sys.argv[2]), resume="--resume" in sys.argv, module=child)
    sys.stdout.write(canonical({"complete": done.complete, "valid": done.valid}).decode())
    sys.exit(done.exit_code)
