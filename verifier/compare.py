"""Two bundles compared: the first surface, row and column whose bits differ, and whose block they are."""

from collections.abc import Iterator

from ledger.canonical import CanonicalError, parse
from ledger.record import record_path
from verifier.arithmetic.alignment import blocks_of
from verifier.arithmetic.geometry import surface_shape
from verifier.bundle import Absent, Bundle, Facts
from verifier.evidence import Evidence, EvidenceError
from verifier.layout import Slot, object_path
from verifier.library import Library
from verifier.load import load
from verifier.tensorfile import first_tensor_byte

_WIDTH = 2
_MOST = 256 * 2**20  # of a capture that is held in memory to be compared


def differences(one: Evidence, other: Evidence) -> tuple[bool, tuple[str, ...]]:
    """Whether two bundles agree on every surface of every process that both have; and that in words."""
    library = Library()
    left, right = load(one, library), load(other, library)
    lines = list(_documents(left, right))
    mine, theirs = _records(left), _records(right)
    lines += (
        f"{record_path(*slot)}: in {'the first' if slot in mine else 'the second'} bundle only"
        for slot in sorted(mine.keys() ^ theirs.keys())
    )
    both = sorted(mine.keys() & theirs.keys())
    if not both:
        return False, (*lines, "no process that both bundles have")
    wrong = [slot for slot in both if _surface(mine[slot], theirs[slot]) is not None]
    if not wrong:
        same = mine.keys() == theirs.keys()
        return same, (*lines, f"equal bits on every surface of {len(both)} processes")
    lines.append(f"bits differ in {len(wrong)} of {len(both)} processes; the first one:")
    return False, (*lines, *_where(left, right, mine[wrong[0]], theirs[wrong[0]]))


def _documents(left: Bundle, right: Bundle) -> Iterator[str]:
    for path in ("plan.yaml", "plan.lock", "ledger.yaml", "build.json", "routing.json"):
        if left.digests.get(path) != right.digests.get(path):
            yield f"{path}: {left.digests.get(path, 'none')} and {right.digests.get(path, 'none')}"


def _records(bundle: Bundle) -> dict[Slot, Facts]:
    return {facts.slot: facts for facts in bundle.facts}


def _surface(one: Facts, other: Facts) -> int | None:
    """The place of the first surface that differs."""
    for place, surface in enumerate(one.tensors):
        if place >= len(other.tensors) or surface.sha256 != other.tensors[place].sha256:
            return place
    return None


def _where(left: Bundle, right: Bundle, one: Facts, other: Facts) -> Iterator[str]:
    place = _surface(one, other) or 0
    name = one.tensors[place].name
    yield f"{one.path}: {name}"
    first, second = (_bytes(bundle, record, place) for bundle, record in ((left, one), (right, other)))
    if first is None or second is None:
        which = "first" if first is None else "second"
        yield f"row, column and bits cannot be told: the {which} bundle is without raw objects"
        return
    at = next((p for p, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), None)
    if at is None:
        yield "its captured bytes are equal: a digest in one of the records is wrong; see check --level raw"
        return
    at //= _WIDTH
    columns = one.tensors[place].shape[1]
    row, column = divmod(at, columns)
    bits = (int.from_bytes(data[_WIDTH * at : _WIDTH * at + _WIDTH], "little") for data in (first, second))
    yield f"row {row}, column {column}: 0x{next(bits):04x} and 0x{next(bits):04x}"
    yield from _tile(left, one, name, row, column)


def _bytes(bundle: Bundle, record: Facts, place: int) -> bytes | None:
    """The captured bytes of one surface; None if they are not there or no well-formed capture holds them."""
    path = object_path(record.capture)
    if not bundle.has(path):
        return None
    try:
        data = bundle.evidence.read(path, _MOST)
        begin = first_tensor_byte(data)
        first, last = parse(data[8:begin])[record.tensors[place].name]["data_offsets"]
        return data[begin + first : begin + last]
    except (EvidenceError, CanonicalError, KeyError, TypeError, ValueError):
        return None


def _tile(bundle: Bundle, record: Facts, name: str, row: int, column: int) -> Iterator[str]:
    """Padded block and column tile of an element, where one GEMM made it."""
    try:
        launches, fixture = bundle.plan.build.launch, bundle.plan.fixture
    except Absent as absent:
        yield f"its padded block cannot be told without {absent}"
        return
    alignment = bundle.alignments.get(record.alignment)
    if name == "output" or row >= fixture.routes or surface_shape(fixture, "w13")[0] <= row:
        routes = range(row * fixture.top_k, (row + 1) * fixture.top_k)
        yield f"a sum over routes {routes.start} to {routes.stop - 1}, of several padded blocks"
        return
    if alignment is None or not (blocks := blocks_of(alignment, row)):
        yield f"route {row}; its padded block cannot be told without its alignment"
        return
    tile = (launches.w2 if name == "w2" else launches.w13).tile[1]
    gemm = "w2" if name == "w2" else "w13"
    yield f"route {row}: padded block {blocks[0]}, column tile {column // tile} of {gemm}"
