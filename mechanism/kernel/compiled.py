"""The GEMM of ``gemm`` in machine code by numba: equal bits, for sweeps and re-execution (extra ``fast``).

Imported only where it is asked for. What its domain leaves out (bf16, infinite and NaN operands, sm_70)
goes the way of ``sums``.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from functools import cached_property, lru_cache, partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mechanism.kernel.arithmetic import Arithmetic
from mechanism.kernel.compiled_ends import operands, survey
from mechanism.kernel.compiled_layer import moe_sum, silu_and_mul
from mechanism.kernel.compiled_loops import Given, sweep
from mechanism.kernel.compiled_weights import STRIDE
from mechanism.kernel.compiled_words import read_only
from mechanism.kernel.dequantize import Weights, finite_up_to, packed_zeros
from mechanism.kernel.finish import factors
from mechanism.kernel.gemm import Executed, Multiply
from mechanism.kernel.gemm import marlin_gemm as _marlin_gemm
from mechanism.kernel.parallel import on_threads, threads
from mechanism.kernel.rounding import F32, U16, U32, Stored, bits16
from mechanism.kernel.schedule import Schedule
from mechanism.kernel.sums import SliceSums, TileSums, cuts
from mechanism.values import frozen

Ints = npt.NDArray[np.int64]

PIECES = 16  # pieces of work for each thread at least, so that none waits long for another
AT_A_TIME = 1 << 30  # products for which a thread lets go of the interpreter: then it looks for a Ctrl-C
_ONE = 0x3C00  # 1.0 in fp16
ROWS = 96  # of A that walk K together: their accumulators stay in a core's second cache


class Item(NamedTuple):
    """Blocks [block, last_block) and column tiles [tile, last_tile) of one expert.

    ``normal``: whether no nonzero operand is subnormal.
    """

    expert: int
    block: int
    last_block: int
    tile: int
    last_tile: int
    normal: bool


@frozen(eq=False)
class Layout:
    """What all items of a GEMM share: the order of its rows, and how its tiles are cut.

    Attributes:
        routes: int64, output rows, block after block.
        starts: int64 (blocks + 1,), where those of each block begin.
        slots: int16 (blocks, column tiles, k-tiles): slice that ends after the k-tile, or -1.
        counts: int64 (blocks, column tiles), slices.
        most: Slices of a tile, at most.
        half: Byte columns of a column tile.
    """

    routes: Ints
    starts: Ints
    slots: npt.NDArray[np.int16]
    counts: Ints
    most: int
    half: int

    def shape(self, item: Item) -> tuple[int, int, int, int]:
        """Of the sums of an item: (slices, rows, 2, byte columns)."""
        rows = int(self.starts[item.last_block] - self.starts[item.block])
        return self.most, rows, 2, (item.last_tile - item.tile) * self.half


def compiled_threads() -> int:
    """Threads of one GEMM: $NUMBA_NUM_THREADS, else as for numpy."""
    named = os.environ.get("NUMBA_NUM_THREADS", "")
    return max(1, int(named)) if named.isdecimal() else threads()


class CompiledSums(SliceSums):
    """``SliceSums`` with its inner loops compiled."""

    _done: npt.NDArray[np.int32] | None = None  # what `sweep` wrote down

    def executed(self) -> Executed:
        """As in ``SliceSums``. Of what the loops summed, only who was to sum it comes from the schedule."""
        tiles = super().executed()
        if self._done is None:
            return tiles
        mine = _executed(self._schedule, self._done.tobytes())
        return tuple(sorted(tiles + mine)) if tiles else mine

    def finished(self, topk_weights: F32 | None, *, fp32_reduce: bool) -> Stored:
        """As in ``SliceSums``."""
        inside, outside = self._split
        if outside or not fp32_reduce or self._weights.group == -1:
            return super().finished(topk_weights, fp32_reduce=fp32_reduce)
        return self._added_up(inside, topk_weights)

    def rounded(self, *, fp32_reduce: bool) -> Stored:
        """As in ``SliceSums``."""
        inside, outside = self._split
        if outside or not fp32_reduce:
            return super().rounded(fp32_reduce=fp32_reduce)
        return self._added_up(inside, None)

    def _added_up(self, inside: list[Item], topk_weights: F32 | None) -> Stored:
        """Sums of the loops, rounded and, with weights, multiplied by those."""
        weighted = np.empty(0, np.float32) if topk_weights is None else factors(topk_weights, "float16")
        out = np.zeros((self._alignment.routes, self._weights.n), dtype=np.uint16)
        items = self._pieces(inside)
        room = max(self._sizes(items), default=0)
        begins = np.zeros(len(items), dtype=np.int64)  # added up at once, sums need no place of their own
        self._sweep(items, room, begins, lambda: np.empty(room, dtype=np.float32), weighted, out)
        return out.view(np.float16)

    def __iter__(self) -> Iterator[TileSums]:
        inside, outside = self._split
        self._done = None
        if not inside:
            yield from super().__iter__()
            return
        self._executed.clear()
        for expert, blocks in outside:
            yield from self._seen(self.walk([(expert, blocks)], 0, self._schedule.n_tiles))
        items = self._pieces(inside)
        sizes = self._sizes(items)
        ends = np.cumsum(sizes, dtype=np.int64)
        sums: F32 = np.empty(sum(sizes), dtype=np.float32)
        unweighted, nowhere = np.empty(0, np.float32), np.empty((0, 0), np.uint16)
        self._sweep(items, max(sizes), ends - sizes, lambda: sums, unweighted, nowhere)
        for item, part in zip(items, np.split(sums, ends[:-1]), strict=True):
            yield from self._tile_sums(item, part.reshape(self._layout.shape(item)))

    @cached_property
    def _operands(self) -> tuple[F32, npt.NDArray[np.int8], npt.NDArray[np.bool_]]:
        """A as ``compiled_ends.operands`` makes it."""
        bits = read_only(bits16(self._a))
        made = (
            np.empty(bits.size, dtype=np.float32),
            np.empty(bits.size, dtype=np.int8),
            np.empty(len(bits), dtype=np.bool_),
        )
        operands(bits, self._schedule.tile_k, self._interleaved, *made)
        return made

    @property
    def _given(self) -> Given:
        """What the loops read, in arrays of the kinds that they are compiled for."""
        weights, layout = self._weights, self._layout
        values, exponents, _ = self._operands
        return Given(
            packed=read_only(np.ascontiguousarray(weights.qweight).view(np.uint32)),
            scales=read_only(_scales(weights).view(np.uint32)),
            zeros=read_only(_zeros(weights)),
            a=values,
            exponents=exponents,
            rows_of=layout.routes // self._top_k,
            starts=layout.starts,
            slots=layout.slots,
            counts=layout.counts,
            interleaved=self._interleaved,
            tile_k=self._schedule.tile_k,
            length=self._rule.step,
            tile_words=layout.half // 4,
        )

    @cached_property
    def _layout(self) -> Layout:
        slots, counts = _slots(self._schedule)
        return Layout(
            routes=np.concatenate([np.empty(0, dtype=np.int64), *self._routes]),
            starts=np.cumsum([0] + [len(routes) for routes in self._routes]),
            slots=slots,
            counts=counts,
            most=int(counts.max(initial=0)),
            half=self._schedule.tile_n // 2,
        )

    @cached_property
    def _split(self) -> tuple[list[Item], list[tuple[int, list[int]]]]:
        """What the loops can do, and the experts and blocks that they cannot."""
        experts = list(self._by_expert(ROWS))
        if self._rule.step not in (8, 16) or not self._fast:
            return [], experts
        weights, n_tiles = self._weights, self._schedule.n_tiles
        largest = np.empty(len(experts), dtype=np.uint16)
        subnormal = np.empty(len(experts), dtype=np.bool_)
        chosen = np.array([expert for expert, _ in experts], dtype=np.int64)
        survey(read_only(bits16(weights.scales)), chosen, largest, subnormal)
        rows = self._operands[2]
        all_finite = bool(rows.all())
        finite = finite_up_to(weights, largest.view(np.float16)).tolist()
        inside, outside = [], []
        for (expert, blocks), fits, below in zip(experts, finite, subnormal.tolist(), strict=True):
            if fits and (
                all_finite or all(rows[self._routes[block] // self._top_k].all() for block in blocks)
            ):
                normal = weights.group == -1 or not below
                inside.append(Item(expert, blocks[0], blocks[-1] + 1, 0, n_tiles, normal))
            else:
                outside.append((expert, blocks))
        return inside, outside

    def _pieces(self, items: list[Item]) -> list[Item]:
        per = max(1, STRIDE // self._schedule.tile_n)  # column tiles that the loops take at a time
        return _pieces(items, compiled_threads(), per)

    def _sizes(self, items: list[Item]) -> list[int]:
        """How many sums each item has."""
        return [math.prod(self._layout.shape(item)) for item in items]

    def _sweep(
        self, items: list[Item], room: int, begins: Ints, sums: Callable[[], F32], weighted: F32, out: U16
    ) -> None:
        """Every thread takes the item that is next, until there is none.

        ``room`` is the most sums of an item; the other arguments are as for ``sweep``.
        """
        layout, given = self._layout, self._given
        done = np.full((*layout.counts.shape, layout.most, 2), -1, dtype=np.int32)
        turn, most = np.zeros(1, dtype=np.int64), max(1, AT_A_TIME // max(1, room * self._weights.k))
        numbers = np.array(items, dtype=np.int64).reshape(-1, len(Item._fields))

        def serve() -> None:
            mine = sums()
            try:
                while turn[0] < len(items):
                    sweep(given, numbers, turn, most, begins, mine, layout.routes, weighted, out, done)
            finally:
                end()

        def end() -> None:
            """No more turns: there are none left, or somebody met a fault or a Ctrl-C."""
            turn[0] = len(items)

        count = min(compiled_threads(), len(items))
        try:
            on_threads(serve, count)
        finally:
            end()
        self._done = done

    def _tile_sums(self, item: Item, sums: F32) -> Iterator[TileSums]:
        """One for each block and run of column tiles with equally many slices."""
        layout = self._layout
        half, starts = layout.half, layout.starts
        for block in range(item.block, item.last_block):
            rows = slice(*(starts[block : block + 2] - starts[item.block]).tolist())
            counts = layout.counts[block, item.tile : item.last_tile].tolist()
            edges = [low for low in range(len(counts)) if low == 0 or counts[low] != counts[low - 1]]
            for low, high in pairwise([*edges, len(counts)]):
                yield TileSums(
                    routes=self._routes[block],
                    columns=slice((item.tile + low) * half, (item.tile + high) * half),
                    slices=tuple(sums[: counts[low], rows, :, low * half : high * half]),
                )


def _pieces(items: list[Item], count: int, per: int) -> list[Item]:
    """Items of which ``count`` threads take one at a time.

    Where there are too few they are cut into runs of ``per`` column tiles, and then into as many parts of
    their blocks as there are threads.
    """
    most = PIECES * count if count > 1 else 1
    cut = items
    if len(cut) < most:
        cut = [
            item._replace(tile=low, last_tile=min(low + per, item.last_tile))
            for item in cut
            for low in range(item.tile, item.last_tile, per)
        ]
    if len(cut) < most:
        cut = [part for item in cut for part in _parts(item, count)]
    return cut


def _parts(item: Item, count: int) -> Iterator[Item]:
    """An item by runs of its blocks, as evenly as they can be dealt out."""
    blocks = item.last_block - item.block
    for low, high in pairwise(item.block + blocks * part // count for part in range(count + 1)):
        if low < high:
            yield item._replace(block=low, last_block=high)


def _zeros(weights: Weights) -> U32:
    """Packed zero points of all experts, uint32 (E, K/group, N/8)."""
    if weights.qzeros is not None:
        return np.ascontiguousarray(weights.qzeros).view(np.uint32)
    return np.tile(packed_zeros(weights, 0).view(np.uint32), (weights.experts, 1, 1))


def _scales(weights: Weights) -> npt.NDArray[np.uint16]:
    """Scales of operands, fp16 bits: one where the sums are scaled instead (channelwise, 6.6)."""
    bits = np.ascontiguousarray(bits16(weights.scales))
    return bits if weights.group != -1 else np.full_like(bits, _ONE)


@lru_cache(maxsize=32)
def _slots(schedule: Schedule) -> tuple[npt.NDArray[np.int16], Ints]:
    """Slice ending after each k-tile, (blocks, column tiles, k-tiles); -1 for none. How many of each tile.

    Kept, as ``cuts`` is.
    """
    slots = np.full((schedule.padded_blocks, schedule.n_tiles, schedule.k_tiles), -1, dtype=np.int16)
    for block, tiles in enumerate(cuts(schedule)):
        for column, slices in enumerate(tiles):
            for index, part in enumerate(slices):
                slots[block, column, part.end - 1] = index
    return read_only(slots), read_only((slots >= 0).sum(axis=2))


@lru_cache(maxsize=32)
def _ctas(schedule: Schedule) -> npt.NDArray[np.int32]:
    """Who sums each slice, (blocks, column tiles, slices); -1 where a tile has fewer. Kept likewise."""
    parts = [[[part.cta for part in slices] for slices in tiles] for tiles in cuts(schedule)]
    most = max((len(ctas) for tiles in parts for ctas in tiles), default=0)
    padded = [[ctas + [-1] * (most - len(ctas)) for ctas in tiles] for tiles in parts]
    return read_only(np.array(padded, dtype=np.int32).reshape(schedule.padded_blocks, schedule.n_tiles, most))


@lru_cache(maxsize=4)
def _executed(schedule: Schedule, done: bytes) -> Executed:
    """Slices as `sweep` wrote them down, by tile and with their CTAs. Kept, few as they are large."""
    ctas = _ctas(schedule)
    bounds = np.frombuffer(done, dtype=np.int32).reshape(*ctas.shape, 2)
    summed = bounds[..., 1] >= 0
    block, column, _ = np.nonzero(summed)
    edges = np.flatnonzero(np.diff(block, prepend=-1) | np.diff(column, prepend=-1))
    parts = list(zip(ctas[summed].tolist(), *bounds[summed].T.tolist(), strict=True))
    runs = pairwise([*edges.tolist(), len(block)])
    where = zip(block[edges].tolist(), column[edges].tolist(), runs, strict=True)
    return tuple((row, place, tuple(parts[low:high])) for row, place, (low, high) in where)


marlin_gemm: Multiply = partial(_marlin_gemm, summed=CompiledSums)
ARITHMETIC = Arithmetic(name="numba", multiply=marlin_gemm, activate=silu_and_mul, combine=moe_sum)
