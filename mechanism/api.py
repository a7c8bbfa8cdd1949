"""Five pure functions for notebooks, on numpy arrays: align, schedule, simulate, membership, compare.

Nothing here reads a file, and nothing given is written to; a large `simulate` forks this process, to share
the work. Arrays that come back are read-only. Everything is the simulation's: no result of these functions
is evidence of a GPU's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from mechanism import api_checks as checks
from mechanism.api_results import (
    SURFACES,
    Aligned,
    AlignmentDifference,
    Array,
    BitDifference,
    RunDifference,
    Scheduled,
    Simulated,
)
from mechanism.kernel import alignment as aligning
from mechanism.kernel import configuration, versions
from mechanism.kernel.configuration import Launch
from mechanism.kernel.devices import Device
from mechanism.kernel.errors import ConfigurationError, ShapeError
from mechanism.kernel.layer import moe_layer
from mechanism.kernel.rounding import differing_bits
from mechanism.kernel.schedule import Schedule
from mechanism.reexecute.shared import ARITHMETIC


def align(
    topk_ids: npt.ArrayLike,
    *,
    experts: int,
    block_size_m: int | None = None,
    arrival: npt.ArrayLike | None = None,
    kernel: str = versions.DEFAULT,
) -> Aligned:
    """Pack routes into padded blocks, as the kernel's alignment does (marlin-moe 2).

    Args:
        topk_ids: Integers (tokens, top_k): expert of every route.
        experts: How many experts there are.
        block_size_m: Slots per padded block; by default what the fused operator chooses.
        arrival: A permutation of all routes: the order in which the atomics serve them. By default ascending,
            which is also the stable order. The small-batch variant has no atomics and takes none.
        kernel: Build, e.g. ``vllm==0.22.0``.

    Raises:
        AlignmentError: Ids or sizes the kernel does not define, or an arrival that is no permutation.

    Example:
        >>> import numpy as np, mechanism
        >>> ids = np.stack([np.full(9, 70), np.arange(9)], axis=1)  # nine tokens, all on expert 70
        >>> first = mechanism.align(ids, experts=72)
        >>> first
        Aligned(18 routes in 11 padded blocks of 8; more than one block: expert 70)
        >>> first.sorted_token_ids[-16:]
        array([ 0,  2,  4,  6,  8, 10, 12, 14, 16, 18, 18, 18, 18, 18, 18, 18],
              dtype=int32)
    """
    rows = checks.routing(topk_ids)
    experts = checks.whole("experts", experts)
    top_k = len(rows[0]) if rows else 0
    routes = len(rows) * top_k
    if block_size_m is None:
        block = aligning.block_size_m(len(rows), top_k, experts)
    else:
        block = checks.block_size(block_size_m)
    variant = aligning.variant(routes, experts)
    order = None if arrival is None else checks.arrival_order(arrival, routes)
    if variant == "large" and order is None:
        order = list(range(routes))
    found = aligning.align(rows, experts=experts, block_size_m=block, arrival=order, kernel=kernel)
    return _aligned(found, variant)


def schedule(
    padded_blocks: int | Aligned,
    *,
    n: int,
    k: int,
    group: int,
    tile: tuple[int, int] | None = None,
    grid: int | None = None,
    device: str | Device | None = None,
    kernel: str = versions.DEFAULT,
) -> Scheduled:
    """Which tiles of one GEMM are direct, and which are split (marlin-moe 4, 5).

    Args:
        padded_blocks: How many there are, or an alignment that has them.
        n: Output columns: 2 I for w13, H for w2.
        k: Reduction length: H for w13, I for w2.
        group: Rows of K that share a scale; one group in all of K is -1, channelwise.
        tile: (tile_k, tile_n); by default the host code's choice for `device`, which needs an alignment.
        grid: CTAs; by default the device's multiprocessors times its CTAs per SM.
        device: A name such as ``rtx-3090``, or a `mechanism.kernel.devices.Device`.
        kernel: Build.

    Raises:
        KernelError: A shape the operator refuses, or neither tile and grid nor device and alignment.

    Example:
        >>> import mechanism
        >>> mechanism.schedule(50, n=1536, k=2048, group=128, tile=(64, 128), grid=246)
        Scheduled(tile 64 x 128 on 246 CTAs: 492 direct tiles, 108 split, the first in padded block 41)
        >>> mechanism.schedule(50, n=1536, k=2048, group=128, tile=(64, 128), grid=200)
        Scheduled(tile 64 x 128 on 200 CTAs: 600 direct tiles, 0 split)
    """
    if isinstance(padded_blocks, Aligned):
        blocks, block_size_m = padded_blocks.padded_blocks, padded_blocks.block_size_m
    else:
        blocks, block_size_m = (
            checks.whole("padded_blocks", padded_blocks, least=0),
            8,
        )  # any: tiles do not ask
    chip = None if device is None else checks.device_of(device)
    tile = None if tile is None else checks.tile_of(tile)
    grid = None if grid is None else checks.grid_of(grid)
    checks.gemm(n=n, k=k, group=group, block_size_m=block_size_m, tile=tile)
    if tile is None or grid is None:
        if chip is None or not isinstance(padded_blocks, Aligned):
            raise ConfigurationError(
                "expected tile and grid, or a device and an alignment, got neither pair whole"
            )
        chosen = _launch(chip, padded_blocks, n=n, k=k, group=group, kernel=kernel)
        tile = (chosen.tile_k, chosen.tile_n) if tile is None else tile
        grid = chosen.grid if grid is None else grid
    found = Schedule(
        n=n, k=k, tile_k=tile[0], tile_n=tile[1], grid=grid, padded_blocks=blocks, group=group, kernel=kernel
    )
    slices = np.array([len(item.slices) for item in found], dtype=np.int32).reshape(blocks, found.n_tiles)
    return Scheduled(slices=_fixed(slices), tile=tile, grid=grid, kernel_schedule=found)


def simulate(  # noqa: PLR0913 - the layer's own operands
    hidden: Array,
    w13: tuple[Array, Array, Array],
    w2: tuple[Array, Array, Array],
    topk_ids: npt.ArrayLike,
    topk_weights: Array,
    *,
    device: str | Device,
    aligned: Aligned | None = None,
    grid: int | None = None,
    kernel: str = versions.DEFAULT,
) -> Simulated:
    """One forward pass of a packed-AWQ MoE layer, bit for bit (marlin-moe 3).

    Args:
        hidden: float16 (tokens, H).
        w13: (qweight, qzeros, scales) of gate and up, as AutoAWQ stores them, stacked over experts: int32
            (E, H, 2I/8), int32 (E, H/group, 2I/8), float16 (E, H/group, 2I). A `qzeros` of None means
            symmetric weights, zero point 8.
        w2: The same of down: int32 (E, I, H/8), int32 (E, I/group, H/8), float16 (E, I/group, H).
        topk_ids: Integers (tokens, top_k).
        topk_weights: float32 (tokens, top_k).
        device: A name such as ``rtx-3090``, or a `mechanism.kernel.devices.Device`.
        aligned: The alignment to use; by default that of ascending arrival.
        grid: CTAs of both GEMMs; by default the host code's choice.
        kernel: Build.

    Raises:
        KernelError: Sizes that do not fit together, or that do not take the Marlin path.
    """
    chip = checks.device_of(device)
    gate_up, down = checks.weights("w13", w13), checks.weights("w2", w2)
    checks.layer_weights(gate_up, down)
    ids = checks.routing(topk_ids)
    checks.layer_inputs(hidden, topk_weights, ids, width=gate_up.k)
    if aligned is None:
        used = align(topk_ids, experts=gate_up.experts, kernel=kernel)
    else:
        used = checks.aligned_of(aligned)
        checks.require_alignment_of(used, ids, experts=gate_up.experts, kernel=kernel)
    if grid is not None:
        grid = checks.grid_of(grid)
    launches = []
    for weights in (gate_up, down):
        launch = _launch(chip, used, n=weights.n, k=weights.k, group=weights.group, kernel=kernel)
        launches.append(launch if grid is None else configuration.forced(launch, grid, sms=chip.sms))
    run = moe_layer(
        hidden,
        gate_up,
        down,
        topk_weights,
        used.kernel_alignment,
        launch_w13=launches[0],
        launch_w2=launches[1],
        arch=chip.arch,
        kernel=kernel,
        arithmetic=ARITHMETIC,
    )
    first, second = (
        schedule(
            used,
            n=weights.n,
            k=weights.k,
            group=weights.group,
            tile=(launch.tile_k, launch.tile_n),
            grid=launch.grid,
            kernel=kernel,
        )
        for weights, launch in zip((gate_up, down), launches, strict=True)
    )
    return Simulated(
        w13=_fixed(run.w13),
        activation=_fixed(run.activation),
        w2=_fixed(run.w2),
        output=_fixed(run.output),
        aligned=used,
        schedules=(first, second),
        assumptions=run.assumptions,
        scale_defect=run.scale_defect,
    )


def membership(aligned: Aligned) -> npt.NDArray[np.int32]:
    """Padded block of every route, int32 (routes,); -1 for a route that has no slot.

    Example:
        >>> import numpy as np, mechanism
        >>> ids = np.stack([np.full(9, 70), np.arange(9)], axis=1)
        >>> late = [r for r in range(18) if r != 4] + [4]  # route 4 is served last
        >>> blocks = mechanism.membership(mechanism.align(ids, experts=72, arrival=late))
        >>> np.flatnonzero(blocks == 10)
        array([4])
    """
    aligned = checks.aligned_of(aligned)
    blocks = np.full(aligned.routes, -1, dtype=np.int32)
    slots = aligned.sorted_token_ids
    valid = np.flatnonzero(slots < aligned.routes)
    blocks[slots[valid]] = valid // aligned.block_size_m
    return _fixed(blocks)


def compare(left: Any, right: Any) -> AlignmentDifference | BitDifference | RunDifference:
    """How two alignments, two arrays or two simulated passes differ.

    Args:
        left: An `Aligned`, an array, or a `Simulated`.
        right: Another of the same kind.

    Raises:
        ShapeError: Two kinds, or arrays of two shapes or types.

    Example:
        >>> import numpy as np, mechanism
        >>> mechanism.compare(np.float16([0.0, 1.0]), np.float16([-0.0, 1.0]))
        BitDifference(1 of 2 elements, the first at (0,): 0x0000 against 0x8000)
        >>> ids = np.stack([np.full(9, 70), np.arange(9)], axis=1)
        >>> late = [r for r in range(18) if r != 4] + [4]
        >>> first = mechanism.align(ids, experts=72)
        >>> mechanism.compare(first, mechanism.align(ids, experts=72, arrival=late))
        AlignmentDifference(7 slots, membership of 2 padded blocks; moved routes: 4, 16)
    """
    if isinstance(left, Aligned) and isinstance(right, Aligned):
        return _alignments(left, right)
    if isinstance(left, Simulated) and isinstance(right, Simulated):
        return RunDifference(**{name: _bits(getattr(left, name), getattr(right, name)) for name in SURFACES})
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        return _bits(left, right)
    raise ShapeError(
        f"compare: expected two alignments, two arrays or two simulated passes, got {type(left).__name__} and"
        f" {type(right).__name__}"
    )


def _alignments(left: Aligned, right: Aligned) -> AlignmentDifference:
    found = aligning.compare(left.kernel_alignment, right.kernel_alignment)
    if left.routes != right.routes:
        raise ShapeError(
            f"compare: expected alignments of the same routes, got {left.routes} and {right.routes}"
        )
    moved = np.flatnonzero(membership(left) != membership(right))
    return AlignmentDifference(
        moved=_fixed(moved),
        slots=found.ids,
        experts=found.expert_ids,
        padded=found.padded,
        blocks=found.blocks,
        same_routes=found.multiset_equal,
    )


def _bits(left: Array, right: Array) -> BitDifference:
    checks.comparable(left, right)
    flat = differing_bits(left, right)
    patterns = [
        np.ascontiguousarray(item).view(f"u{item.dtype.itemsize}").reshape(-1)[flat] for item in (left, right)
    ]
    if left.ndim:
        indices = np.stack(np.unravel_index(flat, left.shape), axis=1)
    else:
        indices = np.empty((len(flat), 0), dtype=np.intp)
    return BitDifference(
        indices=_fixed(indices), left=_fixed(patterns[0]), right=_fixed(patterns[1]), elements=left.size
    )


def _aligned(found: aligning.Alignment, variant: str) -> Aligned:
    return Aligned(
        sorted_token_ids=_fixed(np.array(found.sorted_token_ids, dtype=np.int32)),
        expert_ids=_fixed(np.array(found.expert_ids, dtype=np.int32)),
        block_size_m=found.block_size_m,
        routes=found.routes,
        variant=variant,
        kernel_alignment=found,
    )


def _launch(device: Device, aligned: Aligned, *, n: int, k: int, group: int, kernel: str) -> Launch:
    return configuration.choose(
        device,
        n=n,
        k=k,
        group=group,
        block_size_m=aligned.block_size_m,
        routes=aligned.routes,
        kernel=kernel,
    )


def _fixed(array: Array) -> Array:
    """The same array, never to be written again."""
    array.setflags(write=False)
    return array


__all__: Sequence[str] = ("align", "compare", "membership", "schedule", "simulate")
