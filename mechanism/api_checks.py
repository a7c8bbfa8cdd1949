"""What the notebook functions refuse at the door: one message each, before anything is computed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from mechanism.api_results import Aligned
from mechanism.kernel import alignment as aligning
from mechanism.kernel.configuration import candidates
from mechanism.kernel.dequantize import Weights
from mechanism.kernel.devices import DEVICES, Device
from mechanism.kernel.errors import AlignmentError, ConfigurationError, ShapeError
from mechanism.kernel.shapes import GROUPS, require_gemm

_LAUNCHABLE = 2**31 - 1  # CTAs in x that a launch can have
_COMPARABLE = "biuf"  # kinds of arrays whose elements are their bits


def whole(name: str, value: Any, *, least: int = 1, most: int | None = None) -> int:
    """A count as an int. Raises ShapeError for another type (bool too) or one out of range."""
    limits = f"of {least} or more" if most is None else f"in {least}..{most}"
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise ShapeError(f"{name}: expected an integer {limits}, got {value!r}")
    found = int(value)
    if found < least or (most is not None and found > most):
        raise ShapeError(f"{name}: expected an integer {limits}, got {found}")
    return found


def routing(topk_ids: npt.ArrayLike) -> list[list[int]]:
    """Rows of expert ids. Raises ShapeError for anything but integers (tokens, top_k)."""
    try:
        ids = np.asarray(topk_ids)
    except ValueError as fault:
        raise ShapeError(
            "topk_ids: expected integers (tokens, top_k), got rows of unequal lengths"
        ) from fault
    if ids.ndim != 2 or ids.size == 0 or ids.dtype.kind not in "iu":
        raise ShapeError(f"topk_ids: expected integers (tokens, top_k), got {ids.dtype} {ids.shape}")
    rows: list[list[int]] = ids.tolist()
    return rows


def arrival_order(arrival: npt.ArrayLike, routes: int) -> list[int]:
    """Route ids; whether they are a permutation is the alignment's to say. Raises AlignmentError."""
    order = np.asarray(arrival)
    if order.shape != (routes,) or order.dtype.kind not in "iu":
        raise AlignmentError(f"arrival: expected integers ({routes},), got {order.dtype} {order.shape}")
    found: list[int] = order.tolist()
    return found


def block_size(value: Any) -> int:
    """Slots of a padded block. Raises AlignmentError."""
    if (
        isinstance(value, bool)
        or not isinstance(value, int | np.integer)
        or value not in aligning.BLOCK_SIZES
    ):
        raise AlignmentError(f"block_size_m: expected one of {aligning.BLOCK_SIZES}, got {value!r}")
    return int(value)


def tile_of(tile: Any) -> tuple[int, int]:
    """A tile that kernels were compiled for (marlin-moe 4.1). Raises ShapeError."""
    known = sorted({(k, n) for block in (8, 64) for k, n, _ in candidates(block)})
    pair = tuple(tile) if isinstance(tile, Sequence | np.ndarray) and not isinstance(tile, str) else tile
    if pair not in known:
        told = ", ".join(map(str, known))
        raise ShapeError(f"tile: expected (tile_k, tile_n), one of {told}, got {tile!r}")
    return int(pair[0]), int(pair[1])


def grid_of(grid: Any) -> int:
    """CTAs of one launch. Raises ShapeError."""
    return whole("grid", grid, most=_LAUNCHABLE)


def device_of(device: Any) -> Device:
    """A device by name, or itself. Raises ConfigurationError."""
    if isinstance(device, Device):
        return device
    if not isinstance(device, str) or device not in DEVICES:
        raise ConfigurationError(f"device: expected one of {', '.join(DEVICES)}, or a Device, got {device}")
    return DEVICES[device]


def gemm(*, n: Any, k: Any, group: Any, block_size_m: int, tile: tuple[int, int] | None) -> None:
    """Raise ShapeError for a GEMM that the operator refuses (marlin-moe 9.2, 9.3)."""
    if isinstance(group, bool) or not isinstance(group, int | np.integer) or group not in GROUPS:
        raise ShapeError(
            f"group: expected one of {GROUPS}, got {group!r}; no kernel was compiled for another"
        )
    require_gemm(
        n=whole("n", n),
        k=whole("k", k),
        group=int(group),
        block_size_m=block_size_m,
        tile_k=tile and tile[0],
        tile_n=tile and tile[1],
    )


def aligned_of(value: Any, *, name: str = "aligned") -> Aligned:
    """The alignment. Raises ShapeError for anything else."""
    if not isinstance(value, Aligned):
        raise ShapeError(f"{name}: expected what mechanism.align gives, got {type(value).__name__}")
    return value


def require_alignment_of(aligned: Aligned, ids: list[list[int]], *, experts: int, kernel: str) -> None:
    """Raise AlignmentError unless some order of the atomics gives this alignment for this routing."""
    found = aligning.faults(aligned.kernel_alignment, ids, experts=experts, kernel=kernel)
    if found:
        raise AlignmentError(f"aligned: not an alignment of topk_ids: {'; '.join(found[:3])}")


def weights(name: str, given: Any) -> Weights:
    """The packed weights of one GEMM. Raises ShapeError naming it."""
    if not isinstance(given, tuple | list) or len(given) != 3:
        got = f"{len(given)} parts" if isinstance(given, tuple | list) else type(given).__name__
        raise ShapeError(f"{name}: expected (qweight, qzeros, scales), got {got}")
    for part, array in zip(("qweight", "qzeros", "scales"), given, strict=True):
        if not isinstance(array, np.ndarray) and not (part == "qzeros" and array is None):
            raise ShapeError(f"{name} {part}: expected a numpy array, got {type(array).__name__}")
    try:
        return Weights(qweight=given[0], qzeros=given[1], scales=given[2])
    except ShapeError as fault:
        raise ShapeError(f"{name} {fault}") from fault


def layer_weights(w13: Weights, w2: Weights) -> None:
    """Raise ShapeError unless the two are one layer's, in this order."""
    if w13.n != 2 * w2.k or w13.k != w2.n or w13.experts != w2.experts:
        first, second = ((one.experts, one.k, one.n) for one in (w13, w2))
        raise ShapeError(f"w13 and w2: expected (E, H, 2 I) and (E, I, H), got {first} and {second}")


def layer_inputs(hidden: Any, topk_weights: Any, ids: list[list[int]], *, width: int) -> None:
    """Raise ShapeError unless hidden states and routing weights are those of this routing."""
    for name, array, dtypes, shape in (
        ("hidden", hidden, ("float16", "uint16"), (len(ids), width)),
        ("topk_weights", topk_weights, ("float32",), (len(ids), len(ids[0]) if ids else 0)),
    ):
        got = f"{array.dtype} {array.shape}" if isinstance(array, np.ndarray) else type(array).__name__
        if got not in [f"{dtype} {shape}" for dtype in dtypes]:
            raise ShapeError(f"{name}: expected {dtypes[0]} {shape}, got {got}")


def comparable(*arrays: npt.NDArray[Any]) -> None:
    """Raise ShapeError for arrays whose elements are not plain bits of 1, 2, 4 or 8 bytes."""
    for array in arrays:
        if array.dtype.kind not in _COMPARABLE or array.dtype.itemsize > 8:
            raise ShapeError(f"compare: expected arrays of integers, booleans or floats, got {array.dtype}")
