"""The record of one valid cold process, and the documents it points to.

Executed slices are digested as the canonical JSON list of [block, column tile, [[cta, begin, end], ...]]
sorted by block, then column tile; slices ascending in k, `begin` and `end` in k-tiles (marlin-moe 5.3).
A trajectory is the sha256 of the canonical JSON list of its surfaces' sha256, in the plan's order.
"""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from ledger.model import Assumptions, Count, Frozen, Name, Nonce, Positive, Sha256, Text
from ledger.plan import EngineName, Surface

Evidence = Literal["simulated", "gpu"]
MARKERS = ("started", "fixture-verified", "history-applied", "aligned", "executed", "captured", "recorded")
SYMBOLS = ("$PYTHON", "$BUNDLE", "$CACHE")


class Marker(Frozen):
    """A point that the process passed. `time_us`: monotonic clock, microseconds."""

    name: Literal[
        "started", "fixture-verified", "history-applied", "aligned", "executed", "captured", "recorded"
    ]
    time_us: Count


class Containment(Frozen):
    """What held a process, as it found itself held; the same throughout a cohort.

    `by`: mount and network namespaces, Landlock, or file modes alone. `bundle`: whether it could write into
    bundle or fixture; `elsewhere`: beside the bundle; its own files apart. `network`: none, no TCP, or the
    machine's. `memory` (address space) and `file_size` in bytes, `processes` of its user: null where no limit
    binds. `nice`: its priority.
    """

    by: Literal["namespaces", "landlock", "modes"]
    bundle: Literal["read-only", "writable"]
    elsewhere: Literal["read-only", "writable"]
    network: Literal["none", "no-tcp", "host"]
    memory: Positive | None
    file_size: Positive | None
    processes: Positive | None
    nice: Annotated[int, Field(ge=-20, le=19)]


class Process(Frozen):
    """Which process this was. `started_us`: microseconds from boot; paths in argv are symbolic."""

    pid: Positive
    started_us: Count
    boot_id: Sha256
    nonce: Nonce
    flags: dict[str, int]
    hash_seed: str
    argv: Annotated[tuple[str, ...], Field(min_length=1)]
    environment: dict[str, str]
    working_folder: Literal["/"]
    containment: Containment


class DeliveredAlignment(Frozen):
    """The alignment that the engine used: active prefix by digest, buffer lengths apart."""

    source: Literal["constructed", "injected"]
    sha256: Sha256
    sorted_length: Count
    expert_length: Count


class DeliveredGemm(Frozen):
    """One launch as delivered. `slices`: digest of the slices that were executed, not of the plan."""

    name: Literal["w13", "w2"]
    tile_k: Positive
    tile_n: Positive
    threads: Positive
    grid: Positive
    symbol: Text
    slices: Sha256


class Treatment(Frozen):
    """The treatment as delivered."""

    alignment: DeliveredAlignment
    gemms: tuple[DeliveredGemm, DeliveredGemm]


class CapturedSurface(Frozen):
    """One captured tensor; `sha256` is of its raw little-endian C-order bytes."""

    name: Surface
    dtype: Literal["float16", "bfloat16"]
    shape: tuple[Positive, Positive]
    byte_order: Literal["little"]
    sha256: Sha256


class Activation(Frozen):
    """What the capture owes to the 15 gate values whose silu is open (marlin-moe 8.1, U2)."""

    candidate: Literal["rn32", "device"]
    ambiguous_elements: Count


class Record(Frozen):
    """One valid cold process; the file's bytes are this document's canonical JSON."""

    schema_version: Literal[1]
    evidence: Evidence
    engine: EngineName
    plan: Sha256
    phase: Name
    cell: Name
    history: Name
    replicate: Positive
    attempt: Count
    process: Process
    markers: tuple[Marker, ...]
    software: Sha256
    fixture: Sha256
    treatment: Treatment
    surfaces: Annotated[tuple[CapturedSurface, ...], Field(min_length=1)]
    trajectory: Sha256
    capture: Sha256
    activation: Activation
    assumptions: Assumptions

    @property
    def path(self) -> str:
        """Where the record lies in its bundle."""
        return record_path(self.phase, self.cell, self.history, self.replicate)


def record_path(phase: str, cell: str, history: str, replicate: int) -> str:
    """Where the record of a process lies in its bundle."""
    return f"records/{phase}.{cell}.{history}.{replicate}.json"


class AlignmentFile(Frozen):
    """`alignments/<sha256>.json`: the active prefix of one alignment, canonical JSON."""

    schema_version: Literal[1]
    block_size_m: Positive
    routes: Count
    sorted_token_ids: tuple[Count, ...]
    expert_ids: tuple[Count, ...]
    num_tokens_post_padded: Count


class RoutingFile(Frozen):
    """`routing.json`: what an alignment must be an alignment of; weights as fp32 bit patterns."""

    schema_version: Literal[1]
    tokens: Positive
    top_k: Positive
    experts: Positive
    topk_ids: tuple[tuple[Count, ...], ...]
    topk_weights_bits: tuple[tuple[Annotated[int, Field(ge=0, le=2**32 - 1)], ...], ...]


Version = Annotated[str, StringConstraints(max_length=200)]


class BuildFile(Frozen):
    """`build.json`: software identity of a cohort. `source` is what computed the bits, file by file."""

    schema_version: Literal[1]
    evidence: Evidence
    engine: EngineName
    kernel: Version
    arithmetic: Version
    device: dict[str, str | int]
    driver: Version | None
    versions: dict[str, Version]
    source: dict[str, Sha256]
