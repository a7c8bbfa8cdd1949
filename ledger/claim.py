"""The claim ledger: claims as data, each with typed predicates that a run could refute.

A claim is frozen with its plan; only verdicts are computed, never stored in it.
"""

from collections.abc import Iterator
from typing import Annotated, Literal, Protocol, TypeVar

from pydantic import Field, StringConstraints, model_validator

from ledger.fault import Path
from ledger.model import Assumptions, Count, Frozen, Name, PlacedError, Positive, Sha256, Text
from ledger.plan import Gemm, Route, Surface

Histories = Annotated[tuple[Name, ...], Field(min_length=1)]
Surfaces = Annotated[tuple[Surface, ...], Field(min_length=1)]
Code = Annotated[str, StringConstraints(pattern=r"^V[0-9]{3}$")]
Level = Literal["records", "raw", "reexecute"]


class Arm(Frozen):
    """All processes of one cell under one history."""

    cell: Name
    history: Name


class _Sides(Protocol):
    left: Arm
    right: Arm


SidesT = TypeVar("SidesT", bound=_Sides)


def _two_arms(compared: SidesT) -> SidesT:
    """One arm compared with itself would say nothing."""
    if compared.left == compared.right:
        arm = compared.left
        raise PlacedError(
            (
                ("right",),
                f"expected two arms to compare, got {arm.cell} under {arm.history} twice; name another here",
            )
        )
    return compared


class Repeats(Frozen):
    """In every (cell, history), all replicates have the same bytes on every surface; two at least."""

    kind: Literal["repeats"]
    cells: Annotated[tuple[Name, ...], Field(min_length=1)]
    histories: Histories
    surfaces: Surfaces


class Equal(Frozen):
    """Every process of both arms has the same bytes on every surface listed."""

    kind: Literal["equal"]
    left: Arm
    right: Arm
    surfaces: Surfaces

    _two = model_validator(mode="after")(_two_arms)


class Differs(Frozen):
    """On every surface listed, every process of the left arm differs from every one of the right."""

    kind: Literal["differs"]
    left: Arm
    right: Arm
    surfaces: Surfaces

    _two = model_validator(mode="after")(_two_arms)


class MembershipEqual(Frozen):
    """The delivered alignments put the same set of routes into every padded block."""

    kind: Literal["membership-equal"]
    left: Arm
    right: Arm

    _two = model_validator(mode="after")(_two_arms)


class MembershipExchanged(Frozen):
    """The right arm's membership is the left's with two routes exchanged between the two blocks named."""

    kind: Literal["membership-exchanged"]
    left: Arm
    right: Arm
    routes: tuple[Route, Route]
    blocks: tuple[Count, Count]

    _two = model_validator(mode="after")(_two_arms)


class BlockClass(Frozen):
    """The schedule class of one padded block over all column tiles; `mixed` holds both."""

    block: Count
    is_: Literal["direct", "split", "mixed"] = Field(alias="class")


class ScheduleClass(Frozen):
    """Classes of padded blocks under the launch that the arm received, and whether their slice lists agree.

    Slice lists are compared column tile by column tile as ranges of k, whichever CTA owns them.
    """

    kind: Literal["schedule-class"]
    arm: Arm
    gemm: Gemm
    blocks: Annotated[tuple[BlockClass, ...], Field(min_length=1)]
    slice_lists: Literal["equal", "differ"]


class Delivered(Frozen):
    """The treatment arrived in every process of a cell.

    `alignment` is how it was to be built or injected; `grid` the CTAs of both GEMMs (`pinned` or a number);
    `differs_from_native`: the injected bytes are not the history's own native ones; `memberships`: whether
    they differ between the histories of this cell.
    """

    kind: Literal["delivered"]
    cell: Name
    histories: Histories
    alignment: Literal["constructed", "own", "opposite", "stable"]
    grid: Literal["pinned"] | Positive
    differs_from_native: bool
    memberships: Literal["differ", "equal"]


class PhaseCount(Frozen):
    """How many valid processes a phase has."""

    phase: Name
    processes: Positive


class Cardinality(Frozen):
    """The number of valid cold processes, in all and by phase, no two of them the same process."""

    kind: Literal["cardinality"]
    processes: Positive
    phases: Annotated[tuple[PhaseCount, ...], Field(min_length=1)]


class SeparateCohorts(Frozen):
    """All processes share one plan and one build identity; no record of another cohort is among them."""

    kind: Literal["separate-cohorts"]


class Anchored(Frozen):
    """Every process of the arm has the trajectory that another cohort recorded, on the same fixture.

    An anchor that two cohorts share: `plan` and `cell` say which processes of the other one. The records of
    the two are never mixed; this digest is all that passes between them.
    """

    kind: Literal["anchored"]
    arm: Arm
    trajectory: Sha256
    fixture: Sha256
    plan: Sha256
    cell: Name


