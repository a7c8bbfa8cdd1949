"""The files under records/, read one by one: of each its facts stay, and what its checks found in it.

The records of a bundle with some files laid over it are those of the bundle below, but for these files.
"""

from array import array
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import repeat
from typing import Any

from ledger.plan import Surface
from ledger.record import CapturedSurface, Record
from verifier.bundle import Bundle, Facts, Unreadable
from verifier.census import Census, identity, taken
from verifier.evidence import EvidenceError, OverlayEvidence
from verifier.found import Found
from verifier.kept import MODELS, Codec, Kept
from verifier.layout import Slot, kind_of, slot_in_name
from verifier.library import Library
from verifier.store import disk
from verifier.store.rows import Patched, Picked, Rows
from verifier.store.table import Table, hashed
from verifier.unread import MAX_FAULTS, Unread

#: What the checks of one record found in it, each with its code; text for what a check lacked.
Results = tuple[tuple[str, Found | str], ...]
#: The checks of one record, against the documents of its bundle: no other record is there to be looked at.
Examine = Callable[[Bundle, Record], Results]

#: Results of one check beyond this many are dropped: a hostile bundle may have millions.
MAX_FOUND = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class Read:
    """One file under records/: what it is, what is wrong with it as a document, what its checks found."""

    what: Kept
    faults: tuple[Found, ...]
    results: Results


@dataclass(frozen=True, kw_only=True, slots=True)
class Reads:
    """All files under records/, in the bundle's order, and the remarks on some of them, by their places."""

    items: Sequence[Kept]
    remarks: Mapping[int, Read]
    more: Mapping[Found, int]
    models: "array[int] | None"
    census: Census | None


def with_records(bundle: Bundle, examine: Examine, unread: Unread) -> Bundle:
    """The bundle with the facts of every file under records/, and the cells that more than one claims.

    Where two files claim one cell, neither is judged by its content: which is the record cannot be told.
    """
    reads = _reads(bundle, examine)
    twins, ambiguous, odd = _twins(reads.items) if reads.census is None else ({}, set(), array("I"))
    examined: dict[str, list[Found | str]] = defaultdict(list)
    for place, read in reads.remarks.items():
        if place in ambiguous:
            continue
        unread += read.faults
        for code, result in read.results:
            if len(examined[code]) < MAX_FOUND:
                examined[code].append(result)
    for found, times in reads.more.items():
        unread.extend(repeat(found, times))
    return replace(
        bundle,
        facts=_facts(reads.items, ambiguous, odd),
        alike=None if ambiguous or reads.models is None else Picked(reads.items, reads.models),
        census=reads.census,
        no_records=_some(reads.items, (place for place in odd if place not in ambiguous)),
        twins=twins,
        examined={code: tuple(results) for code, results in examined.items()},
    )


def _facts(items: Sequence[Kept], ambiguous: set[int], odd: "array[int]") -> Sequence[Facts]:
    if not odd and not ambiguous:
        return items if len(items) > disk.MANY else tuple(items)  # type: ignore[arg-type,return-value]
    left_out = {*ambiguous, *odd}
    return _some(items, (place for place in range(len(items)) if place not in left_out))


def _some(items: Sequence[Kept], places: Iterable[int]) -> Sequence[Any]:
    picked: Picked[Any] = Picked(items, array("I", places))
    return picked if len(items) > disk.MANY else tuple(picked)


def _twins(items: Sequence[Kept]) -> tuple[dict[Slot, tuple[str, ...]], set[int], "array[int]"]:
    """The cells that several files claim, with their paths; the places of these, and of what is no record."""
    claimed, odd = Table(), array("I")
    again: dict[int, list[int]] = defaultdict(list)
    for place, what in enumerate(items):
        if isinstance(what, Facts):
            slot: Slot | None = what.slot
        else:
            odd.append(place)
            slot = what.claims
        if slot is not None and (first := claimed.first(hashed(slot), place + 1)):
            again[first - 1].append(place)
    groups = {first: (first, *again[first]) for first in sorted(again)}
    twins = {_claims(items[first]): tuple(items[p].path for p in places) for first, places in groups.items()}
    return twins, {place for places in groups.values() for place in places}, odd


def _claims(what: Kept) -> Slot:
    """Which process a file claims to be, one that claims some."""
    slot = what.slot if isinstance(what, Facts) else what.claims
    return slot or ("", "", "", 0)


