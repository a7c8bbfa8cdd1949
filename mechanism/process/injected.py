"""An alignment that arrives as bytes with a digest. There is no code for histories on this path."""

from collections.abc import Sequence
from pathlib import Path

from ledger.canonical import CanonicalError, parse_canonical, sha256
from mechanism.engine.asked import Shape
from mechanism.errors import CellError
from mechanism.kernel.alignment import Alignment, buffer_lengths, faults

_KEYS = {
    "schema_version",
    "block_size_m",
    "routes",
    "sorted_token_ids",
    "expert_ids",
    "num_tokens_post_padded",
}


class Injection:
    """An alignment to be used once, in the layer it was made for."""

    def __init__(self, alignment: Alignment, sha256: str) -> None:
        self._alignment = alignment
        self._sha256 = sha256
        self._used = False

    def take(self, shape: Shape) -> Alignment:
        """The alignment, for a layer of this shape.

        Raises CellError if it was taken before, or is of a layer of another shape; nothing is run then.
        """
        if self._used:
            raise CellError(f"alignment {self._sha256}: expected to be injected once, got a second time")
        for name, expected, got in (
            ("routes", shape.tokens * shape.top_k, self._alignment.routes),
            ("block_size_m", shape.block_size_m, self._alignment.block_size_m),
        ):
            if expected != got:
                raise CellError(
                    f"alignment {self._sha256}: expected one of a layer with {name} {expected}, got {got}"
                )
        self._used = True
        return self._alignment


def read_injection(folder: Path, digest: str, *, experts: int, kernel: str) -> Injection:
    """The injection in `folder`/<digest>.json. Raises CellError unless it has exactly these bytes."""
    path = folder / f"{digest}.json"
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise CellError(f"{path}: expected the alignment to inject, found no file") from None
    if (got := sha256(data)) != digest:
        raise CellError(f"{path}: expected the content its name says, got sha256 {got}")
    try:
        value = parse_canonical(data)
    except CanonicalError as fault:
        raise CellError(f"{path}: {fault}") from fault
    if not isinstance(value, dict) or value.keys() != _KEYS:
        raise CellError(f"{path}: expected an alignment file, got other keys")
    lengths = buffer_lengths(value["routes"], experts, value["block_size_m"], kernel=kernel)
    alignment = Alignment(
        block_size_m=value["block_size_m"],
        routes=value["routes"],
        sorted_token_ids=tuple(value["sorted_token_ids"]),
        expert_ids=tuple(value["expert_ids"]),
        num_tokens_post_padded=value["num_tokens_post_padded"],
        sorted_length=lengths[0],
        expert_length=lengths[1],
    )
    return Injection(alignment, digest)


def require_legal(
    alignment: Alignment, topk_ids: Sequence[Sequence[int]], *, experts: int, kernel: str
) -> None:
    """Raise CellError unless the alignment is one that some order of the atomics gives for this routing."""
    found = faults(alignment, topk_ids, experts=experts, kernel=kernel)
    if found:
        raise CellError(f"not an alignment of this routing: {'; '.join(found[:5])}")
