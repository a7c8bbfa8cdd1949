"""Re-runs one cell of each kind of the committed evidence in cold processes, and compares surface digests.

`python tests/project/rerun_evidence.py` also says whether the code that computes bits has changed since the
evidence was made: equal digests by other code are stronger evidence, unequal ones a finding.
"""

import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ledger.canonical import parse_canonical
from ledger.lock import Lock, LockedCell
from ledger.record import BuildFile, Record, record_path
from mechanism.campaign.request import RunRequest
from mechanism.campaign.runner import run_campaign
from mechanism.command.run import frozen_plan
from mechanism.engine.identity import source_files

ROOT = Path(__file__).parents[2]
BUNDLE = ROOT / "runs" / "route-block"
PLAN = ROOT / "plans" / "route_block.yaml"


@dataclass(frozen=True, kw_only=True, slots=True)
class Compared:
    """One surface of one re-run cell: the recorded digest and the new one."""

    cell: str
    surface: str
    recorded: str
    again: str


def one_of_each_kind(lock: Lock) -> tuple[LockedCell, ...]:
    """Replicate 1 of every cell, under the history that comes last in it; and the natives they inject."""
    chosen: dict[str, LockedCell] = {}
    natives = []
    for cell in lock.cells:
        if cell.replicate == 1:
            chosen[cell.cell] = cell
            if cell.alignment == "constructed":
                natives.append(cell)
    rest = [cell for cell in chosen.values() if cell.alignment != "constructed"]
    return (*natives, *rest)


def recorded(cell: LockedCell, bundle: Path) -> Record:
    path = bundle / record_path(cell.phase, cell.cell, cell.history, cell.replicate)
    return Record.model_validate_json(path.read_bytes())


def rerun(folder: Path) -> Iterator[Compared]:
    """Run the cells into a new bundle in `folder`; yields every surface compared."""
    frozen = frozen_plan(PLAN)
    cells = one_of_each_kind(frozen.lock)
    result = run_campaign(
        RunRequest(
            plan=frozen.plan.plan,
            plan_bytes=frozen.plan.data,
            lock=frozen.lock.model_copy(update={"cells": cells}),
            lock_bytes=frozen.lock_bytes,
            ledger_bytes=frozen.ledger.data,
            routing_bytes=frozen.routing,
            fixture_folder=frozen.fixture,
            out=folder / "again",
            jobs=2,
        )
    )
    if not result.complete:
        raise SystemExit(f"the re-run could not be completed: {result.failed} {result.stopped}")
    for cell in cells:
        before, after = recorded(cell, BUNDLE), recorded(cell, result.folder)
        for left, right in zip(before.surfaces, after.surfaces, strict=True):
            name = f"{cell.cell}.{cell.history}.{cell.replicate}"
            yield Compared(cell=name, surface=left.name, recorded=left.sha256, again=right.sha256)


def changed_source() -> list[str]:
    """Source files that compute bits and differ from those that made the evidence."""
    build = BuildFile.model_validate_json((BUNDLE / "build.json").read_bytes())
    now = dict(source_files())
    return sorted(
        name for name in build.source.keys() | now.keys() if build.source.get(name) != now.get(name)
    )


def main() -> int:
    """Say what changed, re-run, say what differs. 0 if every surface is equal."""
    changed = changed_source()
    said = (
        f"has changed since the evidence was made: {', '.join(changed)}"
        if changed
        else "is that of the evidence"
    )
    print(f"source of the simulated engine {said}")
    with tempfile.TemporaryDirectory() as folder:
        compared = list(rerun(Path(folder)))
    for item in compared:
        if item.recorded != item.again:
            print(f"{item.cell} {item.surface}: recorded {item.recorded}, got {item.again}")
    equal = sum(item.recorded == item.again for item in compared)
    print(
        f"SIMULATED: {equal} of {len(compared)} surfaces equal in {len({i.cell for i in compared})} re-run cold processes"
    )
    return int(equal != len(compared))


if __name__ == "__main__":
    parse_canonical((BUNDLE / "bundle.json").read_bytes())
    sys.exit(main())
