"""From a fixture's numbers to the kernel's: block size, GEMM shapes, buffer lengths, surface shapes."""

from dataclasses import dataclass
from typing import Literal

from ledger.plan import AnyFixture, Gemm, Surface

#: Builds whose alignment and schedule are those of marlin-moe 2 and 5 (appendix A.2 for the second).
KERNELS = ("vllm==0.22.0", "vllm==0.29.0")
BLOCK_SIZES = (8, 16, 32, 48, 64)
CHANNELWISE = -1


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """One GEMM: columns `n`, reduction length `k`, rows of k per scale `group` (-1: one scale row)."""

    name: Gemm
    n: int
    k: int
    group: int


def block_size(tokens: int, top_k: int, experts: int) -> int:
    """Rows of a padded block (marlin-moe 2.2), in doubles, left to right, as the operator does."""
    for size in BLOCK_SIZES:
        if tokens * top_k / experts / size < 0.9:
            return size
    return BLOCK_SIZES[-1]


def shapes(fixture: AnyFixture) -> tuple[Shape, Shape]:
    """W13 (N = 2I, K = H) and W2 (N = H, K = I); one scale row means channelwise (marlin-moe 1.4)."""
    return (
        _shape("w13", 2 * fixture.intermediate, fixture.hidden, fixture.group_size),
        _shape("w2", fixture.hidden, fixture.intermediate, fixture.group_size),
    )


def _shape(name: Literal["w13", "w2"], n: int, k: int, group: int) -> Shape:
    return Shape(name=name, n=n, k=k, group=group if k // group > 1 else CHANNELWISE)


def threads(tile_k: int, tile_n: int) -> int:
    """Threads of a CTA: 64 tile elements each, for every tile the kernel has (marlin-moe 4.1, 4.3)."""
    return tile_k * tile_n // 64


def buffer_lengths(routes: int, experts: int, block: int) -> tuple[int, int]:
    """Lengths of sorted_token_ids and of expert_ids as allocated (marlin-moe 2.3)."""
    length = routes + experts * (block - 1)
    if routes < experts:
        length = min(routes * block, length)
    return length, -(-length // block)


def surface_shape(fixture: AnyFixture, surface: Surface) -> tuple[int, int]:
    """Rows and columns of a captured surface (marlin-moe appendix B)."""
    return {
        "w13": (fixture.routes, 2 * fixture.intermediate),
        "activation": (fixture.routes, fixture.intermediate),
        "w2": (fixture.routes, fixture.hidden),
        "output": (fixture.tokens, fixture.hidden),
    }[surface]
