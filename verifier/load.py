"""Reading a bundle: every document typed, every document that cannot be read a finding, none fatal."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import TypeVar

from pydantic import BaseModel

from ledger.bundle import DOCUMENTS, MANIFEST, SUMMARY, BundleFile
from ledger.claim import Ledger
from ledger.lock import Lock
from ledger.plan import Plan
from ledger.record import AlignmentFile, BuildFile, Record, RoutingFile
from verifier.arithmetic.routing import routing_faults
from verifier.arithmetic.rules import plan_faults
from verifier.bundle import Bundle, Documents, Facts, Manifest, ReadRecord
from verifier.evidence import Evidence, EvidenceError
from verifier.found import Found
from verifier.layout import Slot, address_of, kind_of, slot_in_name
from verifier.library import Library
from verifier.logs import read_attempts, read_manifest
from verifier.workings import PlanWorkings, Workings

ModelT = TypeVar("ModelT", bound=BaseModel)


def load(evidence: Evidence, library: Library, *, anchor: str | None = None) -> Bundle:
    """Read a whole bundle. `anchor`: the sha256 that its plan must have. Bad evidence never raises."""
    unread: list[Found] = []
    lines = read_manifest(evidence, library, unread)
    documents = _documents(evidence, library, unread)
    records, twins = _records(evidence, library, unread)
    facts = tuple(item.facts for item in records if item.facts)
    planned, worked = _workings(documents, library)
    alignments = _alignments(evidence, library, unread)
    return Bundle(
        evidence=evidence,
        library=library,
        manifest=Manifest(lines=lines),
        documents=documents,
        digests=dict(_digests(evidence)),
        alignments=alignments,
        records=records,
        facts=facts,
        twins=twins,
        attempts=read_attempts(evidence, library, unread),
        unread=tuple(unread),
        anchor=anchor,
        plan_workings=planned,
        workings=worked,
    )


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
    there = {path for path, entry in evidence.entries.items() if entry.kind == "file"}

    def json(path: str, model: type[ModelT]) -> ModelT | None:
        return library.json(evidence, path, model, unread) if path in there else None

    return Documents(
        summary=json(SUMMARY, BundleFile),
        plan=library.yaml(evidence, "plan.yaml", Plan, unread) if "plan.yaml" in there else None,
        lock=json("plan.lock", Lock),
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


def _records(
    evidence: Evidence, library: Library, unread: list[Found]
) -> tuple[tuple[ReadRecord, ...], Mapping[Slot, tuple[str, ...]]]:
    """Every file under records/, and the cells that more than one of them claims.

    Where two files claim one cell, neither is judged by its content: which is the record cannot be told.
    """
    read: list[ReadRecord] = []
    faults: dict[str, list[Found]] = defaultdict(list)
    claimed: dict[Slot, list[str]] = defaultdict(list)
    for path, entry in evidence.entries.items():
        if entry.kind != "file" or kind_of(path) != "record":
            continue
        item = _record(evidence, library, path, faults[path])
        if item.claims is not None:
            claimed[item.claims].append(path)
        read.append(item)
    twins = {slot: tuple(paths) for slot, paths in claimed.items() if len(paths) > 1}
    ambiguous = {path for paths in twins.values() for path in paths}
    for path, found in faults.items():
        if path not in ambiguous:
            unread += found
    return tuple(item for item in read if item.path not in ambiguous), twins


def _record(evidence: Evidence, library: Library, path: str, faults: list[Found]) -> ReadRecord:
    record = library.json(evidence, path, Record, faults)
    try:
        digest = evidence.digest(path)
    except EvidenceError:
        digest = ""
    if record is None:
        return ReadRecord(path=path, sha256=digest, record=None, facts=None, claims=slot_in_name(path))
    facts = library.once(("facts", path, digest), lambda: facts_of(record, path, digest))
    return ReadRecord(path=path, sha256=digest, record=record, facts=facts, claims=facts.slot)


def facts_of(record: Record, path: str, digest: str) -> Facts:
    """A record in few words."""
    process, gemms = record.process, record.treatment.gemms
    return Facts(
        path=path,
        sha256=digest,
        phase=record.phase,
        cell=record.cell,
        history=record.history,
        replicate=record.replicate,
        attempt=record.attempt,
        nonce=process.nonce,
        process=(process.boot_id, process.pid, process.started_us),
        containment=process.containment,
        plan=record.plan,
        software=record.software,
        alignment=record.treatment.alignment.sha256,
        grids=(gemms[0].grid, gemms[1].grid),
        symbols=(gemms[0].symbol, gemms[1].symbol),
        surfaces={surface.name: surface.sha256 for surface in record.surfaces},
        trajectory=record.trajectory,
        capture=record.capture,
    )
