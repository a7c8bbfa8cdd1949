"""A bundle read for re-execution: strictly, and only at paths worked out here, never at paths it names."""

import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel

from ledger import strict_yaml
from ledger.canonical import CanonicalError, parse_canonical, sha256
from ledger.fault import FaultsError
from ledger.lock import Lock
from ledger.model import read_json, read_yaml
from ledger.plan import Plan
from ledger.record import BuildFile, Record, RoutingFile, record_path
from mechanism.errors import MechanismError
from mechanism.plan import geometry
from mechanism.plan.deliver import refuse_static
from mechanism.plan.document import LoadedPlan
from mechanism.plan.expand import expand

ModelT = TypeVar("ModelT", bound=BaseModel)

#: Bytes of the largest document, record and alignment that are read.
MAX_DOCUMENT, MAX_RECORD, MAX_ALIGNMENT = 64 * 2**20, 2**20, 8 * 2**20
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # a FIFO must not block the open


class BundleError(MechanismError):
    """What lies there cannot be re-executed; the message says what it lacks."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadRecord:
    """A record with the sha256 of its bytes."""

    record: Record
    sha256: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """What of a bundle decides its trajectories. `unread`: why a process of the lock has no record here."""

    folder: Path
    plan: LoadedPlan
    lock: Lock
    routing: RoutingFile
    build: BuildFile
    software: str
    records: Mapping[str, ReadRecord]
    unread: Mapping[str, str]


def read_bundle(folder: Path) -> Source:
    """Read and hold together plan, lock, routing and build; then the records of the lock's processes.

    Raises BundleError or FaultsError if the former cannot be had or do not agree. A record that cannot be
    used is data.
    """
    if not folder.is_dir():
        raise BundleError(
            f"{folder}: expected the folder of a bundle, got none; check the path, and unpack a release first"
        )
    try:
        data = {
            name: read_file(folder, name, MAX_DOCUMENT)
            for name in ("plan.yaml", "plan.lock", "routing.json", "build.json")
        }
    except BundleError as fault:
        raise BundleError(f"{folder}: {fault}; `verifier check` says what else is missing") from fault
    document = strict_yaml.load(data["plan.yaml"], name="plan.yaml")
    plan = LoadedPlan(
        name="plan.yaml",
        data=data["plan.yaml"],
        document=document,
        plan=read_yaml(Plan, document, name="plan.yaml"),
    )
    lock = _json(Lock, data["plan.lock"], "plan.lock")
    build = _json(BuildFile, data["build.json"], "build.json")
    refuse_static(plan)
    _require_together(plan, lock, build, routing=sha256(data["routing.json"]))
    records, unread = _records(folder, plan, lock)
    return Source(
        folder=folder,
        plan=plan,
        lock=lock,
        routing=_json(RoutingFile, data["routing.json"], "routing.json"),
        build=build,
        software=sha256(data["build.json"]),
        records=records,
        unread=unread,
    )


def read_file(folder: Path, path: str, limit: int) -> bytes:
    """A regular file of the bundle, no link followed. Raises BundleError, also beyond `limit` bytes."""
    here = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        *folders, name = path.split("/")
        for inner in folders:
            outer, here = here, os.open(inner, _OPEN | os.O_DIRECTORY, dir_fd=here)
            os.close(outer)
        descriptor = os.open(name, _OPEN, dir_fd=here)
    except OSError as fault:
        raise BundleError(f"{path}: expected a file of the bundle, got: {fault.strerror}") from fault
    finally:
        with suppress(OSError):
            os.close(here)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise BundleError(f"{path}: expected a regular file, got something else")
        data = file.read(limit + 1)
    if len(data) > limit:
        raise BundleError(f"{path}: expected at most {limit} bytes, got more")
    return data


def _json(model: type[ModelT], data: bytes, name: str) -> ModelT:
    try:
        return read_json(model, parse_canonical(data), name=name)
    except CanonicalError as fault:
        raise BundleError(f"{name}: {fault}") from fault


def _require_together(plan: LoadedPlan, lock: Lock, build: BuildFile, *, routing: str) -> None:
    """Raise BundleError unless the lock is this plan's and the rest is of the lock."""
    grids = lock.launches[0].grid, lock.launches[1].grid
    launches = tuple(geometry.launch(plan.plan, gemm) for gemm in geometry.gemms(plan.plan.fixture))
    simulated = plan.plan.engine == "simulated"
    for what, expected, got in (
        ("plan.lock: plan.sha256", plan.sha256, lock.plan.sha256),
        ("plan.lock: fixture.routing", routing, lock.fixture.routing),
        ("build.json: engine", plan.plan.engine, build.engine),
        ("build.json: evidence", "simulated" if simulated else "gpu", build.evidence),
        *(
            (f"plan.lock: launches.{locked.name}", _shape(launch), _shape(locked))
            for launch, locked in zip(launches, lock.launches, strict=True)
        ),
    ):
        if expected != got:
            raise BundleError(f"{what}: expected {expected}, got {got}; `verifier check` says what is wrong")
    if lock.cells != expand(plan.plan, grids):
        raise BundleError("plan.lock: cells: expected the plan's, got others; see `verifier check`")


def _shape(launch: object) -> str:
    """A launch of the plan or of the lock, in words."""
    keys = ("tile_k", "tile_n", "threads", "grid")
    return ", ".join(f"{key} {getattr(launch, key)}" for key in keys)


def _records(folder: Path, plan: LoadedPlan, lock: Lock) -> tuple[dict[str, ReadRecord], dict[str, str]]:
    read: dict[str, ReadRecord] = {}
    unread: dict[str, str] = {}
    for cell in lock.cells:
        path = record_path(cell.phase, cell.cell, cell.history, cell.replicate)
        try:
            data = read_file(folder, path, MAX_RECORD)
            record = _json(Record, data, path)
            if record.path != path or record.plan != plan.sha256:
                raise BundleError(f"{path}: expected the record of this process, got another's")  # noqa: TRY301
        except (BundleError, FaultsError) as fault:
            unread[path] = " ".join(str(fault).split())[:1000]
        else:
            read[path] = ReadRecord(record=record, sha256=sha256(data))
    return read, unread
