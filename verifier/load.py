"""Reading a bundle: every document typed, every document that cannot be read a finding, none fatal."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from pydantic import BaseModel

from ledger.bundle import DOCUMENTS, MANIFEST, SUMMARY, BundleFile
from ledger.claim import Ledger
from ledger.plan import Plan, Surface
from ledger.record import AlignmentFile, BuildFile, CapturedSurface, Record, RoutingFile
from verifier.arithmetic.routing import routing_faults
from verifier.arithmetic.rules import plan_faults
from verifier.bundle import Bundle, Documents, Facts, Manifest, Unreadable
from verifier.evidence import Evidence, EvidenceError
from verifier.found import Found
from verifier.layout import Slot, address_of, kind_of, slot_in_name
from verifier.library import Library
from verifier.lockfile import read_lock
from verifier.logs import read_attempts, read_manifest
from verifier.workings import PlanWorkings, Workings

ModelT = TypeVar("ModelT", bound=BaseModel)
DOCUMENTS_READ = (SUMMARY, *DOCUMENTS)
#: What the checks of one record found in it, each with its code; text for what a check lacked.
Results = tuple[tuple[str, Found | str], ...]
#: The checks of one record, against the documents of its bundle: no other record is there to be looked at.
Examine = Callable[[Bundle, Record], Results]

#: Results of one check beyond this many are dropped: a hostile bundle may have millions.
MAX_FOUND = 1000


def load(
    evidence: Evidence,
    library: Library,
    *,
    anchor: str | None = None,
    examine: Examine = lambda _bundle, _record: (),
    log: bool = True,
) -> Bundle:
    """Read a whole bundle, or one without its attempts log. Bad evidence never raises.

    `anchor`: the sha256 that its plan must have. `examine` must be the same object for the same checks: what
    it gave for a record is kept.
    """
    unread: list[Found] = []
    lines = read_manifest(evidence, library, unread)
    documents = _documents(evidence, library, unread)
    planned, worked = _workings(documents, library)
    bundle = Bundle(
        evidence=evidence,
        library=library,
        manifest=Manifest(lines=lines),
        documents=documents,
        digests=dict(_digests(evidence)),
        alignments={},
        facts=(),
        no_records=(),
        examined={},
        twins={},
        attempts=None,
        unread=(),
        anchor=anchor,
        plan_workings=planned,
        workings=worked,
    )
    bundle = _with_records(bundle, examine, unread)
    alignments = _alignments(evidence, library, unread)
    attempts = read_attempts(evidence, library, unread) if log else None
    return replace(bundle, alignments=alignments, attempts=attempts, unread=tuple(unread))


def frozen(bundle: Bundle) -> tuple[str | None, ...]:
    """What identifies the documents that records are held against, and that no mutation touches."""
    names = ("plan.yaml", "plan.lock", "ledger.yaml", "build.json", "routing.json")
    return tuple(bundle.digests.get(name) for name in names)


def _digests(evidence: Evidence) -> Iterator[tuple[str, str]]:
    """Digests of the documents of which there is one; those of the other files are taken where needed."""
    for path in (SUMMARY, MANIFEST, *DOCUMENTS):
        entry = evidence.entries.get(path)
        if entry is not None and entry.kind == "file":
            try:
                yield path, evidence.digest(path)
            except EvidenceError:
                continue  # the integrity checks say so


def _documents(evidence: Evidence, library: Library, unread: list[Found]) -> Documents:
    there = {
        path for path in DOCUMENTS_READ if (entry := evidence.entries.get(path)) and entry.kind == "file"
    }

    def json(path: str, model: type[ModelT]) -> ModelT | None:
        return library.json(evidence, path, model, unread) if path in there else None

    summary = json(SUMMARY, BundleFile)
    plan = library.yaml(evidence, "plan.yaml", Plan, unread) if "plan.yaml" in there else None
    lock, locked = read_lock(evidence, library, unread)
    return Documents(
        summary=summary,
        plan=plan,
        lock=lock,
        locked=locked,
        ledger=library.yaml(evidence, "ledger.yaml", Ledger, unread) if "ledger.yaml" in there else None,
        build=json("build.json", BuildFile),
        routing=json("routing.json", RoutingFile),
    )


def _workings(documents: Documents, library: Library) -> tuple[PlanWorkings | None, Workings | None]:
    """The verifier's own arithmetic, once per plan and routing; None where they do not allow it."""
    plan, routing = documents.plan, documents.routing
    if plan is None or library.once(("plan faults", id(plan)), lambda: plan_faults(plan)):
        return None, None
    planned = library.once(("plan workings", id(plan)), lambda: PlanWorkings(plan))
    if routing is None or library.once(
        ("routing faults", id(plan), id(routing)), lambda: tuple(routing_faults(plan.fixture, routing))
    ):
        return planned, None
    return planned, library.once(("workings", id(plan), id(routing)), lambda: Workings(plan, routing))


