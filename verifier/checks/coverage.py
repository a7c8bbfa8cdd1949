"""V401 to V405, who is there: exactly the plan's processes, each once, no two of them the same process."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import chain

from ledger.record import record_path
from verifier.arithmetic.cells import Planned, Processes
from verifier.bundle import Absent, Bundle, Facts
from verifier.checks.check import check
from verifier.found import Found
from verifier.layout import Slot
from verifier.store.table import Table, hashed


@check("V401")
def every_cell(bundle: Bundle) -> Iterator[Found]:
    """V401: every process of the plan has its record; where some lack theirs, each one is named."""
    for slot in lacking(bundle) if bundle.census is None else ():
        yield Found(
            code="V401",
            file=record_path(*slot),
            expected=f"a record of {_name(slot)}",
            got="none",
            arms=frozenset({(slot[1], slot[2])}),
        )


def lacking(bundle: Bundle) -> Iterator[Slot]:
    """The processes of the plan that no file under records/ claims to be. Raises Absent."""
    planned = _planned(bundle)
    there = bytearray(len(planned))
    claims = (item.claims for item in bundle.no_records if item.claims)
    for slot in chain((facts.slot for facts in bundle.facts), bundle.twins, claims):
        if (place := planned.place(slot)) is not None:
            there[place] = 1
    if 0 in there:
        for place, cell in enumerate(planned):
            if not there[place] and planned.place(cell[:4]) == place:  # a lock may list one twice
                yield cell[:4]


def all_read(bundle: Bundle) -> bool:
    """Whether what the records cite is known: every one is there, once, and could be read. Raises Absent."""
    if bundle.census is not None:
        return True
    if bundle.twins or bundle.no_records:
        return False
    return bundle.once("all read", lambda: next(lacking(bundle), None) is None)


@check("V402")
def no_other_cell(bundle: Bundle) -> Iterator[Found]:
    """V402: no record is of a process that the plan does not have."""
    planned = _planned(bundle)
    for facts in bundle.facts if bundle.census is None else ():
        if planned.place(facts.slot) is None:
            yield Found(code="V402", file=facts.path, expected="a process of the plan", got=_name(facts.slot))


@check("V403")
def one_record_each(bundle: Bundle) -> Iterator[Found]:
    """V403: no two files claim one process. Neither is judged: which of them is the record cannot be told."""
    for slot, paths in bundle.twins.items():
        yield Found(
            code="V403",
            file=paths[0],
            expected=f"one record of {_name(slot)}",
            got=f"{len(paths)}: {', '.join(paths)}",
            arms=frozenset({(slot[1], slot[2])}),
        )


@check("V404")
def named_as_inside(bundle: Bundle) -> Iterator[Found]:
    """V404: a record lies at the path that its own identity gives."""
    for facts in bundle.facts if bundle.census is None else ():
        if facts.path != (expected := record_path(*facts.slot)):
            yield Found(
                code="V404",
                file=facts.path,
                expected=f"the file name {expected}, from what it says of itself",
                got=facts.path,
                arms=frozenset({facts.arm}),
            )


@check("V405")
def cold_processes(bundle: Bundle) -> Iterator[Found]:
    """V405: no two records share a nonce, or boot, pid and start: a copied record is no second process."""
    if bundle.census is not None:
        return
    for what, key in (("nonce", _nonce), ("boot, pid and start", _process)):
        for first, place in _repeated(bundle.facts, key):
            facts, model = bundle.facts[place], bundle.facts[first]
            yield Found(
                code="V405",
                file=facts.path,
                key="process",
                expected=f"a {what} of its own",
                got=f"the {what} of {model.path}",
                arms=frozenset({facts.arm, model.arm}),
            )


def _repeated(facts: Sequence[Facts], key: Callable[[Facts], Hashable]) -> Iterator[tuple[int, int]]:
    """Places of facts whose key came before, each with the place of the first; group by group."""
    first, again = Table(), set[int]()
    for item in facts:
        if first.first(mine := hashed(key(item)), 1):
            again.add(mine)
    if not again:
        return
    groups: dict[int, int] = {}
    pairs: list[int] = []  # the first place and another one, as one number
    for place, item in enumerate(facts):
        if (mine := hashed(key(item))) in again and (model := groups.setdefault(mine, place)) != place:
            pairs.append(model << 32 | place)
    for pair in sorted(pairs):
        yield divmod(pair, 2**32)


def _nonce(facts: Facts) -> Hashable:
    return facts.nonce


def _process(facts: Facts) -> Hashable:
    return facts.process


class _Locked:
    """The lock's list of processes, where the plan cannot be read."""

    def __init__(self, locked: Sequence[Planned]) -> None:
        self._locked, self._places = locked, Table()
        for place, cell in enumerate(locked, start=1):
            self._places.first(hashed(cell[:4]), place)

    def __len__(self) -> int:
        return len(self._locked)

    def __iter__(self) -> Iterator[Planned]:
        return iter(self._locked)

    def place(self, slot: Slot) -> int | None:
        """Where a slot's process is in the list."""
        return self._places.get(hashed(slot)) - 1 if self._places.get(hashed(slot)) else None


def _planned(bundle: Bundle) -> Processes | _Locked:
    """The plan's processes by the verifier's own expansion; the lock's list if the plan cannot be read."""
    try:
        return bundle.planned.cells
    except Absent:
        if bundle.documents.lock is None:
            raise
        return bundle.once("locked", lambda: _Locked(bundle.documents.locked))


def _name(slot: Slot) -> str:
    phase, cell, history, replicate = slot
    return f"{phase}.{cell}.{history} replicate {replicate}"


CHECKS = (every_cell, no_other_cell, one_record_each, named_as_inside, cold_processes)
