"""Whether a ledger can be judged on a plan: its name, what claims and mutations cite, what they count.

What the plan does not have would show only after every process ran, as a ledger that is malformed.
"""

from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

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
    Repeats,
    ScheduleClass,
)
from ledger.fault import Fault, Path
from ledger.plan import Plan
from mechanism.plan.document import LoadedLedger
from mechanism.plan.foreseen import Foreseen

Found = Iterator[tuple[Path, str]]
_OWN = (
    "; a plan with other cells needs a ledger of its own: write one beside the plan, and name its file in the"
    " plan's `ledger:`"
)


def ledger_faults(plan: Plan, ledger: LoadedLedger, *, padded_blocks: int) -> list[Fault]:
    """Every fault of the ledger on this plan, once, at its first line; all who have it are named."""
    return _told_once(ledger, _found(plan, ledger, padded_blocks))


def contradictions(ledger: LoadedLedger, foreseen: Foreseen) -> list[Fault]:
    """What claims say was delivered and a plan decides otherwise, of a ledger without faults; likewise."""
    return _told_once(
        ledger,
        (
            (claim.id, ("claims", c, *path), message)
            for c, claim in enumerate(ledger.ledger.claims)
            for path, message in foreseen.of_claim(claim)
        ),
    )


def _told_once(ledger: LoadedLedger, found: Iterable[tuple[str, Path, str]]) -> list[Fault]:
    cited: dict[str, tuple[Path, list[str]]] = {}
    for who, path, message in found:
        names = cited.setdefault(message, (path, []))[1]
        if who and who not in names:
            names.append(who)
    return [
        Fault(
            file=ledger.name,
            line=ledger.document.line(path),
            path=path,
            message=f"{', '.join(names)}: {message}" if names else message,
        )
        for message, (path, names) in cited.items()
    ]


def _found(plan: Plan, loaded: LoadedLedger, padded_blocks: int) -> Iterator[tuple[str, Path, str]]:
    """(claim or mutation id, path, message) of every fault, in the ledger's order."""
    ledger, called = loaded.ledger, PurePosixPath(plan.ledger).stem
    if ledger.name != called:
        yield (
            "",
            ("name",),
            f"expected {called}, as the plan's `ledger: {plan.ledger}` calls it, got {ledger.name}; a"
            " ledger's name is its file's without .yaml: rename one of them",
        )
    for c, claim in enumerate(ledger.claims):
        for part in ("delivered", "outcome", "control"):
            for p, predicate in enumerate(getattr(claim, part)):
                for path, message in _predicate(plan, predicate, padded_blocks):
                    yield claim.id, ("claims", c, part, p, *path), message
        if claim.known_bad is not None:
            for path, message in _mutation(plan, claim.known_bad):
                yield claim.id, ("claims", c, "known_bad", *path), message
    for m, mutation in enumerate(ledger.mutations):
        for path, message in _mutation(plan, mutation):
            yield mutation.id, ("mutations", m, *path), message


def _predicate(plan: Plan, predicate: Predicate, padded_blocks: int) -> Found:
    for cell, history, arm in _arms_of(predicate):
        yield from _arm(plan, cell, history, arm)
    for place, surface in enumerate(getattr(predicate, "surfaces", ())):
        if surface not in plan.surfaces:
            yield (
                ("surfaces", place),
                f"expected surfaces that the plan captures ({', '.join(plan.surfaces)}), got {surface}; add"
                " it to the plan, or leave it out here",
            )
    for place, route in enumerate(getattr(predicate, "routes", ())):
        if route >= plan.fixture.routes:
            yield (
                ("routes", place),
                f"expected routes 0..{plan.fixture.routes - 1}, which the fixture has, got {route}; name"
                " another",
            )
    for path, block in _blocks(predicate):
        if block >= padded_blocks:
            yield (
                path,
                f"expected padded blocks 0..{padded_blocks - 1}, which the fixture's routing fills, got"
                f" {block}; `mechanism schedule PLAN` lists them",
            )
    if isinstance(predicate, Cardinality):
        yield from _counts(plan, predicate)
    if isinstance(predicate, Repeats) and plan.replicates < 2:
        yield (
            ("kind",),
            f"expected a plan with two replicates or more for `repeats` to compare, got {plan.replicates};"
            " raise `replicates` in the plan, or take this predicate out",
        )


