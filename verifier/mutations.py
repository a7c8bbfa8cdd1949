"""Bad evidence made from good: one operation on one record, and everything around it made to fit again."""

from collections.abc import Callable
from typing import Any

from ledger.canonical import canonical, sha256
from ledger.claim import Mutation
from ledger.record import AlignmentFile, record_path
from verifier.bundle import Absent, Bundle, Facts
from verifier.evidence import EvidenceError, OverlayEvidence
from verifier.forger import MutationError, forge, read_json
from verifier.layout import alignment_path, object_path
from verifier.tensorfile import first_tensor_byte

_MOST_OBJECT = 256 * 2**20  # of a capture that is held in memory to flip one of its bits

Document = dict[str, Any]
#: Changes the record in place; gives the other files that the change brings with it.
Edit = Callable[[Document, Facts, Bundle], dict[str, bytes]]


def apply(mutation: Mutation, bundle: Bundle) -> OverlayEvidence:
    """The mutated bundle, in memory. Raises MutationError if it cannot be made from this one."""
    facts = _target(mutation.cell, mutation.history, mutation.replicate, bundle)
    document = read_json(bundle.evidence, facts.path)
    if mutation.donor is not None:
        donor = _target(mutation.donor.cell, mutation.donor.history, mutation.replicate, bundle)
        changed = _surfaces_replaced(document, donor, bundle)
    else:
        changed = _EDITS[mutation.operation](document, facts, bundle)
    return forge(bundle, {**changed, facts.path: canonical(document)})


def _target(cell: str, history: str, replicate: int, bundle: Bundle) -> Facts:
    try:
        phase = bundle.planned.phase.get(cell)
    except Absent as absent:
        raise MutationError(f"needs {absent}") from absent
    path = record_path(phase or "?", cell, history, replicate)
    if (facts := bundle.record(path)) is not None:
        return facts
    raise MutationError(f"there is no record {path}")


def _route_duplicated(document: Document, facts: Facts, bundle: Bundle) -> dict[str, bytes]:
    """One slot holds another route of its expert instead of its own: counts and blocks stay right."""
    alignment = _alignment(facts, bundle)
    slots, size = list(alignment.sorted_token_ids), alignment.block_size_m
    for place in range(1, len(slots)):
        if place % size and alignment.routes not in slots[place - 1 : place + 1]:
            slots[place] = slots[place - 1]
            return _realigned(document, alignment, slots)
    raise MutationError("no padded block holds two routes")


def _route_moved(document: Document, facts: Facts, bundle: Bundle) -> dict[str, bytes]:
    """Two routes of one expert change places across two padded blocks: legal, and not the treatment."""
    alignment = _alignment(facts, bundle)
    slots, size, experts = list(alignment.sorted_token_ids), alignment.block_size_m, alignment.expert_ids
    for block in range(1, len(experts)):
        if experts[block] == experts[block - 1]:
            first, second = block * size - 1, block * size
            slots[first], slots[second] = slots[second], slots[first]
            return _realigned(document, alignment, slots)
    raise MutationError("no expert fills two padded blocks")


def _alignment(facts: Facts, bundle: Bundle) -> AlignmentFile:
    alignment = bundle.alignments.get(facts.alignment)
    if alignment is None:
        raise MutationError(f"there is no readable {alignment_path(facts.alignment)}")
    return alignment


def _realigned(document: Document, alignment: AlignmentFile, slots: list[int]) -> dict[str, bytes]:
    data = canonical({**alignment.model_dump(mode="json"), "sorted_token_ids": slots})
    document["treatment"]["alignment"]["sha256"] = sha256(data)
    return {alignment_path(sha256(data)): data}


def _marker_removed(document: Document, _facts: Facts, _bundle: Bundle) -> dict[str, bytes]:
    """The marker in the middle is gone."""
    markers = document["markers"]
    if not markers:
        raise MutationError("the record has no marker")
    del markers[len(markers) // 2]
    return {}


def _marker_reordered(document: Document, _facts: Facts, _bundle: Bundle) -> dict[str, bytes]:
    """Two markers changed names, so that the times still ascend."""
    markers = document["markers"]
    if len(markers) < 2:
        raise MutationError("the record has no two markers")
    middle = len(markers) // 2
    one, other = markers[middle - 1], markers[middle]
    one["name"], other["name"] = other["name"], one["name"]
    return {}


def _surface_digest(document: Document, _facts: Facts, _bundle: Bundle) -> dict[str, bytes]:
    """The last surface has another digest; the trajectory stays."""
    surface = document["surfaces"][-1]
    surface["sha256"] = sha256(surface["sha256"].encode())
    return {}


def _tensor_bit(document: Document, facts: Facts, bundle: Bundle) -> dict[str, bytes]:
    """One bit of one captured tensor is flipped, in a copy of the capture that the record then names."""
    path = object_path(facts.capture)
    try:
        data = bytearray(bundle.evidence.read(path, _MOST_OBJECT))
    except EvidenceError as fault:
        raise MutationError(f"{path} cannot be read: {fault}") from fault
    place = first_tensor_byte(data)
    if place >= len(data):
        raise MutationError(f"{path} holds no tensor")
    data[place] ^= 1
    document["capture"] = sha256(bytes(data))
    return {object_path(document["capture"]): bytes(data)}


def _software_identity(document: Document, _facts: Facts, _bundle: Bundle) -> dict[str, bytes]:
    """The record names another build."""
    document["software"] = sha256(document["software"].encode())
    return {}


def _surfaces_replaced(document: Document, donor: Facts, bundle: Bundle) -> dict[str, bytes]:
    """The record has the donor's surfaces, and all that goes with them."""
    other = read_json(bundle.evidence, donor.path)
    document |= {key: other[key] for key in ("surfaces", "trajectory", "capture", "activation")}
    return {}


_EDITS: dict[str, Edit] = {
    "route-duplicated": _route_duplicated,
    "route-moved": _route_moved,
    "marker-removed": _marker_removed,
    "marker-reordered": _marker_reordered,
    "surface-digest": _surface_digest,
    "tensor-bit": _tensor_bit,
    "software-identity": _software_identity,
}
