"""Every mutant tried, as it is and with a forger's help; counted by class, and whatever survives is named."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain

from ledger.claim import Level
from verifier.assess import Assessment, first_new, judge_all
from verifier.evidence import Evidence, OverlayEvidence
from verifier.found import Found
from verifier.library import Library
from verifier.sweep.files import file_mutants
from verifier.sweep.forged import forged, plain
from verifier.sweep.identities import identity_mutants
from verifier.sweep.leaves import leaf_mutants
from verifier.sweep.mutant import Mutant
from verifier.sweep.quick import quick
from verifier.unchecked import by_right

#: Whether anybody made the rest fit.
STANCES = ("as it is", "forged")


@dataclass(frozen=True, kw_only=True, slots=True)
class Survivor:
    """A change that nothing caught; `reason` says why that is right, if the table does."""

    mutant: Mutant
    stance: str
    reason: str | None


@dataclass(kw_only=True, slots=True)
class Survey:
    """What became of all mutants: caught and tried by (class, stance), and the survivors."""

    caught: Counter[tuple[str, str]] = field(default_factory=Counter)
    tried: Counter[tuple[str, str]] = field(default_factory=Counter)
    codes: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    survivors: list[Survivor] = field(default_factory=list)

    @property
    def wrong(self) -> list[Survivor]:
        """Survivors that the table does not argue for."""
        return [item for item in self.survivors if item.reason is None]


def sweep(base: Assessment, library: Library, *, level: Level, every: int = 1) -> Survey:
    """Try the mutants of an assessed bundle, or one in `every` of each class. The bundle is not touched."""
    known = frozenset(base.found)
    verdicts = {one.claim.id: one.verdict for one in judge_all(base, level=level, trials=None)}
    survey = Survey()
    for mutant in _thinned(_mutants(base), every):
        made = (plain(base.bundle, mutant), forged(base.bundle, mutant))
        for stance, evidence in zip(STANCES, made, strict=True):
            if evidence is None or not _is_other(base.bundle.evidence, evidence):
                continue
            survey.tried[mutant.kind, stance] += 1
            code = _caught(evidence, library, level, base, known, verdicts)
            if code is not None:
                survey.caught[mutant.kind, stance] += 1
                survey.codes[stance][code] += 1
            else:
                reason = by_right(mutant.place)
                survey.survivors.append(Survivor(mutant=mutant, stance=stance, reason=reason))
    return survey


def _mutants(base: Assessment) -> Iterator[Mutant]:
    evidence = base.bundle.evidence
    return chain(file_mutants(evidence), identity_mutants(base.bundle), leaf_mutants(evidence))


def _thinned(mutants: Iterable[Mutant], every: int) -> Iterator[Mutant]:
    seen: Counter[str] = Counter()
    for mutant in mutants:
        seen[mutant.kind] += 1
        if seen[mutant.kind] % every == 1 % every:
            yield mutant


def _is_other(base: Evidence, evidence: Evidence) -> bool:
    """Whether a change made another bundle at all."""
    if base.entries.keys() != evidence.entries.keys():
        return True
    return any(base.digest(path) != evidence.digest(path) for path in getattr(evidence, "changed", ()))


def _caught(
    evidence: OverlayEvidence,
    library: Library,
    level: Level,
    base: Assessment,
    known: frozenset[Found],
    verdicts: Mapping[str, str],
) -> str | None:
    """The code of a finding that the good bundle lacks, or `verdict` if a claim is judged otherwise."""
    if (sooner := quick(base.bundle, evidence, library, known=known)) is not None:
        return sooner.code
    found, assessment = first_new(evidence, library, level=level, anchor=base.bundle.anchor, known=known)
    if found is not None:
        return found.code
    judged = {one.claim.id: one.verdict for one in judge_all(assessment, level=level, trials=None)}
    return None if judged == verdicts else "verdict"


def told(survey: Survey) -> Iterator[str]:
    """The survey as lines: caught / tried per class, then survivors, those without a reason last."""
    for kind, stance in sorted(survey.tried):
        yield f"{kind}, {stance}: {survey.caught[kind, stance]} / {survey.tried[kind, stance]}"
    reasons: dict[tuple[str, str], int] = Counter(
        (item.mutant.place, item.reason) for item in survey.survivors if item.reason is not None
    )
    yield f"survive by right: {sum(reasons.values())}"
    for (place, reason), count in sorted(reasons.items()):
        yield f"  {place} ({count}): {reason}"
    yield f"survive without a reason: {len(survey.wrong)}"
    for item in survey.wrong[:200]:
        yield f"  {item.mutant.kind}, {item.stance}: {item.mutant.what}"
