"""Typed predicates against evidence: each holds, does not hold, or cannot be judged; the reason in words.

Equal means equal bytes, by digest. A predicate over fewer processes than the plan has is never judged on
those that happen to be there.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations
from typing import Any

from ledger.claim import (
    Anchored,
    Arm,
    Cardinality,
    Delivered,
    Differs,
    Equal,
    MembershipEqual,
    MembershipExchanged,
    Predicate,
    Repeats,
    ScheduleClass,
    SeparateCohorts,
)
from verifier.arithmetic.alignment import Membership, membership
from verifier.arithmetic.schedule import block_class, block_ranges
from verifier.bundle import Absent, Bundle, Facts
from verifier.checks.alignments import expected_alignment
from verifier.found import ArmKey, several
from verifier.outcome import Outcome, holds, refuted, too_few
from verifier.store.table import Seen


class View:
    """A bundle as predicates see it: complete arms of valid records."""

    def __init__(self, bundle: Bundle) -> None:
        self.bundle = bundle
        self._arms = bundle.arms
        self._complete: dict[ArmKey, Sequence[Facts]] = {}

    def arm(self, arm: ArmKey) -> Sequence[Facts]:
        """All processes of an arm; empty unless all replicates of the plan are there, each once."""
        if arm not in self._complete:
            found = self._arms.get(arm, ())
            found = tuple(found) if len(found) == self.bundle.plan.replicates else ()
            replicates = {facts.replicate for facts in found}
            complete = replicates == set(range(1, self.bundle.plan.replicates + 1))
            self._complete[arm] = found if complete else ()
        return self._complete[arm]

    def lacking(self, arms: Iterable[ArmKey]) -> Outcome | None:
        """Why arms cannot be judged, if some are not complete."""
        lacking = sorted({arm for arm in arms if not self.arm(arm)})
        if not lacking:
            return None
        wanted = self.bundle.plan.replicates
        names = [
            f"{cell} under {history} has {len(self._arms.get((cell, history), ()))}"
            for cell, history in lacking
        ]
        return too_few(f"expected {wanted} processes of each arm, got: {several(names)}")

    def membership(self, facts: Facts) -> Membership:
        """The membership of the alignment that a process was given. Raises Absent."""
        alignment = self.bundle.alignments.get(facts.alignment)
        if alignment is None:
            raise Absent(f"the alignment of {facts.path}")
        return self.bundle.worked.once(("membership", alignment), lambda: membership(alignment))


def judge(predicate: Predicate, view: View) -> Outcome:
    """What the evidence says of one predicate. `rejects` is judged by whoever makes the mutations."""
    try:
        return _JUDGES[predicate.kind](predicate, view)
    except Absent as absent:
        return too_few(f"cannot be judged without {absent}")


def _repeats(predicate: Repeats, view: View) -> Outcome:
    arms = [(cell, history) for cell in predicate.cells for history in predicate.histories]
    if view.bundle.plan.replicates < 2:
        return too_few("expected at least 2 replicates, the plan has 1: nothing can repeat")
    if lacking := view.lacking(arms):
        return lacking
    for arm in arms:
        first, *others = view.arm(arm)
        for other in others:
            for surface in predicate.surfaces:
                if first.surfaces.get(surface) != other.surfaces.get(surface):
                    return refuted(f"{surface} differs between {first.path} and {other.path}")
    return holds(f"{len(arms)} arms, {view.bundle.plan.replicates} processes each, equal bytes")


def _equal(predicate: Equal, view: View) -> Outcome:
    left, right = _key(predicate.left), _key(predicate.right)
    if lacking := view.lacking((left, right)):
        return lacking
    first, *others = (*view.arm(left), *view.arm(right))
    for surface in predicate.surfaces:
        for other in others:
            if first.surfaces.get(surface) is None or first.surfaces[surface] != other.surfaces.get(surface):
                return refuted(f"{surface} differs between {first.path} and {other.path}")
    return holds(f"{1 + len(others)} processes, equal bytes on {', '.join(predicate.surfaces)}")


def _differs(predicate: Differs, view: View) -> Outcome:
    left, right = _key(predicate.left), _key(predicate.right)
    if lacking := view.lacking((left, right)):
        return lacking
    for surface in predicate.surfaces:
        there = {facts.surfaces.get(surface): facts for facts in view.arm(left)}
        for facts in view.arm(right):
            if (twin := there.get(facts.surfaces.get(surface))) is not None:
                return refuted(f"{surface} is equal in {twin.path} and {facts.path}")
    count = len(view.arm(left)) + len(view.arm(right))
    return holds(f"{count} processes, no surface of {', '.join(predicate.surfaces)} in common")


def _membership_equal(predicate: MembershipEqual, view: View) -> Outcome:
    def compare(left: Membership, right: Membership) -> str | None:
        blocks = _differing(left, right)
        return f"membership differs in padded blocks {several(blocks)}" if blocks else None

    return _memberships(
        predicate.left, predicate.right, view, compare, "the same routes in every padded block"
    )


def _membership_exchanged(predicate: MembershipExchanged, view: View) -> Outcome:
    (a, b), (first, second) = predicate.routes, predicate.blocks

    def compare(left: Membership, right: Membership) -> str | None:
        if max(first, second) >= len(left) or first == second:
            return f"there are no two padded blocks {first} and {second}"
        for one, other in ((a, b), (b, a)):
            if one in left[first][1] and other in left[second][1]:
                wanted = list(left)
                wanted[first] = (left[first][0], left[first][1] - {one} | {other})
                wanted[second] = (left[second][0], left[second][1] - {other} | {one})
                blocks = _differing(tuple(wanted), right)
                return f"beyond the exchange, blocks {several(blocks)} differ" if blocks else None
        return f"routes {a} and {b} do not lie in blocks {first} and {second} of the left arm"

    return _memberships(
        predicate.left, predicate.right, view, compare, f"routes {a} and {b} exchanged, all else equal"
    )


def _memberships(
    left: Arm, right: Arm, view: View, compare: Callable[[Membership, Membership], str | None], good: str
) -> Outcome:
    """Compare the membership of every process of one arm with that of every one of the other."""
    if lacking := view.lacking((_key(left), _key(right))):
        return lacking
    for one in _per_alignment(view.arm(_key(left))):
        for other in _per_alignment(view.arm(_key(right))):
            if fault := compare(view.membership(one), view.membership(other)):
                return refuted(f"{fault}: {one.path} against {other.path}")
    return holds(good)


def _per_alignment(records: Sequence[Facts]) -> Iterable[Facts]:
    """Of the records that were given the same alignment, the first."""
    first: dict[str, Facts] = {}
    for facts in records:
        first.setdefault(facts.alignment, facts)
    return first.values()


def _differing(left: Membership, right: Membership) -> list[int]:
    longest = max(len(left), len(right))
    return [block for block in range(longest) if left[block : block + 1] != right[block : block + 1]]


def _schedule_class(predicate: ScheduleClass, view: View) -> Outcome:
    arm = _key(predicate.arm)
    if lacking := view.lacking((arm,)):
        return lacking
    place = 0 if predicate.gemm == "w13" else 1
    for facts in view.arm(arm):
        launch = view.bundle.worked.launch(
            predicate.gemm, grid=facts.grids[place], padded_blocks=len(view.membership(facts))
        )
        beyond = [item.block for item in predicate.blocks if item.block >= launch.padded_blocks]
        if beyond:
            return refuted(f"there are {launch.padded_blocks} padded blocks, none is {several(beyond)}")
        for item in predicate.blocks:
            if (got := block_class(launch, item.block)) != item.is_:
                return refuted(f"block {item.block} is {got} at {predicate.gemm} on {launch.grid} CTAs")
        lists = {block_ranges(launch, item.block) for item in predicate.blocks}
        if (len(lists) == 1) != (predicate.slice_lists == "equal"):
            return refuted(
                f"slice lists {'are equal' if len(lists) == 1 else 'differ'} on {launch.grid} CTAs"
            )
    classes = ", ".join(f"block {item.block} {item.is_}" for item in predicate.blocks)
    return holds(f"{predicate.gemm}: {classes}; slice lists {predicate.slice_lists}")


def _delivered(predicate: Delivered, view: View) -> Outcome:
    """Steps: 1 source and bytes, 2 grid, 3 unlike the native ones or equal to them, 4 memberships."""
    arms = [(predicate.cell, history) for history in predicate.histories]
    if lacking := view.lacking(arms):
        return lacking
    for cell, history in arms:
        for facts in view.arm((cell, history)):
            if fault := _arrived(predicate, facts, history, view):
                return refuted(f"{fault}, in {facts.path}")
    fault = _apart(predicate, arms, view)
    return (
        refuted(fault)
        if fault
        else holds(f"{predicate.cell}: alignment {predicate.alignment}, grid {predicate.grid}")
    )


def _arrived(predicate: Delivered, facts: Facts, history: str, view: View) -> str | None:
    """Steps 1 to 3 for one process."""
    bundle = view.bundle
    cell = bundle.planned.cell[predicate.cell]
    if cell.alignment != predicate.alignment:
        return f"the plan's alignment is {cell.alignment}, the claim's {predicate.alignment}"
    got = bundle.alignments.get(facts.alignment)
    if got is None:
        raise Absent(f"the alignment of {facts.path}")
    expected = expected_alignment(bundle, bundle.worked, predicate.cell, history)
    if expected is not None and got != expected:
        return f"the alignment delivered is not the {predicate.alignment} one"
    pinned = tuple(launch.grid for launch in bundle.lock.launches)
    grids = pinned if predicate.grid == "pinned" else (predicate.grid, predicate.grid)
    if facts.grids != grids:
        return f"the grids are {facts.grids}, expected {grids}"
    native = got if cell.alignment == "constructed" else bundle.native(history)
    if native is None:
        raise Absent(f"the native alignment of {history}")
    if (got != native) != predicate.differs_from_native:
        return f"the bytes are {'' if got == native else 'not '}the native ones of {history}"
    return None


def _apart(predicate: Delivered, arms: Sequence[ArmKey], view: View) -> str | None:
    """Step 4: the histories' memberships against each other."""
    if predicate.memberships == "differ" and len(arms) < 2:
        return f"{predicate.cell} has one history here: no memberships to differ"
    for one, other in combinations(arms, 2):
        lefts = {view.membership(facts) for facts in view.arm(one)}
        rights = {view.membership(facts) for facts in view.arm(other)}
        if predicate.memberships == "differ" and lefts & rights:
            return f"the memberships of {one[1]} and {other[1]} are equal in {predicate.cell}"
        if predicate.memberships == "equal" and len(lefts | rights) > 1:
            return f"the memberships of {one[1]} and {other[1]} differ in {predicate.cell}"
    return None


