"""Records beside what was computed anew: quantity by quantity, as ledger.reexecution says it. Pure."""

from collections.abc import Iterator, Mapping, Sequence

from ledger.record import Record
from ledger.reexecution import Compared, RecordAgain, SourceDifference, SurfaceAgreement
from mechanism.reexecute.compute import LAUNCHED, Outcome, trajectory
from mechanism.reexecute.source import Source
from mechanism.reexecute.treatments import Treatment, alignment_assumptions, treatment_of


def compare_records(
    source: Source, treatments: Sequence[Treatment], outcomes: Mapping[Treatment, Outcome]
) -> tuple[RecordAgain, ...]:
    """Every record that was read, in the lock's order; of a GPU cohort its surfaces alone."""
    places = {treatment: place for place, treatment in enumerate(treatments)}
    rests_on = alignment_assumptions(source)
    found = []
    for path, item in source.records.items():
        treatment = treatment_of(item.record)
        compared = tuple(_compare(source, item.record, outcomes[treatment], rests_on[path]))
        found.append(
            RecordAgain(path=path, sha256=item.sha256, treatment=places[treatment], compared=compared)
        )
    return tuple(found)


def _compare(
    source: Source, record: Record, outcome: Outcome, rests_on: tuple[str, ...]
) -> Iterator[Compared]:
    if outcome.fault:
        return
    names = source.plan.plan.surfaces
    recorded = {f"surfaces.{surface.name}": surface.sha256 for surface in record.surfaces}
    again = {f"surfaces.{name}": outcome.values[f"surfaces.{name}"] for name in names}
    if source.build.evidence == "simulated":
        recorded |= _of_record(record)
        again |= {key: value for key, value in outcome.values.items() if not key.startswith("surfaces.")}
        again |= {
            "trajectory": trajectory(outcome.values, names),
            "assumptions": _listed({*outcome.assumptions, *rests_on}),
        }
    for key in (*again, *(key for key in recorded if key not in again)):
        left, right = recorded.get(key, "none"), again.get(key, "none")
        yield Compared(quantity=key, equal=left == right, recorded=left, recomputed=right)


def _of_record(record: Record) -> dict[str, str]:
    """What a simulated record says beside its surfaces, by the same keys as an Outcome."""
    return {
        **{
            f"treatment.gemms.{gemm.name}.{key}": getattr(gemm, key)
            for gemm in record.treatment.gemms
            for key in LAUNCHED
        },
        "activation.candidate": record.activation.candidate,
        "activation.ambiguous_elements": str(record.activation.ambiguous_elements),
        "trajectory": record.trajectory,
        "assumptions": _listed(set(record.assumptions)),
    }


def _listed(assumptions: set[str]) -> str:
    return ", ".join(sorted(assumptions, key=lambda name: int(name[1:]))) or "none"


def surface_agreement(source: Source, records: Sequence[RecordAgain]) -> tuple[SurfaceAgreement, ...]:
    """Per surface of the plan, on how many of the records compared it is equal."""
    found = []
    for name in source.plan.plan.surfaces:
        held = [
            item.equal for again in records for item in again.compared if item.quantity == f"surfaces.{name}"
        ]
        found.append(SurfaceAgreement(surface=name, equal=sum(held), compared=len(held)))
    return tuple(found)


def source_differences(recorded: Mapping[str, str], here: Mapping[str, str]) -> tuple[SourceDifference, ...]:
    """Files of code whose digest is not the one in build.json, or that one side alone has."""
    return tuple(
        SourceDifference(path=path, recorded=recorded.get(path), here=here.get(path))
        for path in sorted({*recorded, *here})
        if recorded.get(path) != here.get(path)
    )
