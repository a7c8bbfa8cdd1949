"""Every slice of a GEMM summed, and a record of which slices those were (marlin-moe 5.3, 6.4).

All rows of an expert walk K together: where a slice of some block and column tile ends, its accumulators
are taken out, added over warp rows, and start again from +0. Which slices were executed is written down
there, by the loop that computes; nothing is copied from the plan afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from mechanism.kernel import versions
from mechanism.kernel.alignment import Alignment
from mechanism.kernel.chain import Chain, FastChain, GeneralChain, Rows
from mechanism.kernel.configuration import Launch
from mechanism.kernel.dequantize import Weights, finite_operands, from_planes, operand_planes
from mechanism.kernel.finish import expert_of_route, finish, routes_by_block
from mechanism.kernel.panel import Panel, activations, k_view
from mechanism.kernel.rounding import F32, Stored, add, bits16, narrow, widen
from mechanism.kernel.schedule import Schedule, Slice
from mechanism.kernel.tensor_core import decode, rules
from mechanism.values import frozen

ROWS = 8  # rows that one fast chain aims at: enough work per numpy call, small enough for the cache
WIDTH = 4096  # columns times warp rows likewise; fewer where there are more rows

Written = dict[tuple[int, int], list[tuple[int, int, int]]]
"""(cta, begin, end) of every slice that was summed, by block and column tile."""


@frozen(eq=False)
class TileSums:
    """Slice sums of one padded block and a run of column tiles that are cut alike.

    Attributes:
        routes: Output rows, (rows,).
        columns: Byte columns of the packed weights, i.e. plane-order columns of either plane.
        slices: One fp32 array (rows, 2, byte columns) per slice, ascending k.
    """

    routes: npt.NDArray[np.intp]
    columns: slice
    slices: tuple[F32, ...]


Walk = tuple[list[tuple[int, list[int]]], int, int]
"""(expert, its blocks) that go together, and the column tiles [first, last) of one pass over K."""


@frozen(eq=False)
class Walked:
    """What one pass over K left behind."""

    tiles: list[TileSums]
    executed: Written


@frozen
class _Run:
    """Adjacent column tiles of one block with the same slice bounds."""

    block: int
    rows: slice  # of the chain
    first: int
    last: int  # exclusive
    ctas: tuple[tuple[int, ...], ...]  # per column tile, per slice
    ends: tuple[int, ...]


def schedule_of(
    weights: Weights, alignment: Alignment, launch: Launch, *, kernel: str = versions.DEFAULT
) -> Schedule:
    """The schedule of one GEMM: its geometry is all that decides it (marlin-moe 5)."""
    return Schedule(
        n=weights.n,
        k=weights.k,
        tile_k=launch.tile_k,
        tile_n=launch.tile_n,
        grid=launch.grid,
        padded_blocks=len(alignment.expert_ids),
        group=weights.group,
        kernel=kernel,
    )


@lru_cache(maxsize=32)
def cuts(schedule: Schedule) -> tuple[tuple[tuple[Slice, ...], ...], ...]:
    """Slices of every tile, by block and column tile. Kept: a sweep comes back to the same schedules."""
    slices = [tile.slices for tile in schedule]
    n_tiles = schedule.n_tiles
    return tuple(tuple(slices[low : low + n_tiles]) for low in range(0, len(slices), n_tiles))


class SliceSums:
    """Iterates over ``TileSums``; ``executed`` is complete once the iteration is."""

    def __init__(
        self,
        a: Stored,
        weights: Weights,
        alignment: Alignment,
        launch: Launch,
        *,
        top_k: int,
        arch: str,
        kernel: str = versions.DEFAULT,
    ) -> None:
        self._a, self._weights, self._alignment, self._top_k = a, weights, alignment, top_k
        self._rule = rules(arch, weights.dtype)
        self._interleaved = versions.version(kernel).interleaved_rows
        self._schedule = schedule_of(weights, alignment, launch, kernel=kernel)
        self._cuts = cuts(self._schedule)
        self._routes = routes_by_block(alignment)
        self._fast = weights.dtype == "float16"
        self._executed: Written = {}

    def executed(self) -> tuple[tuple[int, int, tuple[tuple[int, int, int], ...]], ...]:
        """(block, column tile, ((cta, begin, end), ...)) of every tile that was summed, sorted."""
        return tuple((*tile, tuple(done)) for tile, done in sorted(self._executed.items()))

    def finished(self, topk_weights: F32 | None, *, fp32_reduce: bool) -> Stored:
        """What the GEMM writes, (routes, N): ``rounded``, then column scale and routing weight (6.6, 7.3)."""
        output = self.rounded(fp32_reduce=fp32_reduce)
        return finish(output, self._weights, expert_of_route(self._alignment), topk_weights)

    def rounded(self, *, fp32_reduce: bool) -> Stored:
        """The slices of every tile added up and rounded once, (routes, N); 0 for a route without a slot.

        (7.1, 7.2, 7.4)
        """
        weights = self._weights
        planes = np.zeros((self._alignment.routes, 2, weights.n // 2), dtype=np.float32)
        for tile in self:
            planes[tile.routes, :, tile.columns] = _reduce(tile, weights.dtype, fp32_reduce=fp32_reduce)
        return narrow(from_planes(planes), weights.dtype)  # 7.2

    def __iter__(self) -> Iterator[TileSums]:
        self._executed.clear()
        n_tiles = self._schedule.n_tiles
        walks: list[Walk] = []
        for experts in self._batches():
            rows = sum(len(self._routes[block]) for _, blocks in experts for block in blocks)
            width = ROWS * WIDTH // max(rows, ROWS)
            tiles = max(1, width // (self._schedule.tile_k // 32 * self._schedule.tile_n))
            walks += [(experts, first, min(first + tiles, n_tiles)) for first in range(0, n_tiles, tiles)]
        walks.sort(key=lambda walk: -len(walk[0]))  # the longest first, for those who share them out
        for walked in self.walked(walks):
            yield from self._seen(walked)

    @property
    def products(self) -> int:
        """How many are summed in all."""
        return sum(map(len, self._routes)) * self._weights.n * self._weights.k

    def walked(self, walks: Sequence[Walk]) -> Iterable[Walked]:
        """``walk`` of each. They share nothing that they write: others may share them out."""
        return (self.walk(*walk) for walk in walks)

    def _seen(self, walked: Walked) -> list[TileSums]:
        self._executed |= walked.executed
        return walked.tiles

    def _batches(self) -> Iterator[list[tuple[int, list[int]]]]:
        """Lists of (expert, blocks) that share a chain; one list holds what needs the general scheme."""
        batch: list[tuple[int, list[int]]] = []
        held = 0
        for expert, blocks in self._by_expert():
            rows = sum(len(self._routes[block]) for block in blocks)
            if batch and held + rows > ROWS:
                yield batch
                batch, held = [], 0
            batch.append((expert, blocks))
            held += rows
        if batch:
            yield batch

    def _by_expert(self, rows: int = 64) -> Iterator[tuple[int, list[int]]]:
        """Consecutive blocks of one expert, at most a few so that a chain's rows stay bounded."""
        most = max(1, rows // self._alignment.block_size_m)
        expert_ids = self._alignment.expert_ids
        blocks: list[int] = []
        for block, expert in enumerate(expert_ids):
            blocks.append(block)
            if len(blocks) == most or block + 1 == len(expert_ids) or expert_ids[block + 1] != expert:
                yield expert, blocks
                blocks = []

    def walk(
        self,
        experts: list[tuple[int, list[int]]],
        first: int,
        last: int,
    ) -> Walked:
        """One pass over K for these experts and column tiles ``[first, last)``."""
        walked = Walked(tiles=[], executed={})
        half = self._schedule.tile_n // 2
        columns = slice(first * half, last * half)
        for chain, blocks in self._chains(experts, columns):
            runs = list(self._runs(blocks, first, last))
            parts: dict[tuple[int, int], list[F32]] = {}
            for tile in range(self._schedule.k_tiles):
                chain.advance(tile)
                for run in runs:
                    if tile + 1 not in run.ends:
                        continue
                    local = slice((run.first - first) * half, (run.last - first) * half)
                    sums = parts.setdefault((run.block, run.first), [])
                    sums.append(_add_warp_rows(chain.take(run.rows, local)))
                    _write_down(walked.executed, run, len(sums) - 1, tile + 1)
            walked.tiles.extend(
                TileSums(
                    routes=self._routes[run.block],
                    columns=slice(run.first * half, run.last * half),
                    slices=tuple(parts[run.block, run.first]),
                )
                for run in runs
            )
        return walked

    def _runs(self, blocks: list[int], first: int, last: int) -> Iterator[_Run]:
        start = 0
        for block in blocks:
            rows = slice(start, start + len(self._routes[block]))
            start = rows.stop
            cut = self._cuts[block][first:last]
            ends = [tuple(part.end for part in slices) for slices in cut]
            low = 0
            for high in range(1, len(cut) + 1):
                if high < len(cut) and ends[high] == ends[low]:
                    continue
                yield _Run(
                    block=block,
                    rows=rows,
                    first=first + low,
                    last=first + high,
                    ctas=tuple(tuple(part.cta for part in slices) for slices in cut[low:high]),
                    ends=ends[low],
                )
                low = high

    def _chains(
        self,
        experts: list[tuple[int, list[int]]],
        columns: slice,
    ) -> Iterator[tuple[Chain, list[int]]]:
        """One fast chain for all that is in its domain, a general one for each expert that is not."""
        tile_k, interleaved = self._schedule.tile_k, self._interleaved
        inside = []
        for expert, blocks in experts:
            rows = self._a[np.concatenate([self._routes[block] for block in blocks]) // self._top_k]
            if self._fast and finite_operands(self._weights, expert) and np.isfinite(rows).all():
                inside.append((expert, blocks, rows))
            else:
                yield self._general(expert, rows, columns), blocks
        if not inside:
            return
        panel = Panel(
            self._weights,
            [expert for expert, _, _ in inside],
            columns,
            tile_k=tile_k,
            interleaved=interleaved,
            length=self._rule.step,
        )
        cut = [activations(rows, tile_k, interleaved=interleaved) for _, _, rows in inside]
        rows_of = [Rows(values=values, fields=fields) for values, fields in cut]
        yield (
            FastChain(panel, rows_of, self._rule),
            [block for _, blocks, _ in inside for block in blocks],
        )

    def _general(self, expert: int, rows: Stored, columns: slice) -> GeneralChain:
        weights, tile_k, interleaved = self._weights, self._schedule.tile_k, self._interleaved
        operands = operand_planes(weights, expert)[:, :, columns].reshape(weights.k, -1)
        cut = []
        for matrix in (np.ascontiguousarray(rows.T), operands):
            values, exponents = decode(bits16(matrix), weights.dtype)
            cut.append(
                (
                    k_view(values, tile_k, interleaved=interleaved),
                    k_view(exponents, tile_k, interleaved=interleaved),
                )
            )
        return GeneralChain(cut[0], cut[1], self._rule)  # type: ignore[arg-type]


def _write_down(executed: Written, run: _Run, index: int, end: int) -> None:
    for column_tile, ctas in zip(range(run.first, run.last), run.ctas, strict=True):
        done = executed.setdefault((run.block, column_tile), [])
        begin = done[-1][2] if done else 0  # where these accumulators started from +0
        done.append((ctas[index], begin, end))


def _add_warp_rows(parts: F32) -> F32:
    """fp32 adds over warp rows: f0 + f1, or f0 + (f1 + (f2 + f3)) (6.4). Warp rows are axis 1."""
    first, *others = parts.swapaxes(0, 1)
    if len(others) == 1:
        return add(first, others[0])  # RNE
    return add(first, add(others[0], add(others[1], others[2])))  # RNE, three times


def _reduce(tile: TileSums, dtype: str, *, fp32_reduce: bool) -> F32:
    """Slices from the highest k down to the one that holds k = 0 (7.1)."""
    acc = tile.slices[-1]
    for part in tile.slices[-2::-1]:
        if not fp32_reduce:
            acc = widen(narrow(acc, dtype))  # RN16: the running sum waits in the output buffer (7.4)
        acc = add(part, acc)  # RNE
    return acc
