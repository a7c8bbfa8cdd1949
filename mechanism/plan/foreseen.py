"""What a plan already decides of its ledger: whether what a claim says was delivered can be so.

A treatment that contradicts its own cell would show only after every process ran, as a claim that is
not-run. Of a GPU's native alignments the plan knows nothing but where the stable construction makes them:
they are left to the run.
"""

from collections.abc import Iterator
from itertools import combinations

from ledger.claim import (
    Arm,
    Claim,
    Delivered,
    MembershipEqual,
    MembershipExchanged,
    Predicate,
    ScheduleClass,
)
from ledger.fault import Path
from ledger.plan import Cell, Plan
from mechanism.kernel import alignment as aligning
from mechanism.kernel.alignment import Alignment
from mechanism.plan import geometry
from mechanism.plan.inject import injected

Found = Iterator[tuple[Path, str]]
Membership = tuple[tuple[int, frozenset[int]], ...]
_WAY_OUT = "correct it here, or change the cell in the plan"
_OTHERS = "name others here, or change the cells in the plan"


class Foreseen:
    """A plan that can be delivered, with what it fixes of every arm. Its ledger cites nothing unknown."""

    def __init__(self, plan: Plan, natives: dict[str, Alignment], topk_ids: geometry.TopkIds) -> None:
        self._plan, self._natives, self._topk_ids = plan, natives, topk_ids
        self._cells = {cell.name: cell for _, cell in plan.cells()}
        self._fixed = plan.engine == "simulated" or plan.stable_construction
        self._blocks = len(next(iter(natives.values())).expert_ids)
        self._memberships: dict[tuple[str, str], Membership | None] = {}

    def of_claim(self, claim: Claim) -> Found:
        """Every predicate of `delivered`, and of the others those that say what was delivered."""
        for part in ("delivered", "outcome", "control"):
            for place, predicate in enumerate(getattr(claim, part)):
                if part == "delivered" or isinstance(predicate, Delivered):
                    for path, message in self._predicate(predicate):
                        yield (part, place, *path), message

    def _predicate(self, predicate: Predicate) -> Found:
        if isinstance(predicate, Delivered):
            yield from self._delivered(predicate, self._cells[predicate.cell])
        elif isinstance(predicate, MembershipEqual):
            yield from self._equal(predicate)
        elif isinstance(predicate, MembershipExchanged):
            yield from self._exchanged(predicate)
        elif isinstance(predicate, ScheduleClass):
            yield from self._classes(predicate)

    def _delivered(self, said: Delivered, cell: Cell) -> Found:
        """Steps: 1 source, 2 grid, 3 bytes unlike the native ones or equal to them, 4 memberships."""
        if said.alignment != cell.alignment:
            yield (
                ("alignment",),
                f"expected {cell.alignment}, the alignment of the plan's cell {cell.name}, got"
                f" {said.alignment}; {_WAY_OUT}",
            )
        pinned = self._pinned()
        grids = pinned if cell.grid is None else (cell.grid, cell.grid)
        if grids != (pinned if said.grid == "pinned" else (said.grid, said.grid)):
            wanted = "pinned" if cell.grid is None else cell.grid
            yield (
                ("grid",),
                f"expected {wanted}, the grid of the plan's cell {cell.name} ({grids[0]} CTAs at w13,"
                f" {grids[1]} at w2), got {said.grid}; {_WAY_OUT}",
            )
        yield from self._bytes(said, cell)
        yield from self._apart(said, cell)

    def _bytes(self, said: Delivered, cell: Cell) -> Found:
        for history in said.histories:
            differs = self._differs_from_native(cell, history)
            if differs is not None and differs != said.differs_from_native:
                yield (
                    ("differs_from_native",),
                    f"expected {_said(differs)}, since the plan's cell {cell.name} gets"
                    f" {'other bytes than' if differs else 'the bytes of'} the native alignment of {history},"
                    f" got {_said(said.differs_from_native)}; {_WAY_OUT}",
                )
                return

    def _apart(self, said: Delivered, cell: Cell) -> Found:
        if len(said.histories) < 2:
            if said.memberships == "differ":
                yield (
                    ("memberships",),
                    f"expected two histories whose memberships can differ, got {said.histories[0]} alone;"
                    " name another one, or say equal",
                )
            return
        for one, other in combinations(said.histories, 2):
            left, right = self._membership(cell.name, one), self._membership(cell.name, other)
            if left is None or right is None:
                continue
            got = "equal" if left == right else "differ"
            if got != said.memberships:
                yield (
                    ("memberships",),
                    f"expected {got}, since {one} and {other} put {_same(left == right)} routes into the"
                    f" padded blocks in the plan's cell {cell.name}, got {said.memberships}; {_WAY_OUT}",
                )
                return

    def _equal(self, said: MembershipEqual) -> Found:
        left, right = self._membership_of(said.left), self._membership_of(said.right)
        if left is not None and right is not None and left != right:
            yield (
                ("right",),
                f"expected an arm with the routes of {_arm(said.left)} in every padded block, got"
                f" {_arm(said.right)} with others in {_blocks(left, right)}; {_OTHERS}",
            )

    def _exchanged(self, said: MembershipExchanged) -> Found:
        left, right = self._membership_of(said.left), self._membership_of(said.right)
        if left is None or right is None:
            return
        (a, b), (first, second) = said.routes, said.blocks
        lie = [
            (one, other)
            for one, other in ((a, b), (b, a))
            if one in left[first][1] and other in left[second][1] and first != second
        ]
        if not lie:
            where = {r: block for block, (_, routes) in enumerate(left) for r in routes}
            yield (
                ("blocks",),
                f"expected the padded blocks of routes {a} and {b} under {_arm(said.left)}, two of them, got"
                f" {first} and {second}: {a} lies in {where[a]}, {b} in {where[b]}; correct it here",
            )
            return
        one, other = lie[0]
        wanted = list(left)
        wanted[first] = (left[first][0], left[first][1] - {one} | {other})
        wanted[second] = (left[second][0], left[second][1] - {other} | {one})
        if tuple(wanted) != right:
            yield (
                ("right",),
                f"expected an arm with the routes of {_arm(said.left)} but for {a} and {b} exchanged, got"
                f" {_arm(said.right)} with others in {_blocks(tuple(wanted), right)}; {_OTHERS}",
            )

    def _classes(self, said: ScheduleClass) -> Found:
        """A schedule is a function of geometry alone, on a GPU too."""
        gemm = next(gemm for gemm in geometry.gemms(self._plan.fixture) if gemm.name == said.gemm)
        grid = self._cells[said.arm.cell].grid
        schedule = geometry.schedule(self._plan, gemm, padded_blocks=self._blocks, grid=grid)
        lists = set()
        for place, item in enumerate(said.blocks):
            ranges = tuple(
                tuple((part.begin, part.end) for part in schedule.slices(item.block, column))
                for column in range(schedule.n_tiles)
            )
            lists.add(ranges)
            single = {len(parts) == 1 for parts in ranges}
            got = "mixed" if len(single) == 2 else "direct" if True in single else "split"
            if got != item.is_:
                yield (
                    ("blocks", place, "class"),
                    f"expected {got}, the schedule class of padded block {item.block} at {gemm.name} on"
                    f" {schedule.grid} CTAs, got {item.is_}; `mechanism schedule PLAN` lists them",
                )
        got = "equal" if len(lists) == 1 else "differ"
        if got != said.slice_lists:
            yield (
                ("slice_lists",),
                f"expected {got}, as the slice lists of these padded blocks are at {gemm.name} on"
                f" {schedule.grid} CTAs, got {said.slice_lists}; name other blocks, or correct it here",
            )

    def _differs_from_native(self, cell: Cell, history: str) -> bool | None:
        """Whether a cell is given other bytes than its history's native ones; None if a run must tell."""
        if cell.alignment == "constructed":
            return False
        if cell.alignment == "own":
            return cell.swap is not None
        if not self._fixed:
            return None
        given = injected(self._plan, cell, history, self._natives, self._topk_ids)
        return given != self._natives[history]

    def _membership_of(self, arm: Arm) -> Membership | None:
        return self._membership(arm.cell, arm.history)

    def _membership(self, name: str, history: str) -> Membership | None:
        """What an arm's alignment puts into every padded block; None if a run must tell."""
        key = (name, history)
        if key not in self._memberships:
            cell = self._cells[name]
            known = self._fixed or cell.alignment == "stable"
            self._memberships[key] = (
                aligning.membership(injected(self._plan, cell, history, self._natives, self._topk_ids))
                if known
                else None
            )
        return self._memberships[key]

    def _pinned(self) -> tuple[int, int]:
        w13, w2 = geometry.gemms(self._plan.fixture)
        return geometry.launch(self._plan, w13).grid, geometry.launch(self._plan, w2).grid


def _arm(arm: Arm) -> str:
    return f"{arm.cell} under {arm.history}"


def _said(value: bool) -> str:  # noqa: FBT001 - as YAML writes it
    return "true" if value else "false"


def _same(equal: bool) -> str:  # noqa: FBT001 - one word
    return "the same" if equal else "different"


def _blocks(one: Membership, other: Membership) -> str:
    """The padded blocks in which two memberships differ, a few of them by number."""
    longest = max(len(one), len(other))
    differing = [block for block in range(longest) if one[block : block + 1] != other[block : block + 1]]
    shown = ", ".join(map(str, differing[:4]))
    return f"{len(differing)} ({shown}{', ...' if len(differing) > 4 else ''})"
