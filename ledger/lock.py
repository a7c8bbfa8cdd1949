"""The lock: what `mechanism freeze` fixes before any process starts."""

from typing import Annotated, Literal

from pydantic import Field

from ledger.model import Count, Frozen, Name, Positive, Sha256
from ledger.plan import Swap


class FileDigest(Frozen):
    """A named file by the sha256 of its bytes."""

    name: str
    sha256: Sha256


class TensorDigest(Frozen):
    """One fixture tensor: raw little-endian C-order bytes."""

    dtype: Literal["float16", "float32", "int32"]
    shape: tuple[Positive, ...]
    sha256: Sha256


class FixtureLock(Frozen):
    """The fixture by content. `digest` is that of this document without the key `digest`."""

    recipe: Sha256
    routing: Sha256
    tensors: dict[str, TensorDigest]
    digest: Sha256


class LaunchLock(Frozen):
    """The pinned launch of one GEMM, with the grid it gives."""

    name: Literal["w13", "w2"]
    tile_k: Positive
    tile_n: Positive
    threads: Positive
    ctas_per_sm: Positive
    grid: Positive


class LockedCell(Frozen):
    """One process to run: its place in the matrix and the treatment it is to receive.

    `donor` is the history whose native alignment is injected (null when constructed or stable);
    `grids` are the CTAs to launch for w13 and w2.
    """

    phase: Name
    cell: Name
    history: Name
    replicate: Positive
    alignment: Literal["constructed", "own", "opposite", "stable"]
    donor: Name | None
    swap: Swap | None
    grids: tuple[Positive, Positive]


class Lock(Frozen):
    """`<plan>.lock`, canonical JSON. `cells` are in the order in which they are started."""

    schema_version: Literal[1]
    plan: FileDigest
    ledger: FileDigest
    fixture: FixtureLock
    padded_blocks: Count
    launches: tuple[LaunchLock, LaunchLock]
    cells: Annotated[tuple[LockedCell, ...], Field(min_length=1)]
