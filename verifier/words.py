"""Predicates and mutations in words, as the report prints them."""

from ledger.claim import (
    Anchored,
    Arm,
    Cardinality,
    Delivered,
    Differs,
    Equal,
    MembershipEqual,
    MembershipExchanged,
    Mutation,
    Predicate,
    Rejects,
    Repeats,
    ScheduleClass,
    SeparateCohorts,
)


def predicate_words(predicate: Predicate) -> str:
    """One predicate as one line."""
    if isinstance(predicate, Equal | Differs):
        verb = "equals" if isinstance(predicate, Equal) else "differs from"
        surfaces = ", ".join(predicate.surfaces)
        return f"{_arm(predicate.left)} {verb} {_arm(predicate.right)} on {surfaces}"
    if isinstance(predicate, MembershipEqual | MembershipExchanged):
        return f"{_arm(predicate.right)} has the membership of {_arm(predicate.left)}{_exchange(predicate)}"
    match predicate:
        case Repeats():
            cells, histories = ", ".join(predicate.cells), ", ".join(predicate.histories)
            return f"{cells} under {histories} repeat on {', '.join(predicate.surfaces)}"
        case ScheduleClass():
            blocks = ", ".join(f"block {item.block} {item.is_}" for item in predicate.blocks)
            return f"{_arm(predicate.arm)} at {predicate.gemm}: {blocks}, slice lists {predicate.slice_lists}"
        case Delivered():
            return _delivered(predicate)
    return _whole_bundle(predicate)


def _exchange(predicate: MembershipEqual | MembershipExchanged) -> str:
    if isinstance(predicate, MembershipEqual):
        return ""
    (a, b), (first, second) = predicate.routes, predicate.blocks
    return f" with routes {a} and {b} exchanged between padded blocks {first} and {second}"


def _delivered(predicate: Delivered) -> str:
    native = "not the native bytes" if predicate.differs_from_native else "the native bytes"
    return (
        f"{predicate.cell} under {', '.join(predicate.histories)}: alignment {predicate.alignment}, {native},"
        f" grid {predicate.grid}, memberships {predicate.memberships}"
    )


def _whole_bundle(predicate: Anchored | Cardinality | SeparateCohorts | Rejects) -> str:
    match predicate:
        case Anchored():
            other = f"{predicate.cell} in plan {predicate.plan}"
            return f"{_arm(predicate.arm)} has trajectory {predicate.trajectory}, that of {other}"
        case Cardinality():
            phases = ", ".join(f"{item.phase} {item.processes}" for item in predicate.phases)
            return f"{predicate.processes} valid cold processes: {phases}"
        case SeparateCohorts():
            return "one plan and one build"
        case Rejects():
            return f"rejected: {', '.join(predicate.mutations)}"


def mutation_words(mutation: Mutation) -> str:
    """One mutation as one line."""
    donor = f" by those of {_arm(mutation.donor)}" if mutation.donor else ""
    return f"{mutation.operation}{donor} in {mutation.cell}/{mutation.history} replicate {mutation.replicate}"


def _arm(arm: Arm) -> str:
    return f"{arm.cell}/{arm.history}"
