"""Sums of single columns as the kernel makes them (marlin-moe 6.3, 6.4, 7.1), read off the specification."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mechanism.kernel import versions
from mechanism.kernel.rounding import F32, U16, add
from mechanism.kernel.schedule import Schedule, Slice
from mechanism.kernel.tensor_core import Rules, decode, step


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class SliceSum:
    """What one CTA summed of some columns.

    Attributes:
        part: Its CTA and k-tiles.
        warp_rows: One fp32 array (columns,) per warp row, ascending.
        total: After the adds over warp rows, fp32 (columns,).
    """

    part: Slice
    warp_rows: tuple[F32, ...]
    total: F32


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class TileSum:
    """All slices of some columns of one column tile, and their sum.

    Attributes:
        slices: Ascending in k.
        running: fp32 sums from the highest slice down: the first is that slice's own, the last the whole.
    """

    slices: tuple[SliceSum, ...]
    running: tuple[F32, ...]

    @property
    def whole(self) -> F32:
        """The finished fp32 sum."""
        return self.running[-1]


def tile_sum(
    x: U16, w: U16, schedule: Schedule, block: int, column_tile: int, rule: Rules, *, dtype: str
) -> TileSum:
    """Columns of one tile.

    Args:
        x: Bit patterns of the activation row, (K,).
        w: Bit patterns of the weight operand, (K, columns), all columns of this column tile.
        schedule: Of the launch.
        block: Padded block of the row.
        column_tile: Column tile of the columns.
        rule: The architecture's tensor core.
        dtype: ``float16`` or ``bfloat16``.
    """
    interleaved = versions.version(schedule.kernel).interleaved_rows
    slices = tuple(
        _slice_sum(x, w, part, tile_k=schedule.tile_k, interleaved=interleaved, rule=rule, dtype=dtype)
        for part in schedule.slices(block, column_tile)
    )
    running = [slices[-1].total]
    for item in slices[-2::-1]:  # from the highest k range down to the one that holds k = 0 (7.1)
        running.append(add(item.total, running[-1]))  # RNE
    return TileSum(slices=slices, running=tuple(running))


def k_offsets(warp_row: int, warp_rows: int, *, interleaved: bool) -> tuple[int, int]:
    """Where the two 16-wide sub-tiles of a warp row begin in a k-tile (6.1, A.1)."""
    if interleaved:
        return 16 * warp_row, 16 * (warp_row + warp_rows)
    return 32 * warp_row, 32 * warp_row + 16


def _slice_sum(
    x: U16, w: U16, part: Slice, *, tile_k: int, interleaved: bool, rule: Rules, dtype: str
) -> SliceSum:
    rows = tile_k // 32
    sums = []
    for row in range(rows):
        starts = [
            tile * tile_k + offset
            for tile in range(part.begin, part.end)
            for offset in k_offsets(row, rows, interleaved=interleaved)
        ]
        sums.append(_chain(x, w, starts, rule, dtype))
    return SliceSum(part=part, warp_rows=tuple(sums), total=_over_warp_rows(sums))


def _chain(x: U16, w: U16, starts: list[int], rule: Rules, dtype: str) -> F32:
    """One warp row: matrix instructions of 16 k each, ascending, the accumulator from +0 (6.3)."""
    values, exponents = decode(x[:, np.newaxis], dtype)
    weights, weight_exponents = decode(w, dtype)
    acc: F32 = np.zeros(w.shape[1], dtype=np.float32)
    for start in starts:
        for low in range(start, start + 16, rule.step):
            ks = slice(low, low + rule.step)
            acc = step(values[ks], exponents[ks], weights[ks], weight_exponents[ks], acc, rule)
    return acc


def _over_warp_rows(sums: list[F32]) -> F32:
    """f0 + f1, or f0 + (f1 + (f2 + f3)) (6.4); every + rounds to nearest even."""
    total = sums[-1]
    for item in sums[-2::-1]:
        total = add(item, total)  # RNE
    return total
