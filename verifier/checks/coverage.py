"""V401 to V405, who is there: exactly the plan's processes, each once, no two of them the same process."""

from collections import defaultdict
from collections.abc import Iterator, Mapping

from ledger.record import record_path
from verifier.arithmetic.cells import Planned
from verifier.bundle import Absent, Bundle, Facts
from verifier.checks.check import check
from verifier.found import Found
from verifier.layout import Slot


@check("V401")
def every_cell(bundle: Bundle) -> Iterator[Found]:
    """V401: every process of the plan has its record; where some lack theirs, each one is named."""
    for slot in lacking(bundle):
        yield Found(
            code="V401",
            file=record_path(*slot),
            expected=f"a record of {_name(slot)}",
            got="none",
            arms=frozenset({(slot[1], slot[2])}),
        )


def lacking(bundle: Bundle) -> tuple[Slot, ...]:
    """The processes of the plan that no file under records/ claims to be. Raises Absent."""
    there = {facts.slot for facts in bundle.facts} | set(bundle.twins)
    there |= {item.claims for item in bundle.no_records if item.claims}
    return tuple(slot for slot in _planned(bundle) if slot not in there)


def all_read(bundle: Bundle) -> bool:
    """Whether what the records cite is known: every one is there, once, and could be read. Raises Absent."""
    return not bundle.twins and not bundle.no_records and not lacking(bundle)


@check("V402")
def no_other_cell(bundle: Bundle) -> Iterator[Found]:
    """V402: no record is of a process that the plan does not have."""
    planned = _planned(bundle)
    for facts in bundle.facts:
        if facts.slot not in planned:
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
    for facts in bundle.facts:
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
    for what, key in (("nonce", _nonce), ("boot, pid and start", _process)):
        seen: dict[object, list[Facts]] = defaultdict(list)
        for facts in bundle.facts:
            seen[key(facts)].append(facts)
        for group in seen.values():
            for facts in group[1:]:
                yield Found(
                    code="V405",
                    file=facts.path,
                    key="process",
                    expected=f"a {what} of its own",
                    got=f"the {what} of {group[0].path}",
                    arms=frozenset({facts.arm, group[0].arm}),
                )


def _nonce(facts: Facts) -> object:
    return facts.nonce


def _process(facts: Facts) -> object:
    return facts.process


def _planned(bundle: Bundle) -> Mapping[Slot, Planned]:
    """The plan's processes by the verifier's own expansion; the lock's list if the plan cannot be read."""
    try:
        return bundle.planned.slots
    except Absent:
        if bundle.documents.lock is None:
            raise
        return {cell[:4]: cell for cell in bundle.documents.locked}


def _name(slot: Slot) -> str:
    phase, cell, history, replicate = slot
    return f"{phase}.{cell}.{history} replicate {replicate}"


CHECKS = (every_cell, no_other_cell, one_record_each, named_as_inside, cold_processes)
