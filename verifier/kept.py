"""Records in few words on disk: what many of them say alike is kept once, in memory while it is little."""

from array import array
from typing import Any

from verifier.bundle import Facts, Unreadable
from verifier.store.shared import Shared

#: Records kept of every kind; of so many less one, a bundle laid over this one may change some.
MODELS = 3
_MOST_KINDS = 2**15
Kept = Facts | Unreadable


class Codec:
    """Packs facts, and the names of files that are no records, into rows."""

    def __init__(self) -> None:
        self._who, self._what = Shared(), Shared()
        self._place = 0
        self._alike: dict[object, int] | None = {}
        self._models = array("I")

    @property
    def models(self) -> "array[int] | None":
        """Places of some records of every kind: of those that differ in who they are alone, the first few.

        None if there are too many kinds.
        """
        return None if self._alike is None else self._models

    def pack(self, item: Kept) -> object:
        """What `Rows` puts on disk, one after the other."""
        self._place += 1
        if isinstance(item, Unreadable):
            return tuple(item)
        who = (
            item.phase,
            item.cell,
            item.history,
            item.process[0],
            item.containment,
            item.plan,
            item.software,
            item.grids,
            item.symbols,
            item.assumptions,
        )
        what = (item.alignment, item.tensors, item.surfaces, item.trajectory, item.capture)
        numbers = self._who.number(who), self._what.number(what)
        if self._alike is not None and (many := self._alike.get(numbers, 0)) < MODELS:
            self._alike[numbers] = many + 1
            self._models.append(self._place - 1)
            if len(self._alike) > _MOST_KINDS:
                self._alike = None
        return (
            item.path,
            item.sha256,
            numbers[0],
            item.replicate,
            item.attempt,
            item.nonce,
            item.process[1:],
            item.markers,
            item.passed,
            numbers[1],
        )

    def unpack(self, row: tuple[Any, ...]) -> Kept:
        """The value that was packed."""
        if len(row) == 2:
            return Unreadable(*row)
        path, digest, who, replicate, attempt, nonce, process, markers, passed, what = row
        phase, cell, history, boot, containment, plan, software, grids, symbols, assumed = self._who.value(
            who
        )
        alignment, tensors, surfaces, trajectory, capture = self._what.value(what)
        return Facts(
            path,
            digest,
            phase,
            cell,
            history,
            replicate,
            attempt,
            nonce,
            (boot, *process),
            markers,
            passed,
            containment,
            plan,
            software,
            alignment,
            grids,
            symbols,
            tensors,
            surfaces,
            trajectory,
            capture,
            assumed,
        )
