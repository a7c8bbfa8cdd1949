"""A bundle as the page needs it: every document that can be read, and why the others cannot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel

from ledger.bundle import ATTEMPTS, AttemptEnded, AttemptStarted, BundleFile, LogResumed
from ledger.canonical import CanonicalError, parse_canonical
from ledger.fault import FaultsError
from ledger.model import read_json
from ledger.plan import Plan
from ledger.record import BuildFile, Record, RoutingFile, record_path
from mechanism.errors import MechanismError
from mechanism.fixture.errors import FixtureError
from mechanism.kernel.errors import KernelError
from mechanism.plan.document import load_plan
from mechanism.report.errors import ReportError
from mechanism.trace.source import document

#: What a damaged bundle can raise while a section is made of it; anything else is a fault of this program.
DAMAGE = (MechanismError, FaultsError, FixtureError, KernelError, OSError, KeyError, IndexError)
Event = AttemptStarted | AttemptEnded | LogResumed
_EVENTS: dict[str, type[BaseModel]] = {
    "started": AttemptStarted,
    "ended": AttemptEnded,
    "resumed": LogResumed,
}
Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """One bundle.

    Attributes:
        folder: Where it lies; only its name is shown.
        plan: Its plan, with the sha256 of the bytes.
        plan_sha256: That.
        summary: ``bundle.json``.
        records: Those that can be read, by path, in the plan's order.
        lacking: Paths of records that cannot.
    """

    folder: Path
    plan: Plan
    plan_sha256: str
    summary: BundleFile
    records: dict[str, Record]
    lacking: tuple[str, ...]

    @property
    def name(self) -> str:
        """The folder's own name."""
        return self.folder.resolve().name

    @property
    def simulated(self) -> bool:
        """Whether no GPU took part."""
        return self.summary.evidence == "simulated"

    def captured(self, record: Record) -> Path | None:
        """The file of a record's captures; None if it was left out."""
        path = self.folder / "objects" / f"{record.capture}.safetensors"
        return path if path.exists() else None

    @property
    def raw(self) -> bool:
        """Whether every record's captures are here."""
        return all(self.captured(record) is not None for record in self.records.values())


def read_source(folder: Path) -> Source:
    """Read what a page cannot do without: summary, plan, records.

    Raises:
        ReportError: No bundle, or one without a plan that can be read.
    """
    if not (folder / "plan.yaml").is_file():
        found = "a folder without plan.yaml" if folder.is_dir() else "none"
        raise ReportError(
            f"{folder}: expected the folder of a bundle, got {found}; check the path, and unpack a"
            " release first"
        )
    if not (folder / "bundle.json").is_file():
        raise ReportError(
            f"{folder}: expected a finished bundle, found no bundle.json; go on with it by `mechanism"
            " run --resume`"
        )
    try:
        summary = document(BundleFile, folder, "bundle.json")
        loaded = load_plan(folder / "plan.yaml")
    except (FaultsError, MechanismError) as fault:
        raise ReportError(
            f"{folder}: no page can be made of it: {fault}; `verifier check` says what is wrong"
        ) from fault
    records, lacking = {}, []
    for phase, cell in loaded.plan.cells():
        for history in cell.histories:
            for replicate in range(1, loaded.plan.replicates + 1):
                path = record_path(phase.name, cell.name, history, replicate)
                try:
                    records[path] = document(Record, folder, path)
                except DAMAGE:
                    lacking.append(path)
    return Source(
        folder=folder,
        plan=loaded.plan,
        plan_sha256=loaded.sha256,
        summary=summary,
        records=records,
        lacking=tuple(lacking),
    )


def read_events(source: Source) -> tuple[Event, ...]:
    """The attempts log, line by line.

    Raises:
        ReportError: A line is none.
    """
    events: list[Event] = []
    for number, line in enumerate((source.folder / ATTEMPTS).read_bytes().splitlines(), start=1):
        where = f"{ATTEMPTS}, line {number}"
        try:
            value = parse_canonical(line)
        except CanonicalError as fault:
            raise ReportError(f"{where}: {fault}; `verifier check` says what is wrong") from fault
        kind = _EVENTS.get(str(value.get("event"))) if isinstance(value, dict) else None
        if kind is None:
            raise ReportError(
                f"{where}: expected a started, ended or resumed event, got another; `verifier check` says"
                " what is wrong"
            )
        events.append(read_json(kind, value, name=where))  # type: ignore[arg-type]
    return tuple(events)


def read_build(source: Source) -> BuildFile:
    """The build identity. Raises as ``document``."""
    return document(BuildFile, source.folder, "build.json")


def read_routing(source: Source) -> RoutingFile:
    """The routing. Raises as ``document``."""
    return document(RoutingFile, source.folder, "routing.json")


def attempt(make: Callable[[], Result]) -> tuple[Result | None, str]:
    """What a section is made of, or why it cannot be: a damaged bundle costs its sections, not the page."""
    try:
        return make(), ""
    except DAMAGE as fault:
        return None, str(fault)