def _counts(plan: Plan, predicate: Cardinality) -> Found:
    """A cardinality is that of the plan: cells x histories x replicates, in all and by phase."""
    planned = {
        phase.name: plan.replicates * sum(len(cell.histories) for cell in phase.cells)
        for phase in plan.phases
    }
    total = sum(planned.values())
    if predicate.processes != total:
        yield (
            ("processes",),
            f"expected {total} processes, as many as the plan has (cells x histories x {plan.replicates}"
            f" replicates), got {predicate.processes}; correct it here, or change the plan",
        )
    for place, phase in enumerate(predicate.phases):
        if phase.phase not in planned:
            yield (
                ("phases", place, "phase"),
                f"expected a phase that the plan has ({', '.join(planned)}), got {phase.phase}{_OWN}",
            )
        elif phase.processes != planned[phase.phase]:
            yield (
                ("phases", place, "processes"),
                f"expected {planned[phase.phase]} processes in {phase.phase}, as many as the plan has, got"
                f" {phase.processes}; correct it here, or change the plan",
            )


def _mutation(plan: Plan, mutation: Mutation) -> Found:
    yield from _arm(plan, ("cell",), ("history",), Arm(cell=mutation.cell, history=mutation.history))
    if mutation.donor is not None:
        yield from _arm(plan, ("donor", "cell"), ("donor", "history"), mutation.donor)
    if mutation.replicate > plan.replicates:
        yield (
            ("replicate",),
            f"expected a replicate of 1..{plan.replicates}, which the plan has, got {mutation.replicate};"
            " name one of those here, or raise `replicates` in the plan",
        )


def _arm(plan: Plan, cell: Path, history: Path, arm: Arm) -> Found:
    """`cell` and `history`: the keys that name them."""
    histories = {known.name: known.histories for _, known in plan.cells()}
    if arm.history not in histories.get(arm.cell, ()):
        known = arm.cell in histories
        what = "history of that cell" if known else "cell"
        yield (
            history if known else cell,
            f"expected a {what} that the plan has, got {arm.cell} under {arm.history}{_OWN}",
        )


def _arms_of(predicate: Predicate) -> list[tuple[Path, Path, Arm]]:
    """Every arm that a predicate names, with the keys of its cell and of its history."""
    if isinstance(predicate, Repeats):
        return [
            (("cells", c), ("histories", h), Arm(cell=cell, history=history))
            for c, cell in enumerate(predicate.cells)
            for h, history in enumerate(predicate.histories)
        ]
    if isinstance(predicate, Delivered):
        return [
            (("cell",), ("histories", h), Arm(cell=predicate.cell, history=history))
            for h, history in enumerate(predicate.histories)
        ]
    if isinstance(predicate, Equal | Differs | MembershipEqual | MembershipExchanged):
        return [((side, "cell"), (side, "history"), getattr(predicate, side)) for side in ("left", "right")]
    if isinstance(predicate, ScheduleClass | Anchored):
        return [(("arm", "cell"), ("arm", "history"), predicate.arm)]
    return []


def _blocks(predicate: Predicate) -> list[tuple[Path, int]]:
    """Every padded block that a predicate names, with its key."""
    if isinstance(predicate, ScheduleClass):
        return [(("blocks", place, "block"), item.block) for place, item in enumerate(predicate.blocks)]
    if isinstance(predicate, MembershipExchanged):
        return [(("blocks", place), block) for place, block in enumerate(predicate.blocks)]
    return []