def _alignments(evidence: Evidence, library: Library, unread: list[Found]) -> Mapping[str, AlignmentFile]:
    found: dict[str, AlignmentFile] = {}
    for path, entry in evidence.entries.items():
        if entry.kind == "file" and kind_of(path) == "alignment":
            value = library.json(evidence, path, AlignmentFile, unread)
            if value is not None:
                found[str(address_of(path))] = value
    return found


@dataclass(frozen=True, kw_only=True, slots=True)
class _Read:
    """One file under records/: what it is, what is wrong with it as a document, what its checks found."""

    what: Facts | Unreadable
    faults: tuple[Found, ...]
    results: Results

    @property
    def claims(self) -> Slot | None:
        """Which process it claims to be."""
        return self.what.slot if isinstance(self.what, Facts) else self.what.claims


def _with_records(bundle: Bundle, examine: Examine, unread: list[Found]) -> Bundle:
    """The bundle with the facts of every file under records/, and the cells that more than one claims.

    Where two files claim one cell, neither is judged by its content: which is the record cannot be told.
    """
    read: list[_Read] = []
    claimed: dict[Slot, list[str]] = {}
    key = bundle.library.once(("frozen", examine, frozen(bundle)), object)
    for path, entry in bundle.evidence.entries.items():
        if entry.kind == "file" and kind_of(path) == "record":
            item = _read(bundle, path, examine, key)
            if item.claims is not None:
                claimed.setdefault(item.claims, []).append(path)
            read.append(item)
    twins = {slot: tuple(paths) for slot, paths in claimed.items() if len(paths) > 1}
    ambiguous = {path for paths in twins.values() for path in paths}
    facts: list[Facts] = []
    no_records: list[Unreadable] = []
    examined: dict[str, list[Found | str]] = defaultdict(list)
    for item in read:
        if item.what.path in ambiguous:
            continue
        unread += item.faults
        if isinstance(item.what, Facts):
            facts.append(item.what)
        else:
            no_records.append(item.what)
        for code, result in item.results:
            if len(examined[code]) < MAX_FOUND:
                examined[code].append(result)
    return replace(
        bundle,
        facts=tuple(facts),
        no_records=tuple(no_records),
        twins=twins,
        examined={code: tuple(results) for code, results in examined.items()},
    )


def _read(bundle: Bundle, path: str, examine: Examine, frozen_key: object) -> _Read:
    """One file under records/; what equal bytes gave under equal documents is not worked out again."""
    try:
        digest = bundle.evidence.digest(path)
    except EvidenceError:
        return _examined(bundle, path, examine)
    return bundle.library.once((path, digest, frozen_key), partial(_examined, bundle, path, examine))


def _examined(bundle: Bundle, path: str, examine: Examine) -> _Read:
    faults: list[Found] = []
    record, digest = bundle.library.passing(bundle.evidence, path, Record, faults)
    if record is None:
        nothing = Unreadable(path=path, claims=slot_in_name(path))
        return _Read(what=nothing, faults=tuple(faults), results=())
    return _Read(
        what=facts_of(record, path, digest, bundle.library),
        faults=tuple(faults),
        results=examine(bundle, record),
    )


def _surfaces(record: Record) -> tuple[tuple[CapturedSurface, ...], Mapping[Surface, str]]:
    return record.surfaces, {surface.name: surface.sha256 for surface in record.surfaces}


def facts_of(record: Record, path: str, digest: str, library: Library) -> Facts:
    """A record in few words, each of which is kept once however many records say it."""
    process, gemms, same = record.process, record.treatment.gemms, library.same
    tensors, surfaces = library.once(("surfaces", record.surfaces), lambda: _surfaces(record))
    return Facts(
        path=path,
        sha256=digest,
        phase=same(record.phase),
        cell=same(record.cell),
        history=same(record.history),
        replicate=record.replicate,
        attempt=record.attempt,
        nonce=process.nonce,
        process=(same(process.boot_id), process.pid, process.started_us),
        markers=len(record.markers),
        passed=(record.markers[0].time_us, record.markers[-1].time_us) if record.markers else (0, 0),
        containment=same(process.containment),
        plan=same(record.plan),
        software=same(record.software),
        alignment=same(record.treatment.alignment.sha256),
        grids=same((gemms[0].grid, gemms[1].grid)),
        symbols=same((gemms[0].symbol, gemms[1].symbol)),
        tensors=tensors,
        surfaces=surfaces,
        trajectory=same(record.trajectory),
        capture=same(record.capture),
        assumptions=same(record.assumptions),
    )