class Rejects(Frozen):
    """The mutations named (ids of this ledger) are each rejected with the code they declare."""

    kind: Literal["rejects"]
    mutations: Annotated[tuple[Name, ...], Field(min_length=1)]


Predicate = Annotated[
    Repeats
    | Equal
    | Differs
    | MembershipEqual
    | MembershipExchanged
    | ScheduleClass
    | Delivered
    | Cardinality
    | SeparateCohorts
    | Anchored
    | Rejects,
    Field(discriminator="kind"),
]

Operation = Literal[
    "route-duplicated",
    "route-moved",
    "marker-removed",
    "marker-reordered",
    "surface-digest",
    "tensor-bit",
    "software-identity",
    "surfaces-replaced",
]


class Mutation(Frozen):
    """Bad evidence made from good: an operation on one record, refused with `code` at `level`.

    `surfaces-replaced` gives the record the surfaces of `donor`; the other operations need none. After every
    operation but `surface-digest` on the record itself the manifest is made to fit again, as a forger would.
    """

    operation: Operation
    cell: Name
    history: Name
    replicate: Positive
    donor: Arm | None = None
    level: Literal["records", "raw"]
    code: Code

    @model_validator(mode="after")
    def _donor_where_needed(self) -> "Mutation":
        if self.operation == "surfaces-replaced" and self.donor is None:
            raise PlacedError(
                (
                    ("operation",),
                    "expected a donor with surfaces-replaced, found none; add one, as"
                    " `donor: {cell: ..., history: ...}`",
                )
            )
        if self.operation != "surfaces-replaced" and self.donor is not None:
            raise PlacedError(
                (
                    ("donor",),
                    f"expected no donor with {self.operation}, got one; take it out, or say"
                    " surfaces-replaced",
                )
            )
        return self


class DeclaredMutation(Mutation):
    """One of the mutations that the verifier must reject, by id."""

    id: Name


class Claim(Frozen):
    """One sentence that a run could refute, with all that decides it.

    `kind: causal` needs all four: a treatment delivered, an outcome, a control that stayed, and a known-bad.
    `in_simulation: follows-from-model` marks what a simulator cannot help but show.
    """

    id: Annotated[str, StringConstraints(pattern=r"^C[0-9]{2}$")]
    statement: Text
    scope: Text
    kind: Literal["causal", "structural"]
    assumptions: Assumptions
    in_simulation: Literal["measured", "follows-from-model"]
    delivered: tuple[Predicate, ...]
    outcome: Annotated[tuple[Predicate, ...], Field(min_length=1)]
    control: tuple[Predicate, ...]
    known_bad: Mutation | None

    @model_validator(mode="after")
    def _causal_needs_all_four(self) -> "Claim":
        if self.kind == "causal":
            lacking = [
                name
                for name, value in (
                    ("delivered", self.delivered),
                    ("control", self.control),
                    ("known_bad", self.known_bad),
                )
                if not value
            ]
            if lacking:
                raise PlacedError(
                    (
                        ("kind",),
                        "expected delivered, control and known_bad in a causal claim, got none in"
                        f" {', '.join(lacking)}; add what is lacking, or call the claim structural",
                    )
                )
        return self


class Ledger(Frozen):
    """A claim ledger. Its identity is the sha256 of the file's bytes."""

    schema_version: Literal[1]
    name: Name
    title: Text
    claims: Annotated[tuple[Claim, ...], Field(min_length=1)]
    non_claims: Annotated[tuple[Text, ...], Field(min_length=1)]
    mutations: Annotated[tuple[DeclaredMutation, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _ids_once(self) -> "Ledger":
        faults: list[tuple[Path, str]] = [
            ((key, place, "id"), f"expected each {what} id once, got {ids[place]} again; give it another")
            for what, key, ids in (
                ("claim", "claims", [c.id for c in self.claims]),
                ("mutation", "mutations", [m.id for m in self.mutations]),
            )
            for place in range(len(ids))
            if ids[place] in ids[:place]
        ]
        faults += self._undeclared()
        if faults:
            raise PlacedError(*faults)
        return self

    def _undeclared(self) -> Iterator[tuple[Path, str]]:
        known = dict.fromkeys(mutation.id for mutation in self.mutations)
        for c, claim in enumerate(self.claims):
            for part in ("delivered", "outcome", "control"):
                for p, predicate in enumerate(getattr(claim, part)):
                    cited = predicate.mutations if isinstance(predicate, Rejects) else ()
                    for place, name in enumerate(cited):
                        if name not in known:
                            yield (
                                ("claims", c, part, p, "mutations", place),
                                f"{claim.id}: expected mutations that are declared ({', '.join(known)}), got"
                                f" {name}; declare it under `mutations`, or leave it out here",
                            )
