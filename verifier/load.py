"""Reading a bundle: every document typed, every document that cannot be read a finding, none fatal."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

from pydantic import BaseModel

from ledger.bundle import DOCUMENTS, MANIFEST, SUMMARY, BundleFile
from ledger.claim import Ledger
from ledger.plan import Plan
from ledger.record import AlignmentFile, BuildFile, RoutingFile
from verifier.arithmetic.routing import routing_faults
from verifier.arithmetic.rules import plan_faults
from verifier.bundle import Bundle, Documents, Manifest
from verifier.evidence import Evidence, EvidenceError
from verifier.found import Found
from verifier.layout import address_of, kind_of
from verifier.library import Library
from verifier.lockfile import read_lock
from verifier.logs import read_attempts, read_manifest
from verifier.records import Examine, with_records
from verifier.unread import Unread
from verifier.workings import PlanWorkings, Workings

ModelT = TypeVar("ModelT", bound=BaseModel)
DOCUMENTS_READ = (SUMMARY, *DOCUMENTS)


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
    unread = Unread()
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
        alike=None,
        census=None,
        no_records=(),
        examined={},
        twins={},
        attempts=None,
        unread=unread,
        anchor=anchor,
        plan_workings=planned,
        workings=worked,
    )
    bundle = with_records(bundle, examine, unread)
    alignments = _alignments(evidence, library, unread)
    attempts = read_attempts(evidence, library, unread) if log else None
    return replace(bundle, alignments=alignments, attempts=attempts, unread=unread)


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
