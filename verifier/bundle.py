"""A bundle as far as it could be read: typed documents, records, alignments, attempts.

Whatever could not be read is a finding already; a check that asks for it raises Absent, and is then
reported as not carried out instead of being passed over.
"""

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from ledger.bundle import BundleFile
from ledger.claim import Ledger
from ledger.lock import Lock
from ledger.plan import Plan, Surface
from ledger.record import AlignmentFile, BuildFile, CapturedSurface, Containment, RoutingFile
from verifier.arithmetic.cells import Planned
from verifier.evidence import Evidence
from verifier.found import ArmKey, Found
from verifier.layout import Slot, address_of, alignment_path, object_path
from verifier.library import Library
from verifier.store.mostly import Mostly
from verifier.store.rows import Picked
from verifier.store.table import Table
from verifier.tensorfile import Tensor
from verifier.unread import Unread
from verifier.workings import PlanWorkings, Workings

if TYPE_CHECKING:
    from verifier.census import Census

T = TypeVar("T")
_MOST_CITED = 50_000  # pairs of a file and an arm that cites it


class Started(NamedTuple):
    """An attempt began (`ledger.bundle.AttemptStarted`), in few words."""

    attempt: int
    slot: Slot
    nonce: str
    time_us: int


class Ended(NamedTuple):
    """An attempt ended (`ledger.bundle.AttemptEnded`)."""

    attempt: int
    outcome: str
    reason: str
    exit_code: int | None
    signal: int | None
    record: str | None
    time_us: int


class Resumed(NamedTuple):
    """Another runner went on (`ledger.bundle.LogResumed`)."""

    time_us: int


Event = Started | Ended | Resumed


class AttemptLine(NamedTuple):
    """One readable line of the attempts log."""

    number: int
    event: Event


@dataclass(frozen=True, kw_only=True, slots=True)
class Log:
    """The attempts log. `breaks`: lines without the digest of the one before, as number, wanted, got.

    `started`, `ended`: by attempt, the places among `lines`, from 1, of its first start and its first end.
    """

    lines: Sequence[AttemptLine]
    breaks: tuple[tuple[int, str, str], ...]
    started: Table
    ended: Table

    def start_of(self, attempt: int) -> Started | None:
        """The first start of an attempt."""
        event = self.lines[place - 1].event if (place := self.started.get(attempt)) else None
        return event if isinstance(event, Started) else None

    def end_of(self, attempt: int) -> Ended | None:
        """The first end of an attempt."""
        event = self.lines[place - 1].event if (place := self.ended.get(attempt)) else None
        return event if isinstance(event, Ended) else None


class Listed(NamedTuple):
    """What the manifest says of a file."""

    size: int
    sha256: str


