"""What a claim cites, and whether the plan has it: arms, phases, surfaces, routes, blocks."""

from collections.abc import Iterator, Mapping

from ledger.claim import (
    Anchored,
    Arm,
    Cardinality,
    Claim,
    Delivered,
    Differs,
    Equal,
    Ledger,
    MembershipEqual,
    MembershipExchanged,
    Mutation,
    Predicate,
    Rejects,
    Repeats,
    ScheduleClass,
    SeparateCohorts,
)
from verifier.arithmetic.rules import Fault
from verifier.found import ArmKey
from verifier.workings import PlanWorkings


def predicates(claim: Claim) -> Iterator[tuple[str, Predicate]]:
    """Every predicate of a claim with its key in the ledger, e.g. `outcome[0]`."""
    for part in ("delivered", "outcome", "control"):
        for place, predicate in enumerate(getattr(claim, part)):
            yield f"{part}[{place}]", predicate


def cited_arms(predicate: Predicate) -> tuple[ArmKey, ...] | None:
    """The arms a predicate names; None if it is about all of them."""
    match predicate:
        case Repeats():
            return tuple((cell, history) for cell in predicate.cells for history in predicate.histories)
        case Equal() | Differs() | MembershipEqual() | MembershipExchanged():
            return _key(predicate.left), _key(predicate.right)
        case ScheduleClass() | Anchored():
            return (_key(predicate.arm),)
        case Delivered():
            return tuple((predicate.cell, history) for history in predicate.histories)
        case Cardinality() | SeparateCohorts():
            return None
        case Rejects():
            return ()


def rests_on(claim: Claim, ledger: Ledger, planned: PlanWorkings) -> frozenset[ArmKey] | None:
    """The arms whose evidence decides a claim; None for all.

    Beyond those it names: what a delivered alignment is compared with, the native ones of its histories and
    their donors; and the targets of the mutations that it says are rejected.
    """
    found: set[ArmKey] = set()
    for _, predicate in predicates(claim):
        arms = cited_arms(predicate)
        if arms is None:
            return None
        found.update(arms)
        if isinstance(predicate, Delivered):
            for arm in arms:
                found.update(_natives(planned, arm))
        if isinstance(predicate, Rejects):
            found.update((m.cell, m.history) for m in ledger.mutations if m.id in predicate.mutations)
    return frozenset(found)


def _natives(planned: PlanWorkings, arm: ArmKey) -> Iterator[ArmKey]:
    """The arms that construct what an arm is compared with."""
    for history in {arm[1], planned.donors.get(arm)}:
        built = planned.constructor(history) if history is not None else None
        if built is not None and history is not None:
            yield built[1], history


def citation_faults(
    ledger: Ledger, planned: PlanWorkings, padded_blocks: int | None
) -> Mapping[str, tuple[Fault, ...]]:
    """Per claim id, what it cites that the plan does not have; mutations count for the claims that cite them.

    `padded_blocks`: None if the routing could not be read; then blocks are not checked.
    """
    arms = frozenset(planned.donors)
    by_mutation = {m.id: tuple(_mutation(m, f"mutations.{m.id}", arms, planned)) for m in ledger.mutations}
    found: dict[str, tuple[Fault, ...]] = {}
    for claim in ledger.claims:
        faults: list[Fault] = []
        for part, predicate in predicates(claim):
            key = f"{claim.id}.{part}"
            faults += _predicate(predicate, key, arms, planned, padded_blocks)
            if isinstance(predicate, Rejects):
                faults += (fault for name in predicate.mutations for fault in by_mutation[name])
        if claim.known_bad is not None:
            faults += _mutation(claim.known_bad, f"{claim.id}.known_bad", arms, planned)
        if faults:
            found[claim.id] = tuple(faults)
    return found


def uncited_mutation_faults(ledger: Ledger, planned: PlanWorkings) -> tuple[Fault, ...]:
    """The same for declared mutations that no claim cites: they are made all the same."""
    arms = frozenset(planned.donors)
    cited = {
        name
        for claim in ledger.claims
        for _, predicate in predicates(claim)
        if isinstance(predicate, Rejects)
        for name in predicate.mutations
    }
    return tuple(
        fault
        for mutation in ledger.mutations
        if mutation.id not in cited
        for fault in _mutation(mutation, f"mutations.{mutation.id}", arms, planned)
    )


def _predicate(
    predicate: Predicate,
    key: str,
    arms: frozenset[ArmKey],
    planned: PlanWorkings,
    padded_blocks: int | None,
) -> Iterator[Fault]:
    for arm in cited_arms(predicate) or ():
        yield from _arm(arm, key, arms)
    plan = planned.plan
    for surface in getattr(predicate, "surfaces", ()):
        if surface not in plan.surfaces:
            yield key, f"a surface of the plan ({', '.join(plan.surfaces)})", surface
    for route in getattr(predicate, "routes", ()):
        if route >= plan.fixture.routes:
            yield key, f"a route below {plan.fixture.routes}", str(route)
    if isinstance(predicate, Cardinality):
        names = [phase.name for phase in plan.phases]
        for phase in predicate.phases:
            if phase.phase not in names:
                yield key, f"a phase of the plan ({', '.join(names)})", phase.phase
    for block in _blocks(predicate):
        if padded_blocks is not None and block >= padded_blocks:
            yield key, f"a padded block below {padded_blocks}", str(block)


def _blocks(predicate: Predicate) -> tuple[int, ...]:
    if isinstance(predicate, ScheduleClass):
        return tuple(block.block for block in predicate.blocks)
    return predicate.blocks if isinstance(predicate, MembershipExchanged) else ()


def _mutation(
    mutation: Mutation, key: str, arms: frozenset[ArmKey], planned: PlanWorkings
) -> Iterator[Fault]:
    yield from _arm((mutation.cell, mutation.history), key, arms)
    if mutation.donor is not None:
        yield from _arm(_key(mutation.donor), key, arms)
    if mutation.replicate > planned.plan.replicates:
        yield key, f"a replicate up to {planned.plan.replicates}", str(mutation.replicate)


def _arm(arm: ArmKey, key: str, arms: frozenset[ArmKey]) -> Iterator[Fault]:
    if arm not in arms:
        cells = sorted({cell for cell, _ in arms})
        if arm[0] not in cells:
            yield key, f"a cell of the plan ({', '.join(cells)})", arm[0]
        else:
            yield key, f"a history under which the plan runs {arm[0]}", arm[1]


def _key(arm: Arm) -> ArmKey:
    return arm.cell, arm.history
