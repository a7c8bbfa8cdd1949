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
from verifier.records import MAX_FOUND, Results, frozen
from verifier.store.disk import NoRoomError


@dataclass(frozen=True, kw_only=True, slots=True)
class Assessment:
    """What one pass gave. `skipped` names, per code, what its check lacked."""

    bundle: Bundle
    found: tuple[Found, ...]
    ran: tuple[str, ...]
    skipped: dict[str, str]


def assess(evidence: Evidence, library: Library, *, level: Level, anchor: str | None) -> Assessment:
    """Run every check of a level over a bundle."""
    bundle = load(evidence, library, anchor=anchor, examine=_examine)
    found: dict[Found, None] = {}
    skipped: dict[str, str] = {}
    ran: dict[str, None] = {}
    for check in checks(level):
        ran[check.code] = None
        for item in _results(check, bundle):
            if isinstance(item, Found):
                found[item] = None
            else:
                skipped[check.code] = item
    if skipped and not found:  # what was not checked must not pass for good
        lacks = "; ".join(f"{code}: {why}" for code, why in skipped.items())
        found[_broken("nothing", f"checks not carried out: {lacks}")] = None
    return Assessment(bundle=bundle, found=tuple(found), ran=tuple(ran), skipped=skipped)


def first_of(
    code: str,
    evidence: Evidence,
    library: Library,
    *,
    level: Level,
    anchor: str | None,
    known: frozenset[Found],
) -> Found | None:
    """The first finding with one code beyond those known, by the checks of this code alone.

    It is the one that `assess` would give first: the same checks over the same bundle, in the same order.
    Read without the attempts log; what that would have added to a check comes last, or keeps it from being
    carried out at all. So None may mean that only a whole pass can tell.
    """
    bundle = load(evidence, library, anchor=anchor, examine=_examine, log=False)
    found = (item for check in checks(level) if check.code == code for item in _results(check, bundle))
    return next((item for item in found if isinstance(item, Found) and item not in known), None)


def first_new(
    evidence: Evidence, library: Library, *, level: Level, anchor: str | None, known: frozenset[Found]
) -> tuple[Found | None, Assessment]:
    """The first finding beyond those known, at no more work than it takes; the assessment holds no others."""
    bundle = load(evidence, library, anchor=anchor, examine=_examine)
    quick = chain(bundle.unread, *bundle.examined.values())
    slow = (item for one in checks(level) if isinstance(one, Check) for item in _results(one, bundle))
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


def _results(check: Check | RecordCheck, bundle: Bundle) -> tuple[Found | str, ...]:
    """Findings of one check; kept if they depend on the frozen documents alone."""
    if isinstance(check, RecordCheck):
        return bundle.examined.get(check.code, ())
    make = partial(_all, check, bundle)
    return bundle.library.once((check.code, frozen(bundle)), make) if check.frozen_only else make()


def _all(check: Check, bundle: Bundle) -> tuple[Found | str, ...]:
    return tuple(_guarded(check, bundle))


def record_findings(bundle: Bundle, record: Record) -> Iterator[Found]:
    """What the record checks find in one record."""
    return (item for _, item in _examine(bundle, record) if isinstance(item, Found))


def _examine(bundle: Bundle, record: Record) -> Results:
    """The record checks, which are the same at every level."""
    return tuple(
        (check.code, item)
        for check in checks("records")
        if isinstance(check, RecordCheck)
        for item in _guarded(check, bundle, record)
    )


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
    except NoRoomError:
        raise  # says nothing of the evidence
    except Exception as fault:  # noqa: BLE001 - see above
        where = record.path if record is not None else "."
        yield _broken(check.code, f"{type(fault).__name__}: {show(str(fault))}", where)


def _broken(code: str, got: str, where: str = ".") -> Found:
    return Found(code="V999", file=where, expected=f"a check of {code} that can be carried out", got=got)
