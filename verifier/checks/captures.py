"""V8xx, the captures: trajectories and who has which file at `records`; the bytes themselves at `raw`."""

from collections.abc import Iterator, Sequence
from functools import partial

from ledger.canonical import sha256
from ledger.record import Record
from verifier.bundle import Bundle, Capture, Facts
from verifier.checks.check import check, record_check
from verifier.checks.coverage import all_read
from verifier.evidence import EvidenceError
from verifier.found import Found, show
from verifier.layout import address_of, kind_of, limit_of, object_path
from verifier.store.table import Firsts, Seen
from verifier.tensorfile import TensorFileError, read_tensors


@check("V802")
def captures_there(bundle: Bundle) -> Iterator[Found]:
    """V802: if the bundle includes its captures, every record's is there. One listed and gone is V102."""
    if bundle.summary.raw != "included":
        return
    yield from bundle.look(partial(_captures_there, bundle))


def _captures_there(bundle: Bundle, records: Sequence[Facts]) -> Iterator[Found]:
    for facts in records:
        path = object_path(facts.capture)
        if path not in bundle.evidence.entries and path not in bundle.manifest.lines:
            yield Found(
                code="V802",
                file=facts.path,
                key="capture",
                expected=f"a capture in the bundle, {path}",
                got="none",
            )


@check("V803")
def captures_left_out(bundle: Bundle) -> Iterator[Found]:
    """V803: a bundle that says its captures are left out has none."""
    if bundle.summary.raw != "left-out":
        return
    for path in bundle.evidence.entries:
        if kind_of(path) == "object":
            yield Found(
                code="V803", file=path, expected="no capture, since bundle.json says raw: left-out", got="one"
            )


@record_check("V804")
def trajectory(_bundle: Bundle, record: Record) -> Iterator[Found]:
    """V804: a trajectory is the digest of the surfaces' digests, in order (ledger/record.py)."""
    # hexadecimal digests need no escapes: this is their list's canonical JSON
    listed = ",".join(f'"{surface.sha256}"' for surface in record.surfaces)
    if record.trajectory != (expected := sha256(f"[{listed}]".encode())):
        yield Found(
            code="V804",
            file=record.path,
            key="trajectory",
            expected=f"{expected}, from its surfaces",
            got=record.trajectory,
        )


@check("V805")
def captures_referred_to(bundle: Bundle) -> Iterator[Found]:
    """V805: every capture is some record's: nothing lies in a bundle without a use."""
    if not all_read(bundle):
        return  # what the others cite is not known
    cited = Seen(facts.capture for facts in bundle.kinds)
    for path in bundle.evidence.entries:
        if kind_of(path) == "object" and str(address_of(path)) not in cited:
            yield Found(
                code="V805", file=path, expected="a capture that a record names", got="one that none does"
            )


@check("V810")
def one_trajectory_each(bundle: Bundle) -> Iterator[Found]:
    """V810: records that name one capture have one trajectory: the same bytes cannot be two results."""
    return bundle.look(_trajectories)


def _trajectories(records: Sequence[Facts]) -> Iterator[Found]:
    first = Firsts(records)
    for place, facts in enumerate(records):
        model = first.of(facts.capture, place)
        if facts.trajectory != model.trajectory:
            yield Found(
                code="V810",
                file=facts.path,
                key="trajectory",
                expected=f"{model.trajectory}, as in {model.path}, which names the same capture",
                got=facts.trajectory,
                arms=frozenset({facts.arm, model.arm}),
            )


@check("V809")
def captures_to_check(bundle: Bundle) -> Iterator[Found]:
    """V809: at level raw there must be captures to check."""
    if bundle.summary.raw == "left-out":
        yield Found(
            code="V809",
            file="bundle.json",
            key="raw",
            expected="captures, to check them at level raw; get the release that includes them",
            got="left-out",
        )


