"""What a cold process is asked to do: a file that the runner writes and the child reads.

Plain data on both sides. In a cell whose alignment is injected the request holds a digest and no arrival
order: that path has no way to learn of a history's.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from ledger.canonical import canonical, parse_canonical
from mechanism.engine.asked import LaunchRequest, Shape
from mechanism.values import frozen

REQUEST = "request.json"
BUILD = "build.json"


@frozen
class CellRequest:
    """One replicate of one cell.

    Attributes:
        plan: The plan's sha256.
        engine: Its name.
        phase: With `cell`, `history` and `replicate`, the place in the matrix.
        attempt: The number of this process in the attempts log.
        nonce: 32 hexadecimal digits from the runner, to be given back.
        kernel: The pinned build, e.g. `vllm==0.22.0`.
        device: The pinned device: name, arch, sms, shared_memory (bytes).
        launches: w13 and w2.
        shape: The layer's sizes.
        fixture: The frozen fixture (`ledger.lock.FixtureLock` as JSON).
        fixture_folder: Where it lies.
        arrival: The history's arrival (`ledger.plan.Arrival` as JSON); None if the alignment is injected.
        injected: The sha256 of the alignment to inject, a file in the bundle; None if it is constructed.
        rests_on: Assumptions that the injected alignment rests on; how it came about is not said.
        record: Where the record is to lie, relative to bundle and staging alike.
        surfaces: Tensors to capture, in order.
        environment: What the process must find itself in.
        symbols: (real path, symbol) pairs.
        bundle: Folder to read alignments from.
        staging: Folder to write to, and the only one.
        containment: How the process is held (`mechanism.process.containment`); it looks for itself.
    """

    plan: str
    engine: str
    phase: str
    cell: str
    history: str
    replicate: int
    attempt: int
    nonce: str
    kernel: str
    device: Mapping[str, str | int]
    launches: tuple[LaunchRequest, LaunchRequest]
    shape: Shape
    fixture: Mapping[str, Any]
    fixture_folder: str
    arrival: Mapping[str, Any] | None
    injected: str | None
    rests_on: tuple[str, ...]
    record: str
    surfaces: tuple[str, ...]
    environment: Mapping[str, str]
    symbols: tuple[tuple[str, str], ...]
    bundle: str
    staging: str
    containment: str

    def __post_init__(self) -> None:
        if (self.arrival is None) == (self.injected is None):
            raise ValueError("expected an arrival order or an alignment to inject, and not both")

    def to_bytes(self) -> bytes:
        """The request file's bytes, canonical JSON."""
        return canonical({field.name: _plain(getattr(self, field.name)) for field in fields(self)})


def _plain(value: Any) -> Any:
    """The same as what JSON reads back: lists for tuples, objects for values of ours."""
    if isinstance(value, LaunchRequest | Shape):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def read_request(data: bytes) -> CellRequest:
    """A request from its file's bytes. Raises ValueError, TypeError or KeyError if they are not one."""
    value = parse_canonical(data)
    w13, w2 = (LaunchRequest(**launch) for launch in value.pop("launches"))
    return CellRequest(
        **{
            **value,
            "launches": (w13, w2),
            "shape": Shape(**value["shape"]),
            "rests_on": tuple(value["rests_on"]),
            "surfaces": tuple(value["surfaces"]),
            "symbols": tuple((path, symbol) for path, symbol in value["symbols"]),
        }
    )
