"""Shape rules of the operator and of the layer that calls it (marlin-moe 3, 9.2, 9.3).

Every message names the rule, both numbers and the way out: nothing is floored in silence.
"""

from __future__ import annotations

from mechanism.kernel.errors import ShapeError

GROUPS = (-1, 32, 64, 128)  # group sizes that kernels exist for; -1 is one scale row (channelwise)


def require_gemm(
    *,
    n: int,
    k: int,
    group: int,
    block_size_m: int,
    tile_k: int | None = None,
    tile_n: int | None = None,
) -> None:
    """Refuse a GEMM that the operator refuses.

    Raises:
        ShapeError: Listing every broken rule.
    """
    found = gemm_faults(n=n, k=k, group=group, block_size_m=block_size_m, tile_k=tile_k, tile_n=tile_n)
    if found:
        raise ShapeError("; ".join(found))


def gemm_faults(
    *,
    n: int,
    k: int,
    group: int,
    block_size_m: int,
    tile_k: int | None = None,
    tile_n: int | None = None,
) -> tuple[str, ...]:
    """Rules that one GEMM breaks, in the operator's order (marlin-moe 9.2, 9.3); empty if legal."""
    if min(n, k) < 1:
        return (f"sizes must be positive: N={n}, K={k}",)
    found = []
    if block_size_m != 8 and (block_size_m % 16 or not 16 <= block_size_m <= 64):
        found.append(f"block_size_m must be 8 or a multiple of 16 up to 64: got {block_size_m}")
    if n % 64:
        found.append(f"N % 64 must be 0: N={n} leaves {n % 64}; pad N to {_up(n, 64)}")
    if k % 64:
        found.append(f"K % 64 must be 0: K={k} leaves {k % 64}; pad K to {_up(k, 64)}")
    if not found and k % 128 and n % 128:
        found.append(
            f"K % 128 or N % 128 must be 0 (tiles are 64x128 and 128x64): K={k} leaves {k % 128},"
            f" N={n} leaves {n % 128}; pad K to {_up(k, 128)} or N to {_up(n, 128)}"
        )
    found += _group_faults(k, group)
    if tile_k is not None and k % tile_k:
        found.append(f"tile_k must divide K: K={k} leaves {k % tile_k} over tile_k={tile_k}; use another")
    if tile_n is not None and n % tile_n:
        found.append(f"tile_n must divide N: N={n} leaves {n % tile_n} over tile_n={tile_n}; use another")
    return tuple(found)


def layer_faults(*, hidden: int, intermediate: int, group: int) -> tuple[str, ...]:
    """Rules for a layer to take the Marlin path (marlin-moe 3, end); empty if it does.

    Args:
        hidden: Hidden size H.
        intermediate: Intermediate size I per rank.
        group: Rows of K that share a scale; -1 cannot be loaded for a whole layer (1.4).
    """
    if min(hidden, intermediate) < 1:
        return (f"sizes must be positive: hidden={hidden}, intermediate={intermediate}",)
    found = []
    if hidden % 128:
        found.append(
            f"hidden % 128 must be 0: {hidden} leaves {hidden % 128}; pad hidden to {_up(hidden, 128)}"
        )
    if group == -1:
        found.append("group -1 cannot be loaded for a MoE layer; use 32, 64 or 128")
    elif group not in GROUPS:
        found.append(f"group must be one of {GROUPS[1:]}: got {group}; requantise with one of them")
    unit = max(64, group)
    if intermediate % unit:
        found.append(
            f"intermediate % max(64, group) must be 0: {intermediate} leaves {intermediate % unit} over"
            f" {unit}; use a group that divides it, or pad intermediate to {_up(intermediate, unit)}"
        )
    return tuple(found)


def require_layer(*, hidden: int, intermediate: int, group: int) -> None:
    """Refuse a layer that would not take the Marlin path.

    Raises:
        ShapeError: Listing every broken rule.
    """
    found = layer_faults(hidden=hidden, intermediate=intermediate, group=group)
    if found:
        raise ShapeError("; ".join(found))


def _group_faults(k: int, group: int) -> list[str]:
    if group not in GROUPS:
        return [f"group must be one of {GROUPS}: got {group}; no kernel was compiled for it"]
    if group != -1 and k % group:
        return [f"K % group must be 0: K={k} leaves {k % group} over group {group}; pad K to {_up(k, group)}"]
    return []


def _up(size: int, unit: int) -> int:
    return -(-size // unit) * unit
