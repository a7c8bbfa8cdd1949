"""Which alignment a cell is to receive, as the bytes that it will read. Pure.

A cell knows its injected alignment by digest alone; where it came from is decided here, before it starts.
"""

from ledger.canonical import canonical, parse_canonical
from ledger.lock import LockedCell
from ledger.record import AlignmentFile, RoutingFile
from mechanism.errors import CampaignError
from mechanism.kernel import alignment
from mechanism.kernel.alignment import Alignment


def to_bytes(value: Alignment) -> bytes:
    """The alignment's active prefix as the bytes of its file."""
    return canonical(
        {
            "schema_version": 1,
            "block_size_m": value.block_size_m,
            "routes": value.routes,
            "sorted_token_ids": list(value.sorted_token_ids),
            "expert_ids": list(value.expert_ids),
            "num_tokens_post_padded": value.num_tokens_post_padded,
        }
    )


def from_bytes(data: bytes, *, experts: int, kernel: str) -> Alignment:
    """An alignment from its file's bytes; buffer lengths are those the kernel allocates (marlin-moe 2.3)."""
    file = AlignmentFile.model_validate_json(canonical(parse_canonical(data)))
    lengths = alignment.buffer_lengths(file.routes, experts, file.block_size_m, kernel=kernel)
    return Alignment(
        block_size_m=file.block_size_m,
        routes=file.routes,
        sorted_token_ids=file.sorted_token_ids,
        expert_ids=file.expert_ids,
        num_tokens_post_padded=file.num_tokens_post_padded,
        sorted_length=lengths[0],
        expert_length=lengths[1],
    )


def injected(
    cell: LockedCell, *, donor: bytes | None, routing: RoutingFile, block_size_m: int, kernel: str
) -> bytes:
    """The bytes that the cell is to inject.

    Args:
        cell: A cell whose alignment is not constructed.
        donor: Bytes of the native alignment of the cell's donor history; None for a stable order.
        routing: What the alignment must be an alignment of.
        block_size_m: Rows of a padded block.
        kernel: The pinned build.

    Raises:
        CampaignError: The cell injects nothing, or its donor is missing.
        AlignmentError: A swap of routes that are not of one expert.
    """
    if cell.alignment == "constructed" or (cell.donor is None) != (donor is None):
        raise CampaignError(
            f"{cell.cell} under {cell.history}: expected an injected alignment with its donor,"
            f" got {cell.alignment} with donor {cell.donor}"
        )
    if donor is None:
        value = alignment.stable(
            routing.topk_ids, experts=routing.experts, block_size_m=block_size_m, kernel=kernel
        )
    else:
        value = from_bytes(donor, experts=routing.experts, kernel=kernel)
    if cell.swap is not None:
        value = alignment.exchange(value, *cell.swap.routes)
    found = alignment.faults(value, routing.topk_ids, experts=routing.experts, kernel=kernel)
    if found:
        raise CampaignError(f"{cell.cell} under {cell.history}: not an alignment of the routing: {found[0]}")
    return to_bytes(value)
