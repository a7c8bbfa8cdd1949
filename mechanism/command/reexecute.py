"""`mechanism reexecute`: a bundle's trajectories computed anew and compared, bit for bit."""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from ledger.reexecution import Reexecution
from mechanism.fixture.place import cache_root
from mechanism.reexecute.again import reexecute as again
from mechanism.show.progress import fixture_progress

EQUAL, DIFFERS = 0, 1
_MOST = 40  # differences printed; --format json has them all


@dataclass(frozen=True, kw_only=True, slots=True)
class ReexecuteOptions:
    """What the command line asked for."""

    bundle: Path
    arithmetic: str
    jobs: int
    as_json: bool


def reexecute(options: ReexecuteOptions) -> int:
    """Print the answer; 0 if everything is equal, 1 if something differs or could not be compared."""
    with fixture_progress() as progress:
        answer = again(
            options.bundle,
            cache_root(),
            arithmetic=options.arithmetic,
            jobs=options.jobs,
            progress=progress,
        )
    if options.as_json:
        click.echo(json.dumps(answer.model_dump(mode="json")))
    else:
        click.echo("\n".join(_lines(answer)))
    return EQUAL if answer.equal else DIFFERS


def usable_cpus() -> int:
    """How many CPUs this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _lines(answer: Reexecution) -> Iterator[str]:
    cohort, fixture = answer.cohort, answer.fixture
    yield f"SIMULATED {answer.kind}: {cohort.name}, plan {cohort.plan}, arithmetic {answer.arithmetic}"
    if answer.kind == "agreement":
        yield "a model beside a measurement; no evidence of the GPU cohort"
    yield f"fixture: recorded {fixture.recorded}, rebuilt {fixture.rebuilt if not fixture.equal else 'equal'}"
    yield f"{len(answer.records)} records, {len(answer.treatments)} distinct treatments"
    yield from (f"surface {s.surface}: equal on {s.equal} of {s.compared} records" for s in answer.surfaces)
    differences = [*_faults(answer), *_differing(answer)]
    yield from differences[:_MOST]
    if len(differences) > _MOST:
        yield f"and {len(differences) - _MOST} more; --format json has all"
    for item in answer.source:
        yield f"other source: {item.path}: build.json {item.recorded or 'none'}, here {item.here or 'none'}"
    yield "everything is equal" if answer.equal else "not everything is equal"


def _faults(answer: Reexecution) -> Iterator[str]:
    yield from (f"not compared: {item.path}: {item.reason}" for item in answer.unread)
    for item in answer.treatments:
        if item.fault is not None:
            yield f"not computed: alignment {item.alignment}, grids {list(item.grids)}: {item.fault}"


def _differing(answer: Reexecution) -> Iterator[str]:
    for again_ in answer.records:
        for item in again_.compared:
            if not item.equal:
                words = f"recorded {item.recorded}, recomputed {item.recomputed}"
                yield f"differs: {again_.path}: {item.quantity}: {words}"
