"""Which containment a campaign's cells get: the best that works here, tried once, before the first cell."""

import json
import shutil
from pathlib import Path

from ledger.record import Containment as Recorded
from mechanism.campaign.bundle import STAGING
from mechanism.campaign.request import RunRequest
from mechanism.errors import CampaignError
from mechanism.process.containment import JIT_CACHE, Kind, Limits, containment, kinds_for
from mechanism.process.launch import Launch, Running, interpreter

_TRIAL = "mechanism.process.held"
_LIMIT_S = 60
_TRIALS = 5


def choose(request: RunRequest, folder: Path, recorded: Recorded | None) -> Kind:
    """The first kind under which a trial process finds itself held as it should be.

    `recorded`: how the cells that are in the bundle were held; the others must be held in the same way.
    Raises CampaignError if that, or what the request wants, does not work here.
    """
    wanted = request.containment or (None if recorded is None else recorded.by)
    if request.plan.engine == "vllm":
        (folder / STAGING / JIT_CACHE).mkdir(exist_ok=True)
    kinds = (wanted,) if wanted else kinds_for(request.plan.engine)
    said = ""
    for kind in kinds:
        said = _try(kind, request, folder)
        if not said:
            if kind == "modes":
                _protect(request.fixture_folder)
            return kind
    raise CampaignError(
        f"containment: expected cells held by {' or '.join(kinds)}, got a system that does not let them be:"
        f" {said}"
    )


def _try(kind: Kind, request: RunRequest, folder: Path) -> str:
    """Why the kind does not work here; empty if it does."""
    own = folder / STAGING / "trial"
    own.mkdir()
    asked = {"kind": kind, "bundle": str(folder), "fixture": str(request.fixture_folder.absolute())}
    (own / "request.json").write_text(json.dumps(asked))
    launch = Launch(
        python=interpreter(),
        module=_TRIAL,
        request=str(own / "request.json"),
        environment=request.plan.environment,
        limit_us=_LIMIT_S * 1_000_000,
        contain=containment(
            kind,
            engine=request.plan.engine,
            bundle=folder,
            fixture=request.fixture_folder.absolute(),
            own=(own,),
            more=request.writable,
            limits=Limits(memory=None, file_size=None, processes=None),
        ),
    )
    for _ in range(_TRIALS):
        outcome = Running(launch).finish(timeout_s=_LIMIT_S * 2)
        if outcome.exit_code is not None and not outcome.fault:
            break  # by itself: what somebody killed says nothing of the system
    else:
        raise CampaignError(
            f"containment: expected a trial process to end by itself, got {_TRIALS} that were killed"
        )
    shutil.rmtree(own)
    if outcome.exit_code == 0:
        return ""
    return outcome.stderr_tail.decode(errors="replace").strip().rpartition("\n")[2] or "no reason given"


def _protect(fixture: Path) -> None:
    """Where modes are all there is, the fixture's files are read-only by theirs."""
    for path in fixture.iterdir():
        if path.is_file():
            path.chmod(path.stat().st_mode & 0o555)
