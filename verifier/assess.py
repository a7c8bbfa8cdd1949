"""One pass over one bundle: read it, run every check, judge the claims. Bad evidence never raises."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice

from ledger.claim import Level
from ledger.record import Record
from verifier.bundle import Absent, Bundle
from verifier.checks.check import Check, RecordCheck
from verifier.checks.registry import checks
from verifier.evidence import Evidence
from verifier.found import Found, show
from verifier.judge import Judged, Trials, judge_claim
from verifier.library import Library
from verifier.load import load

#: Findings of one check beyond this many are counted, not listed: a hostile bundle may have millions.
MAX_FOUND = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class Assessment:
    """What one pass gave. `skipped` names, per code, what its check lacked."""

    bundle: Bundle
    found: tuple[Found, ...]
    ran: tuple[str, ...]
    skipped: dict[str, str]


def assess(evidence: Evidence, library: Library, *, level: Level, anchor: str | None) -> Assessment:
    """Run every check of a level over a bundle."""
    bundle = load(evidence, library, anchor=anchor)
    found: dict[Found, None] = {}
    skipped: dict[str, str] = {}
    ran: dict[str, None] = {}
    per_record = _record_results(bundle, level)
    for check in checks(level):
        ran[check.code] = None
        for item in _bundle_results(check, bundle) if isinstance(check, Check) else per_record[check.code]:
            if isinstance(item, Found):
                found[item] = None
            else:
                skipped[check.code] = item
    if skipped and not found:  # what was not checked must not pass for good
        lacks = "; ".join(f"{code}: {why}" for code, why in skipped.items())
        found[_broken("nothing", f"checks not carried out: {lacks}")] = None
    return Assessment(bundle=bundle, found=tuple(found), ran=tuple(ran), skipped=skipped)


def first_new(
    evidence: Evidence, library: Library, *, level: Level, anchor: str | None, known: frozenset[Found]
) -> tuple[Found | None, Assessment]:
    """The first finding beyond those known, at no more work than it takes; the assessment holds no others."""
    bundle = load(evidence, library, anchor=anchor)
    per_record = _record_results(bundle, level)
    quick = chain(bundle.unread, *per_record.values())
    slow = (item for one in checks(level) if isinstance(one, Check) for item in _bundle_results(one, bundle))
    new = (item for item in chain(quick, slow) if isinstance(item, Found) and item not in known)
    found = next(new, None)
    return found, Assessment(bundle=bundle, found=tuple(known), ran=(), skipped={})


def judge_all(
    assessment: Assessment, *, level: Level, trials: Trials | None, only: frozenset[str] | None = None
) -> tuple[Judged, ...]:
    """The verdicts on the ledger's claims, or on some of them; none if the ledger could not be read."""
    ledger = assessment.bundle.documents.ledger
    if ledger is None:
        return ()
    return tuple(
        judge_claim(claim, assessment.bundle, assessment.found, level=level, trials=trials)
        for claim in ledger.claims
        if only is None or claim.id in only
    )


def _bundle_results(check: Check, bundle: Bundle) -> tuple[Found | str, ...]:
    """Findings of one bundle check; kept if they depend on the frozen documents alone."""
    make = partial(_all, check, bundle)
    return bundle.library.once((check.code, _frozen(bundle)), make) if check.frozen_only else make()


def _all(check: Check, bundle: Bundle) -> tuple[Found | str, ...]:
    return tuple(_guarded(check, bundle))


def _frozen(bundle: Bundle) -> tuple[str | None, ...]:
    """What identifies the documents that no mutation touches."""
    names = ("plan.yaml", "plan.lock", "ledger.yaml", "build.json", "routing.json")
    return tuple(bundle.digests.get(name) for name in names)


def _record_results(bundle: Bundle, level: Level) -> dict[str, list[Found | str]]:
    """Findings of the record checks by code; kept per record: they depend on it and on the frozen files."""
    chosen = [check for check in checks(level) if isinstance(check, RecordCheck)]
    frozen = _frozen(bundle)
    results: dict[str, list[Found | str]] = {check.code: [] for check in chosen}
    for item in bundle.records:
        if item.record is None:
            continue
        key = ("record checks", item.path, item.sha256, frozen)
        found = bundle.library.once(key, partial(_check_record, chosen, bundle, item.record))
        for code, one in found:
            if len(results[code]) < MAX_FOUND:
                results[code].append(one)
    return results


def record_findings(bundle: Bundle, record: Record, level: Level) -> Iterator[Found]:
    """What the record checks of a level find in one record."""
    chosen = [check for check in checks(level) if isinstance(check, RecordCheck)]
    return (item for _, item in _check_record(chosen, bundle, record) if isinstance(item, Found))


def _check_record(
    chosen: list[RecordCheck], bundle: Bundle, record: Record
) -> tuple[tuple[str, Found | str], ...]:
    return tuple((check.code, item) for check in chosen for item in _guarded(check, bundle, record))


def _guarded(
    check: Check | RecordCheck, bundle: Bundle, record: Record | None = None
) -> Iterator[Found | str]:
    """A check's findings; what it lacked, as text, if it could not be carried out.

    The one broad `except`: a check that fails on evidence nobody thought of is a finding, never a pass and
    never a traceback.
    """
    try:
        if isinstance(check, Check):
            results = check.run(bundle)
        elif record is not None:
            results = check.run(bundle, record)
        else:
            return
        yield from islice(results, MAX_FOUND)
        if rest := sum(1 for _ in results):
            yield Found(code=check.code, file=".", expected="none", got=f"{rest} more findings of this kind")
    except Absent as absent:
        yield f"needs {absent}"
    except Exception as fault:  # noqa: BLE001 - see above
        where = record.path if record is not None else "."
        yield _broken(check.code, f"{type(fault).__name__}: {show(str(fault))}", where)


def _broken(code: str, got: str, where: str = ".") -> Found:
    return Found(code="V999", file=where, expected=f"a check of {code} that can be carried out", got=got)