def _cardinality(predicate: Cardinality, view: View) -> Outcome:
    phases = Counter(facts.phase for facts in view.bundle.facts)
    if not phases:
        return too_few("expected processes, got none")
    wanted = {item.phase: item.processes for item in predicate.phases}
    for phase, processes in wanted.items():
        if phases[phase] != processes:
            return refuted(f"{phase} has {phases[phase]} valid processes, expected {processes}")
    if phases.total() != predicate.processes:
        return refuted(f"there are {phases.total()} valid processes, expected {predicate.processes}")
    counts = ", ".join(f"{phase} {processes}" for phase, processes in wanted.items())
    return holds(f"{phases.total()} valid cold processes: {counts}")


def _separate_cohorts(_predicate: SeparateCohorts, view: View) -> Outcome:
    if not view.bundle.facts:
        return too_few("expected processes, got none")
    for what in ("plan", "software"):
        digests = Seen(getattr(facts, what) for facts in view.bundle.kinds)
        if len(digests) > 1:
            return refuted(f"records name {len(digests)} digests of their {what}, expected one")
    return holds("one plan and one build in all records")


def _anchored(predicate: Anchored, view: View) -> Outcome:
    """The other cohort's digest, frozen in the ledger, against this cohort's records; no record is shared."""
    arm = _key(predicate.arm)
    if lacking := view.lacking((arm,)):
        return lacking
    if (fixture := view.bundle.lock.fixture.digest) != predicate.fixture:
        return refuted(f"the fixture is {fixture}, the anchor's is {predicate.fixture}")
    if view.bundle.digest("plan.yaml") == predicate.plan:
        return refuted("the anchor is this very plan: it must be another cohort's")
    for facts in view.arm(arm):
        if facts.trajectory != predicate.trajectory:
            return refuted(
                f"{facts.path} has trajectory {facts.trajectory}, the anchor {predicate.trajectory}"
            )
    return holds(f"{len(view.arm(arm))} processes have the anchor's trajectory, {predicate.trajectory}")


def _key(arm: Arm) -> ArmKey:
    return arm.cell, arm.history


_JUDGES: dict[str, Callable[[Any, View], Outcome]] = {
    "repeats": _repeats,
    "equal": _equal,
    "differs": _differs,
    "membership-equal": _membership_equal,
    "membership-exchanged": _membership_exchanged,
    "schedule-class": _schedule_class,
    "delivered": _delivered,
    "cardinality": _cardinality,
    "separate-cohorts": _separate_cohorts,
    "anchored": _anchored,
}