@check("V806")
def well_formed(bundle: Bundle) -> Iterator[Found]:
    """V806: every capture is a safetensors file without gaps, overlaps or bytes to spare."""
    for facts in _one_per_capture(bundle):
        capture = capture_of(bundle, facts.capture)
        if capture is not None and capture.fault is not None:
            expected, _, got = capture.fault.partition(", got ")
            yield Found(
                code="V806",
                file=object_path(facts.capture),
                expected=expected.removeprefix("expected "),
                got=got,
            )


@check("V807")
def right_tensors(bundle: Bundle) -> Iterator[Found]:
    """V807: a capture holds the record's surfaces, each with its type and shape, and no other tensor."""
    return bundle.look(partial(_right_tensors, bundle))


def _right_tensors(bundle: Bundle, records: Sequence[Facts]) -> Iterator[Found]:
    for item in records:
        if (capture := capture_of(bundle, item.capture)) is None or capture.fault:
            continue
        wanted: dict[str, str] = {s.name: f"{s.dtype} {list(s.shape)}" for s in item.tensors}
        got = {name: f"{t.dtype} {list(t.shape)}" for name, t in capture.tensors.items()}
        for name in sorted({*wanted, *got}):
            if wanted.get(name) != got.get(name):
                yield Found(
                    code="V807",
                    file=object_path(item.capture),
                    key=name,
                    expected=f"{wanted.get(name, 'no such tensor')}, as {item.path} has it",
                    got=got.get(name, "no such tensor"),
                    arms=frozenset({item.arm}),
                )


@check("V801")
def captured_bytes(bundle: Bundle) -> Iterator[Found]:
    """V801: the bytes of every captured tensor have the sha256 that the record gives."""
    return bundle.look(partial(_captured_bytes, bundle))


def _captured_bytes(bundle: Bundle, records: Sequence[Facts]) -> Iterator[Found]:
    for item in records:
        if (capture := capture_of(bundle, item.capture)) is None:
            continue
        for place, surface in enumerate(item.tensors):
            tensor = capture.tensors.get(surface.name)
            if tensor is not None and tensor.sha256 != surface.sha256:
                yield Found(
                    code="V801",
                    file=item.path,
                    key=f"surfaces[{place}].sha256",
                    expected=f"{tensor.sha256}, of {surface.name} in {object_path(item.capture)}",
                    got=surface.sha256,
                )


@check("V808")
def not_a_number(bundle: Bundle) -> Iterator[Found]:
    """V808: a record whose capture holds a NaN says that it rests on U4 (marlin-moe 9.1)."""
    return bundle.look(partial(_not_a_number, bundle))


def _not_a_number(bundle: Bundle, records: Sequence[Facts]) -> Iterator[Found]:
    for item in records:
        if (capture := capture_of(bundle, item.capture)) is None:
            continue
        names = sorted(name for name, tensor in capture.tensors.items() if tensor.has_nan)
        if names and "U4" not in item.assumptions:
            yield Found(
                code="V808",
                file=item.path,
                key="assumptions",
                expected=f"U4, since {', '.join(map(show, names))} hold NaNs",
                got=", ".join(item.assumptions) or "none",
            )


def capture_of(bundle: Bundle, address: str) -> Capture | None:
    """A capture's tensors, read once per content; None if the file is not there to be read."""
    path = object_path(address)
    if not bundle.has(path) or bundle.evidence.entries[path].size > limit_of(path):
        return None
    try:
        return bundle.library.once(("capture", bundle.evidence.digest(path)), lambda: _read(bundle, path))
    except EvidenceError:
        return None  # V104


def _read(bundle: Bundle, path: str) -> Capture:
    try:
        tensors = read_tensors(bundle.evidence.chunks(path), bundle.evidence.entries[path].size)
    except TensorFileError as fault:
        return Capture(tensors={}, fault=str(fault))
    return Capture(tensors=tensors, fault=None)


def _one_per_capture(bundle: Bundle) -> Iterator[Facts]:
    seen = Seen()
    return (facts for facts in bundle.kinds if seen.add(facts.capture))


CHECKS = (captures_there, captures_left_out, trajectory, captures_referred_to, one_trajectory_each)
RAW_CHECKS = (captures_to_check, well_formed, right_tensors, captured_bytes, not_a_number)
