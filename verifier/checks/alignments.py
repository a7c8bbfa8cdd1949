"""V5xx, the alignments: legal for the routing, and the one that the treatment asks for."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from ledger.record import AlignmentFile, Record
from verifier.arithmetic import geometry
from verifier.arithmetic.alignment import illegalities, membership
from verifier.bundle import Bundle, Facts
from verifier.checks.check import check, record_check
from verifier.checks.coverage import all_read
from verifier.found import ArmKey, Found, several, show
from verifier.layout import address_of, alignment_path, kind_of
from verifier.store.table import Seen
from verifier.workings import Workings, alignment_digest

_MOST = 5  # faults of one alignment; the first ones say enough


@check("V501")
def legal(bundle: Bundle) -> Iterator[Found]:
    """V501: every alignment is what some order of the atomics makes of routing.json (marlin-moe 2.3)."""
    for digest in sorted(bundle.alignments):
        for fault in faults(bundle, digest)[:_MOST]:
            expected, _, got = fault.partition(", got ")
            yield Found(code="V501", file=alignment_path(digest), expected=expected, got=got)


def faults(bundle: Bundle, digest: str) -> tuple[str, ...]:
    """What makes an alignment of the bundle illegal; empty if nothing does. Raises Absent."""
    worked = bundle.worked
    return worked.once(
        ("illegal", bundle.alignments[digest]),
        lambda: tuple(map(show, illegalities(bundle.alignments[digest], worked.ids, block=worked.block))),
    )


@check("V502")
def there(bundle: Bundle) -> Iterator[Found]:
    """V502: every record's alignment is in the bundle. If it is listed and gone, that is V102."""
    return bundle.look(partial(_there, bundle))


def _there(bundle: Bundle, records: Sequence[Facts]) -> Iterator[Found]:
    for facts in records:
        path = alignment_path(facts.alignment)
        if path not in bundle.evidence.entries and path not in bundle.manifest.lines:
            yield Found(
                code="V502",
                file=facts.path,
                key="treatment.alignment.sha256",
                expected=f"an alignment in the bundle, {path}",
                got="none",
            )


@check("V503")
def delivered(bundle: Bundle) -> Iterator[Found]:
    """V503: the delivered alignment is, byte for byte, the one that the treatment gives.

    Constructed in simulation: from the history's arrival order. Injected: the donor's native one or the
    stable one, with the cell's swap. What a GPU constructs, atomics decide: there V501 is all there is.
    """
    return bundle.look(partial(_delivered, bundle, expected_alignments(bundle)))


def _delivered(
    bundle: Bundle, wanted: Mapping[ArmKey, AlignmentFile], records: Sequence[Facts]
) -> Iterator[Found]:
    right: set[tuple[ArmKey, str]] = set()
    for facts in records:
        expected = wanted.get(facts.arm)
        got = bundle.alignments.get(facts.alignment)
        if expected is None or got is None or (facts.arm, facts.alignment) in right:
            continue
        if got == expected:
            right.add((facts.arm, facts.alignment))
            continue
        if not faults(bundle, facts.alignment):
            yield Found(
                code="V503",
                file=facts.path,
                key="treatment.alignment.sha256",
                expected=f"{alignment_digest(expected)}, the alignment of its treatment",
                got=f"{facts.alignment}, {_difference(expected, got)}",
            )


def expected_alignments(bundle: Bundle) -> Mapping[tuple[str, str], AlignmentFile]:
    """What every arm is to receive, where that follows from the plan and what was constructed."""
    worked = bundle.worked
    found: dict[tuple[str, str], AlignmentFile] = {}
    for cell in worked.cell.values():
        for history in cell.histories:
            if (expected := expected_alignment(bundle, worked, cell.name, history)) is not None:
                found[cell.name, history] = expected
    return found


def expected_alignment(bundle: Bundle, worked: Workings, cell: str, history: str) -> AlignmentFile | None:
    """What one arm is to receive; None if atomics of a GPU decide, or its donor is not known."""
    plan = worked.cell[cell]
    if plan.alignment == "constructed":
        return bundle.native(history) if worked.plan.engine == "simulated" else None
    donor = worked.donors[cell, history]
    native = bundle.native(donor) if donor is not None else None
    return worked.once(("treated", cell, native), lambda: worked.treated(plan, native))


def _difference(expected: AlignmentFile, got: AlignmentFile) -> str:
    """How two legal alignments of one routing differ: in which slots, and in whose company."""
    slots = sum(a != b for a, b in zip(expected.sorted_token_ids, got.sorted_token_ids, strict=False))
    pairs = zip(membership(expected), membership(got), strict=False)
    blocks = [block for block, (a, b) in enumerate(pairs) if a != b]
    where = f"membership differs in blocks {several(blocks)}" if blocks else "with equal memberships"
    return f"another in {slots} slots, {where}"


@record_check("V504")
def source(bundle: Bundle, record: Record) -> Iterator[Found]:
    """V504: an alignment is constructed where the plan constructs it and injected everywhere else."""
    cell = bundle.planned.cell.get(record.cell)
    if cell is None:
        return  # V402
    expected = "constructed" if cell.alignment == "constructed" else "injected"
    if record.treatment.alignment.source != expected:
        yield Found(
            code="V504",
            file=record.path,
            key="treatment.alignment.source",
            expected=f"{expected}, since the cell's alignment is {cell.alignment}",
            got=record.treatment.alignment.source,
        )


@record_check("V505")
def buffers(bundle: Bundle, record: Record) -> Iterator[Found]:
    """V505: the buffers beyond the active prefix have the kernel's lengths (marlin-moe 2.3)."""
    fixture, block = bundle.planned.plan.fixture, bundle.planned.block
    lengths = geometry.buffer_lengths(fixture.routes, fixture.experts, block)
    for key, expected in zip(("sorted_length", "expert_length"), lengths, strict=True):
        if (got := getattr(record.treatment.alignment, key)) != expected:
            yield Found(
                code="V505",
                file=record.path,
                key=f"treatment.alignment.{key}",
                expected=str(expected),
                got=str(got),
            )


@check("V506")
def referred_to(bundle: Bundle) -> Iterator[Found]:
    """V506: every alignment is some record's: nothing lies in a bundle without a use."""
    if not all_read(bundle):
        return  # what the others cite is not known
    cited = Seen(facts.alignment for facts in bundle.kinds)
    for path in bundle.evidence.entries:
        if kind_of(path) == "alignment" and str(address_of(path)) not in cited:
            yield Found(
                code="V506", file=path, expected="an alignment that a record names", got="one that none does"
            )


CHECKS = (legal, there, delivered, source, buffers, referred_to)