def _reads(bundle: Bundle, examine: Examine) -> Reads:
    """What lies under records/. Of many files the first reading is kept, for bundles laid over these."""
    library, evidence = bundle.library, bundle.evidence
    key = library.once(("frozen", examine, frozen(bundle)), object)
    if isinstance(evidence, OverlayEvidence):
        base, below = library.below.get(key, (None, None))
        if below is not None and base is evidence.base:
            return _laid_over(bundle, evidence, below, examine)
    remarks = _Remarks()
    many = len(evidence.entries) > disk.MANY

    def kept() -> Iterator[Kept]:
        paths = (
            p for p, entry in evidence.entries.items() if entry.kind == "file" and kind_of(p) == "record"
        )
        for place, path in enumerate(paths):
            read = _examined(bundle, path, examine) if many else _read(bundle, path, examine, key)
            remarks.add(place, read)
            yield read.what

    codec = Codec()
    items: Rows[Kept] = Rows(kept(), codec.pack, codec.unpack)
    census = taken(items, bundle.plan_workings) if items.many else None
    models = codec.models if items.many else None
    reads = Reads(items=items, remarks=remarks.kept, more=remarks.more, models=models, census=census)
    if items.many and not isinstance(evidence, OverlayEvidence):
        library.below[key] = (evidence, reads)
    return reads


class _Remarks:
    """What is remarked on records, by their places: of each code the first findings, and how many more."""

    def __init__(self) -> None:
        self.kept: dict[int, Read] = {}
        self.more: Counter[Found] = Counter()
        self._count: Counter[str] = Counter()
        self._last: dict[str, Found] = {}

    def add(self, place: int, read: Read) -> None:
        """Keep what was found in a file, or count it."""
        if not read.faults and not read.results:
            return
        codes = [*(fault.code for fault in read.faults), *(code for code, _ in read.results)]
        if any(self._count[code] <= MAX_FAULTS for code in codes):
            self.kept[place] = read
            self._last |= {fault.code: fault for fault in read.faults}
        else:
            self.more.update(self._last[fault.code] for fault in read.faults)
        self._count.update(codes)


def _laid_over(bundle: Bundle, evidence: OverlayEvidence, below: Reads, examine: Examine) -> Reads:
    """The records below with those that were changed read anew, and those that were removed left out."""
    items = below.items
    replaced: dict[int, Read] = {}
    dropped: list[int] = []
    added: list[Read] = []
    for path in (*evidence.changed, *(evidence.removed - evidence.changed.keys())):
        if kind_of(path) != "record":
            continue
        place = bisect_left(items, path, key=lambda item: item.path)
        there = place < len(items) and items[place].path == path
        if there and path in evidence.removed:
            dropped.append(place)
        if path in evidence.changed:
            read = _examined(bundle, path, examine)
            if there and path not in evidence.removed:
                replaced[place] = read
            else:
                added.append(read)
    dropped.sort()
    remarks: dict[int, Read] = {
        place: read for place, read in below.remarks.items() if place not in replaced and place not in dropped
    }
    remarks |= {place: read for place, read in replaced.items() if read.faults or read.results}
    moved = {place - bisect_left(dropped, place): read for place, read in sorted(remarks.items(), key=_place)}
    moved |= dict(enumerate(added, start=len(items) - len(dropped)))
    return Reads(
        items=Patched(
            items, {p: read.what for p, read in replaced.items()}, dropped, [read.what for read in added]
        ),
        remarks=moved,
        more=below.more,
        models=_models(below, replaced, dropped, added),
        census=None if dropped or added or not _same(below, replaced) else below.census,
    )


def _models(
    below: Reads, replaced: Mapping[int, Read], dropped: list[int], added: list[Read]
) -> "array[int] | None":
    """As `Codec.models`: of every kind some are left."""
    if below.models is None or len(replaced) + len(dropped) >= MODELS:
        return None
    kept = {place for place in below.models if place not in dropped} | replaced.keys()
    last = len(below.items) - len(dropped)
    places = sorted(place - bisect_left(dropped, place) for place in kept)
    return array("I", [*places, *range(last, last + len(added))])


def _same(below: Reads, replaced: Mapping[int, Read]) -> bool:
    """Whether the records that were changed say of themselves who they are as they did before."""
    return all(identity(below.items[place]) == identity(read.what) for place, read in replaced.items())


def _place(item: tuple[int, object]) -> int:
    return item[0]


def _read(bundle: Bundle, path: str, examine: Examine, frozen_key: object) -> Read:
    """One file under records/; what equal bytes gave under equal documents is not worked out again."""
    try:
        digest = bundle.evidence.digest(path)
    except EvidenceError:
        return _examined(bundle, path, examine)
    return bundle.library.once((path, digest, frozen_key), partial(_examined, bundle, path, examine))


def _examined(bundle: Bundle, path: str, examine: Examine) -> Read:
    faults: list[Found] = []
    record, digest = bundle.library.passing(bundle.evidence, path, Record, faults)
    if record is None:
        return Read(what=Unreadable(path, slot_in_name(path)), faults=tuple(faults), results=())
    return Read(
        what=facts_of(record, path, digest, bundle.library),
        faults=tuple(faults),
        results=examine(bundle, record),
    )


def frozen(bundle: Bundle) -> tuple[str | None, ...]:
    """What identifies the documents that records are held against, and that no mutation touches."""
    names = ("plan.yaml", "plan.lock", "ledger.yaml", "build.json", "routing.json")
    return tuple(bundle.digests.get(name) for name in names)


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
