"""Launch configuration: which tile and how many CTAs the host code chooses (marlin-moe 4)."""

from __future__ import annotations

from dataclasses import replace

from mechanism.kernel import versions
from mechanism.kernel.devices import Device, registers
from mechanism.kernel.errors import ConfigurationError
from mechanism.kernel.shapes import require_gemm
from mechanism.values import frozen

# (tile_k, tile_n, threads) in priority order (marlin-moe 4.1)
_SMALL = ((128, 128, 256), (64, 128, 128), (128, 64, 128))
_LARGE = ((64, 256, 256), (64, 128, 128), (128, 64, 128))


@frozen
class Launch:
    """One launch of the kernel.

    Attributes:
        tile_k: K extent of a threadblock tile.
        tile_n: N extent of a threadblock tile.
        threads: Threads per CTA.
        ctas_per_sm: CTAs per multiprocessor; 0 for a grid that the unpatched operator cannot launch.
        grid: CTAs launched.
    """

    tile_k: int
    tile_n: int
    threads: int
    ctas_per_sm: int
    grid: int


def candidates(block_size_m: int, *, kernel: str = versions.DEFAULT) -> tuple[tuple[int, int, int], ...]:
    """(tile_k, tile_n, threads) that the host code tries, in order (marlin-moe 4.1, A.1)."""
    tiles = _SMALL if block_size_m <= 16 else _LARGE
    return tiles[:2] if versions.version(kernel).stream_k else tiles


def shared_memory(*, block_size_m: int, tile_k: int, tile_n: int, group: int) -> int:
    """The host code's estimate of shared memory, bytes (marlin-moe 4.2)."""
    rows = 16 * -(-block_size_m // 16)
    a = 4 * rows * tile_k * 2
    b = 4 * (tile_k * tile_n // 8) * 4
    reduction = rows * (tile_n + 8) * 2
    bias = 2 * tile_n
    scale_rows = 1 if group == -1 else -(-tile_k // group)
    scales = 4 * scale_rows * tile_n * 2
    zeros = scales // 4
    return max(b, reduction, min(b, reduction) + bias) + a + scales + zeros + 16 * rows


def choose(
    device: Device,
    *,
    n: int,
    k: int,
    group: int,
    block_size_m: int,
    routes: int,
    dtype: str = "float16",
    kernel: str = versions.DEFAULT,
) -> Launch:
    """The configuration that the host code picks by itself (marlin-moe 4.3).

    Args:
        device: Architecture, multiprocessors, shared memory.
        n: Output columns.
        k: Reduction length.
        group: Rows of K that share a scale, or -1 for channelwise.
        block_size_m: Slots per padded block.
        routes: tokens * top_k, for both GEMMs.
        dtype: ``float16`` or ``bfloat16``.
        kernel: Build, as in ``versions``.

    Raises:
        ShapeError: The operator refuses the shape.
        ConfigurationError: No candidate fits, or register counts are not known.
    """
    require_gemm(n=n, k=k, group=group, block_size_m=block_size_m)
    if versions.version(kernel).stream_k:
        raise ConfigurationError(
            f"register counts of {kernel} are not known, and they decide tile and grid;"
            " give the tile and CTAs per SM explicitly"
        )
    best = None
    for tile_k, tile_n, threads in candidates(block_size_m):
        cache = shared_memory(block_size_m=block_size_m, tile_k=tile_k, tile_n=tile_n, group=group)
        if k % tile_k or n % tile_n or cache > device.shared_memory - 512:
            continue
        compiled = {"block_size_m": block_size_m, "tile_k": tile_k, "tile_n": tile_n, "group": group}
        count = registers(arch=device.arch, dtype=dtype, **compiled)
        if count is None:
            continue
        by_registers, by_memory = 261_120 // (count * threads * 4), device.shared_memory // (cache + 1536)
        allow = max(1, min(by_registers, by_memory, 4 if block_size_m <= 16 else 2))
        work = (n // tile_n) * routes * 4
        if work < device.sms * allow:
            allow = max(work // device.sms, 1)
        if best is None or allow > best.ctas_per_sm:  # a later candidate must fit strictly more CTAs
            grid = device.sms * allow
            best = Launch(tile_k=tile_k, tile_n=tile_n, threads=threads, ctas_per_sm=allow, grid=grid)
    if best is None:
        raise ConfigurationError(
            f"no tile fits N={n}, K={k}, group {group}, block {block_size_m} in {device.shared_memory} bytes"
            f" of shared memory on {device.name}; a smaller block needs less"
        )
    return best


def explicit(  # noqa: PLR0913 - the operator's own arguments
    device: Device,
    *,
    n: int,
    k: int,
    group: int,
    block_size_m: int,
    tile_k: int,
    tile_n: int,
    ctas_per_sm: int = 1,
    kernel: str = versions.DEFAULT,
) -> Launch:
    """The configuration for a tile given to the operator (marlin-moe 4.3, end; 9.3, 22 to 24).

    Raises:
        ShapeError: The operator refuses the shape, or the tile does not divide it.
        ConfigurationError: No kernel was compiled for the tile, or it does not fit.
    """
    require_gemm(n=n, k=k, group=group, block_size_m=block_size_m, tile_k=tile_k, tile_n=tile_n)
    tiles = candidates(block_size_m, kernel=kernel)
    if (tile_k, tile_n) not in [tile[:2] for tile in tiles]:
        known = ", ".join(f"{tk}x{tn}" for tk, tn, _ in tiles)
        raise ConfigurationError(
            f"tile {tile_k}x{tile_n}: no kernel was compiled for block {block_size_m}; use one of {known}"
        )
    if ctas_per_sm < 1:
        raise ConfigurationError(f"ctas_per_sm: expected 1 or more, got {ctas_per_sm}")
    cache = shared_memory(block_size_m=block_size_m, tile_k=tile_k, tile_n=tile_n, group=group)
    limit = device.shared_memory // ctas_per_sm - (1024 if ctas_per_sm > 1 else 0)
    if cache > limit - 512:
        raise ConfigurationError(
            f"tile {tile_k}x{tile_n}: needs {cache} bytes of shared memory, {limit - 512} are left with"
            f" {ctas_per_sm} CTAs per SM on {device.name}; ask for fewer"
        )
    return Launch(
        tile_k=tile_k,
        tile_n=tile_n,
        threads=tile_k * tile_n // 64,
        ctas_per_sm=ctas_per_sm,
        grid=device.sms * ctas_per_sm,
    )


def forced(launch: Launch, grid: int, *, sms: int) -> Launch:
    """The same tile on another grid; ``ctas_per_sm`` is 0 where it takes a patched launch (5.6, end).

    Raises:
        ConfigurationError: The grid has no CTA.
    """
    if grid < 1:
        raise ConfigurationError(f"grid: expected 1 CTA or more, got {grid}")
    whole = grid % sms == 0
    return replace(launch, grid=grid, ctas_per_sm=grid // sms if whole else 0)
