"""Which processes share which bytes on which surface. Pure: digests in, letters and paths out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ledger.record import Record


@dataclass(frozen=True, kw_only=True, slots=True)
class Arm:
    """One cell under one history, and how many of its processes took one path."""

    phase: str
    cell: str
    history: str
    processes: int

    @property
    def name(self) -> str:
        """Cell and history."""
        return f"{self.cell} {self.history}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Trajectory:
    """One path through the surfaces: the letter of its bytes at each, and the arms that took it.

    Letters are given per surface in order of appearance; the same letter at one surface means the same bytes.
    """

    letters: tuple[str, ...]
    digests: tuple[str, ...]
    arms: tuple[Arm, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Trajectories:
    """All paths of a bundle, in order of appearance; `surfaces` names their stations."""

    surfaces: tuple[str, ...]
    paths: tuple[Trajectory, ...]

    def of(self, cell: str, history: str) -> tuple[Trajectory, ...]:
        """The paths of one arm: one, if its processes repeat."""
        return tuple(
            path
            for path in self.paths
            if any((arm.cell, arm.history) == (cell, history) for arm in path.arms)
        )


def trajectories(records: Iterable[Record], surfaces: tuple[str, ...]) -> Trajectories:
    """Group processes by the digests of all their surfaces."""
    letters: dict[tuple[int, str], str] = {}
    counts: dict[tuple[str, ...], dict[tuple[str, str, str], int]] = {}
    for record in records:
        digests = tuple(surface.sha256 for surface in record.surfaces)
        for place, digest in enumerate(digests):
            seen = sum(key[0] == place for key in letters)
            letters.setdefault((place, digest), _letter(seen))
        arms = counts.setdefault(digests, {})
        arm = (record.phase, record.cell, record.history)
        arms[arm] = arms.get(arm, 0) + 1
    return Trajectories(
        surfaces=surfaces,
        paths=tuple(
            Trajectory(
                letters=tuple(letters[place, digest] for place, digest in enumerate(digests)),
                digests=digests,
                arms=tuple(
                    Arm(phase=phase, cell=cell, history=history, processes=count)
                    for (phase, cell, history), count in arms.items()
                ),
            )
            for digests, arms in counts.items()
        ),
    )


def _letter(index: int) -> str:
    """A, B, ... Z, AA, AB, ..."""
    first, last = divmod(index, 26)
    return ("" if first == 0 else chr(64 + first)) + chr(65 + last)
