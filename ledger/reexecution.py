"""What `mechanism reexecute` answers: a cohort's records beside what the simulated engine makes of them anew.

Simulated from end to end: for a simulated cohort it is the very computation, done again; for a GPU cohort it
is a model held beside a measurement, and never evidence of that cohort.
"""

from typing import Annotated, Literal, TypeVar

from pydantic import Field, StringConstraints, model_validator

from ledger.bundle import BundlePath
from ledger.model import Count, Frozen, Name, Positive, Sha256, Text
from ledger.plan import EngineName, Surface
from ledger.record import Evidence

T = TypeVar("T", "FixtureAgain", "Compared", "Reexecution")

#: What is compared of a record, by its key there.
Quantity = Annotated[str, StringConstraints(pattern=r"^[a-z0-9_]+(\.[a-z0-9_]+)*$", max_length=80)]


class Cohort(Frozen):
    """Whose records were compared, by what its bundle says of itself."""

    name: Name
    engine: EngineName
    evidence: Evidence
    plan: Sha256
    software: Sha256


class FixtureAgain(Frozen):
    """The fixture that the lock froze, and the one that the plan's recipe gives here."""

    recorded: Sha256
    rebuilt: Sha256
    equal: bool

    @model_validator(mode="after")
    def _told_right(self) -> "FixtureAgain":
        return _held(self, equal=self.recorded == self.rebuilt)


class SourceDifference(Frozen):
    """A file of code that is another here than in build.json; null where one side has no such file."""

    path: str
    recorded: Sha256 | None
    here: Sha256 | None


class Recomputed(Frozen):
    """One distinct treatment: an alignment and the CTAs of w13 and w2.

    `fault` says why there is no result: the alignment cannot be read, or is none of this routing.
    """

    alignment: Sha256
    grids: tuple[Positive, Positive]
    records: Positive
    fault: Text | None


class Compared(Frozen):
    """One quantity of one record. Values are digests, counts or lists, as text."""

    quantity: Quantity
    equal: bool
    recorded: str
    recomputed: str

    @model_validator(mode="after")
    def _told_right(self) -> "Compared":
        return _held(self, equal=self.recorded == self.recomputed)


class RecordAgain(Frozen):
    """One record, by the sha256 of its bytes; `treatment` counts in `treatments`, from 0.

    Nothing is compared if its treatment has no result.
    """

    path: BundlePath
    sha256: Sha256
    treatment: Count
    compared: tuple[Compared, ...]


class Unread(Frozen):
    """A process of the lock without a record that could be compared, and why."""

    path: BundlePath
    reason: Text


class SurfaceAgreement(Frozen):
    """On how many records a surface is equal, of how many compared."""

    surface: Surface
    equal: Count
    compared: Count


class Reexecution(Frozen):
    """The whole answer: one JSON object. `equal`: everything was compared, and all of it is equal.

    `kind`: `re-execution` of a simulated cohort; `agreement` of the simulated engine with a GPU cohort, of
    which surfaces alone are compared.
    """

    schema_version: Literal[1]
    kind: Literal["re-execution", "agreement"]
    computed: Literal["simulated"]
    arithmetic: Text
    cohort: Cohort
    fixture: FixtureAgain
    source: tuple[SourceDifference, ...]
    treatments: tuple[Recomputed, ...]
    records: tuple[RecordAgain, ...]
    unread: tuple[Unread, ...]
    surfaces: Annotated[tuple[SurfaceAgreement, ...], Field(min_length=1)]
    equal: bool

    @model_validator(mode="after")
    def _told_right(self) -> "Reexecution":
        kind = "re-execution" if self.cohort.evidence == "simulated" else "agreement"
        if self.kind != kind:
            raise ValueError(f"expected kind {kind} for a {self.cohort.evidence} cohort, got {self.kind}")
        if beyond := [again.path for again in self.records if again.treatment >= len(self.treatments)]:
            raise ValueError(f"expected a treatment of each record, got none of {beyond[0]}")
        equal = (
            self.fixture.equal
            and bool(self.records)
            and not self.unread
            and all(again.compared for again in self.records)
            and all(item.equal for again in self.records for item in again.compared)
        )
        return _held(self, equal=equal)


def _held(value: T, *, equal: bool) -> T:
    """The value, if it says of itself what follows from it."""
    if value.equal != equal:
        raise ValueError(f"expected equal: {str(equal).lower()}, which follows from the rest, got the other")
    return value