class Absent(Exception):  # noqa: N818 - not an error: a check's way to say what it lacks
    """What a check needs is not there or could not be read; the message names it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Documents:
    """The documents of which a bundle has one each; None where one could not be read.

    `locked`: the lock's processes; the lock itself may hold the first one alone (`verifier.lockfile`).
    """

    summary: BundleFile | None
    plan: Plan | None
    lock: Lock | None
    locked: Sequence[Planned]
    ledger: Ledger | None
    build: BuildFile | None
    routing: RoutingFile | None


class Facts(NamedTuple):
    """What checks across records need of one: a record in few words; of many, the words are on disk.

    `process`: boot, pid, start. `passed`: times of the first and the last of so many `markers`, 0 without.
    """

    path: str
    sha256: str
    phase: str
    cell: str
    history: str
    replicate: int
    attempt: int
    nonce: str
    process: tuple[str, int, int]
    markers: int
    passed: tuple[int, int]
    containment: Containment
    plan: str
    software: str
    alignment: str
    grids: tuple[int, int]
    symbols: tuple[str, str]
    tensors: tuple[CapturedSurface, ...]
    surfaces: Mapping[Surface, str]
    trajectory: str
    capture: str
    assumptions: tuple[str, ...]

    @property
    def arm(self) -> ArmKey:
        """Cell and history."""
        return self.cell, self.history

    @property
    def slot(self) -> Slot:
        """Which process of the plan this claims to be."""
        return self.phase, self.cell, self.history, self.replicate


class Unreadable(NamedTuple):
    """A file under records/ that is no record, and which process its name claims that it is."""

    path: str
    claims: Slot | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Capture:
    """What one file under objects/ holds; `fault` says why it could not be read, if it could not."""

    tensors: Mapping[str, Tensor]
    fault: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Manifest:
    """The readable lines of files.jsonl, by path."""

    lines: Mostly[Listed]


@dataclass(frozen=True, kw_only=True, slots=True)
class Bundle:
    """Everything read; `unread` are the findings made on the way.

    Of a record its facts are kept and, by code, what `examined` it found or lacked (text); the documents
    themselves are let go, one after the other. `attempts` is None also where the log was not asked for.
    """

    evidence: Evidence
    library: Library
    manifest: Manifest
    documents: Documents
    digests: Mapping[str, str]
    alignments: Mapping[str, AlignmentFile]
    facts: Sequence[Facts]
    #: Some records of every kind, where many differ only in who they are; None: all must be looked at.
    alike: Sequence[Facts] | None
    census: "Census | None"
    no_records: Sequence[Unreadable]
    examined: Mapping[str, tuple[Found | str, ...]]
    twins: Mapping[Slot, tuple[str, ...]]
    attempts: Log | None
    unread: Unread
    anchor: str | None
    plan_workings: PlanWorkings | None
    workings: Workings | None
    #: What was worked out for this very bundle; a changed one begins anew.
    _kept: dict[str, Any] = field(init=False, default_factory=dict, repr=False, compare=False)

    def once(self, name: str, make: Callable[[], T]) -> T:
        """`make()`, or what it gave for the same name before."""
        if name not in self._kept:
            self._kept[name] = make()
        return cast("T", self._kept[name])

    @property
    def summary(self) -> BundleFile:
        """bundle.json. Raises Absent."""
        return _there(self.documents.summary, "bundle.json")

    @property
    def plan(self) -> Plan:
        """plan.yaml. Raises Absent."""
        return _there(self.documents.plan, "plan.yaml")

    @property
    def lock(self) -> Lock:
        """plan.lock. Raises Absent."""
        return _there(self.documents.lock, "plan.lock")

    @property
    def ledger(self) -> Ledger:
        """ledger.yaml. Raises Absent."""
        return _there(self.documents.ledger, "ledger.yaml")

    @property
    def build(self) -> BuildFile:
        """build.json. Raises Absent."""
        return _there(self.documents.build, "build.json")

    @property
    def routing(self) -> RoutingFile:
        """routing.json. Raises Absent."""
        return _there(self.documents.routing, "routing.json")

    @property
    def log(self) -> Sequence[AttemptLine]:
        """attempts.jsonl. Raises Absent."""
        return self.whole_log.lines

    @property
    def whole_log(self) -> Log:
        """attempts.jsonl with what is wrong with its chain. Raises Absent."""
        return _there(self.attempts, "attempts.jsonl")

    @property
    def planned(self) -> PlanWorkings:
        """What follows from the plan. Raises Absent if it cannot be worked out."""
        return _there(self.plan_workings, "a plan that can be worked out")

    @property
    def worked(self) -> Workings:
        """What follows from plan and routing. Raises Absent if they cannot be worked out together."""
        return _there(self.workings, "a plan and a routing.json that can be worked out together")

    def digest(self, path: str) -> str:
        """The digest of a file that was there when the bundle was read. Raises Absent."""
        return _there(self.digests.get(path), path)

    def has(self, path: str) -> bool:
        """Whether a regular file lies at this path."""
        entry = self.evidence.entries.get(path)
        return entry is not None and entry.kind == "file"

    def native(self, history: str) -> AlignmentFile | None:
        """The alignment that was constructed under a history.

        Simulated: worked out from its arrival order. On a GPU the atomics decide, so it is the one delivered
        to the lowest replicate of the cell that constructs it.
        """
        if self.plan.engine == "simulated":
            return self.worked.native(history)
        return self.once(f"native {history}", lambda: self._constructed(history))

    def _constructed(self, history: str) -> AlignmentFile | None:
        built = self.planned.constructor(history)
        mine = (f for f in self.facts if built == (f.phase, f.cell) and f.history == history)
        first = min(mine, key=lambda facts: facts.replicate, default=None)
        return self.alignments.get(first.alignment) if first else None

    @property
    def arms(self) -> Mapping[ArmKey, Sequence[Facts]]:
        """The records of each arm, in their order."""
        return self.once("arms", self._by_arm)

    @property
    def kinds(self) -> Sequence[Facts]:
        """Records that cite everything that is cited."""
        return self.facts if self.alike is None else self.alike

    def look(self, at: Callable[[Sequence[Facts]], Iterator[Found]]) -> Iterator[Found]:
        """What a check finds in the records, if it looks at what they say alike and names each by its path.

        Where it finds nothing in some of every kind, it finds nothing in the others.
        """
        if self.alike is None or next(at(self.alike), None) is not None:
            yield from at(self.facts)

    def _by_arm(self) -> Mapping[ArmKey, Sequence[Facts]]:
        if self.census is not None:
            return {arm: Picked(self.facts, mine) for arm, mine in self.census.arms.items()}
        places: dict[ArmKey, array[int]] = {}
        for place, facts in enumerate(self.facts):
            if (mine := places.get(facts.arm)) is None:
                mine = places[facts.arm] = array("I")
            mine.append(place)
        return {arm: Picked(self.facts, mine) for arm, mine in places.items()}

    def record(self, path: str) -> Facts | None:
        """The facts of the record at this path."""
        facts = self.facts
        place = bisect_left(facts, path, key=lambda item: item.path)
        if place < len(facts) and (found := facts[place]).path == path:
            return found
        if self.once("ascending", lambda: all(a.path < b.path for a, b in pairwise(facts))):
            return None
        return next((item for item in facts if item.path == path), None)  # what is laid over comes last

    def arms_of(self, path: str) -> frozenset[ArmKey]:
        """The arms whose records cite the alignment or capture at this path."""
        return self.once(f"arms of {path}", lambda: self._arms_of(path))

    def _arms_of(self, path: str) -> frozenset[ArmKey]:
        if (address := address_of(path)) is None:
            return frozenset()
        cited = self.once("cited", self._cited)
        if cited is not None:
            return frozenset(cited.get(path, ()))
        kind = alignment_path if path == alignment_path(address) else object_path
        return frozenset(
            facts.arm
            for facts in self.facts
            if path == kind(facts.alignment if kind is alignment_path else facts.capture)
        )

    def _cited(self) -> Mapping[str, set[ArmKey]] | None:
        """All arms by the alignment or capture that they cite; None if that is more than is kept."""
        found: dict[str, set[ArmKey]] = {}
        room = _MOST_CITED
        for facts in self.kinds:
            for path in (alignment_path(facts.alignment), object_path(facts.capture)):
                arms = found.setdefault(path, set())
                room -= facts.arm not in arms
                arms.add(facts.arm)
            if room < 0:
                return None
        return found


def _there(value: T | None, what: str) -> T:
    if value is None:
        raise Absent(what)
    return value
