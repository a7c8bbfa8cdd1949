"""The GEMM of ``gemm`` in machine code by numba: equal bits, for sweeps and re-execution (extra ``fast``).

Imported only where it is asked for. What its domain leaves out (bf16, infinite and NaN operands, sm_70)
goes the way of ``sums``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from mechanism.kernel.alignment import block_routes
from mechanism.kernel.compiled_loops import walk
from mechanism.kernel.dequantize import finite_operands, packed_zeros
from mechanism.kernel.gemm import Multiply
from mechanism.kernel.gemm import marlin_gemm as _marlin_gemm
from mechanism.kernel.panel import lifted
from mechanism.kernel.parallel import ordered, threads
from mechanism.kernel.rounding import F32, U8, bits16, widen
from mechanism.kernel.schedule import Slice
from mechanism.kernel.sums import SliceSums, TileSums

Routes = dict[int, npt.NDArray[np.intp]]
Work = tuple[int, list[int], int, int]  # expert, its blocks, first and last column tile

PIECES = 4  # pieces of work for each thread, so that none waits long for another


def compiled_threads() -> int:
    """Threads of one GEMM: $NUMBA_NUM_THREADS, else as for numpy."""
    named = os.environ.get("NUMBA_NUM_THREADS", "")
    return max(1, int(named)) if named.isdecimal() else threads()


class CompiledSums(SliceSums):
    """``SliceSums`` with its inner loops compiled."""

    def __iter__(self) -> Iterator[TileSums]:
        if self._rule.step not in (8, 16) or not self._fast:
            yield from super().__iter__()
            return
        self._executed.clear()
        routes: Routes = {
            block: np.array(block_routes(self._alignment, block), dtype=np.intp)
            for block in range(len(self._alignment.expert_ids))
        }
        count = compiled_threads()
        for done in ordered(partial(self._sum, routes), self._work(count), most=count):
            yield from done

    def _work(self, count: int) -> list[Work]:
        """Experts, cut into runs of column tiles only where that is needed to employ every thread."""
        experts = list(self._by_expert())
        n_tiles = self._schedule.n_tiles
        runs = min(n_tiles, -(-PIECES * count // max(len(experts), 1))) if count > 1 else 1
        edges = [n_tiles * index // runs for index in range(runs + 1)]
        return [
            (expert, blocks, first, last) for expert, blocks in experts for first, last in pairwise(edges)
        ]

    def _sum(self, routes: Routes, work: Work) -> list[TileSums]:
        expert, blocks, first, last = work
        rows = self._a[np.concatenate([routes[block] for block in blocks]) // self._top_k]
        if not (finite_operands(self._weights, expert) and np.isfinite(rows).all()):
            return list(self._walk(routes, [(expert, blocks)], first, last))
        schedule, half = self._schedule, self._schedule.tile_n // 2
        columns = slice(first * half, last * half)
        cut = [self._cuts[block][first:last] for block in blocks]
        slots = _slots(cut, schedule.k_tiles)
        slices = int(slots.max(initial=0)) + 1
        sums: F32 = np.zeros((slices, len(rows), 2, columns.stop - columns.start), dtype=np.float32)
        done = np.zeros((slices, len(blocks), last - first, 2), dtype=np.int32)
        starts = np.cumsum([0] + [len(routes[block]) for block in blocks])
        scales = bits16(self._weights.scales[expert])
        grouped = self._weights.group != -1
        below = (scales & np.uint16(0x7FFF)) - np.uint16(1) < np.uint16(0x3FF)  # subnormal
        walk(  # type: ignore[no-untyped-call]
            self._weights.qweight[expert].view(np.uint8),
            scales,
            packed_zeros(self._weights, expert),
            columns.start,
            grouped,
            grouped and not bool(below.any()),
            *self._operands(widen(rows)),
            starts,
            self._interleaved,
            schedule.tile_k,
            self._rule.step,
            half,
            slots,
            sums,
            done,
        )
        found = []
        for index, block in enumerate(blocks):
            local = slice(int(starts[index]), int(starts[index + 1]))
            self._write_down(block, first, cut[index], done[:, index])
            found += _tile_sums(routes[block], first, half, cut[index], sums[:, local])
        return found

    def _operands(self, rows: F32) -> tuple[F32, U8]:
        """Rows of A with K as (k-tile, warp row, instruction, 16), lifted, and their exponents."""
        tile_k = self._schedule.tile_k
        if self._interleaved:
            rows = rows.reshape(len(rows), -1, 2, tile_k // 32, 16).swapaxes(2, 3)
        return lifted(np.ascontiguousarray(rows).reshape(len(rows), -1))

    def _write_down(
        self, block: int, first: int, cut: list[tuple[Slice, ...]], done: npt.NDArray[np.int32]
    ) -> None:
        """What the walk says it summed; only who was to sum it comes from the schedule."""
        for column, slices in enumerate(cut):
            bounds = done[: len(slices), column].tolist()
            self._executed[block, first + column] = [
                (part.cta, begin, end) for part, (begin, end) in zip(slices, bounds, strict=True)
            ]


def _slots(cut: list[list[tuple[Slice, ...]]], k_tiles: int) -> npt.NDArray[np.int16]:
    """Which slice ends after each k-tile, by block and column tile; -1 for none."""
    slots = np.full((len(cut), len(cut[0]), k_tiles), -1, dtype=np.int16)
    for block, tiles in enumerate(cut):
        for column, slices in enumerate(tiles):
            for index, part in enumerate(slices):
                slots[block, column, part.end - 1] = index
    return slots


def _tile_sums(
    routes: npt.NDArray[np.intp], first: int, half: int, cut: list[tuple[Slice, ...]], sums: F32
) -> list[TileSums]:
    """One for each run of column tiles with equally many slices."""
    found, low = [], 0
    for high in range(1, len(cut) + 1):
        if high < len(cut) and len(cut[high]) == len(cut[low]):
            continue
        parts = tuple(sums[index, :, :, low * half : high * half] for index in range(len(cut[low])))
        columns = slice((first + low) * half, (first + high) * half)
        found.append(TileSums(routes=routes, columns=columns, slices=parts))
        low = high
    return found


marlin_gemm: Multiply = partial(_marlin_gemm, summed=CompiledSums)
