"""The loops of the compiled arithmetic (marlin-moe 6, tensor-core 7.1), for numba.

Compiled without fast-math: every operation here is the one that is written. What is done to operands is in
`compiled_weights`, what is done with them in `compiled_steps`; here is who meets whom, in which order. Only
finite fp16 operands come here.

numba throws kept machine code away when the file of its function changes, not when one of the functions that
went into it does. Only `sweep` is kept, and some of `compiled_ends`. INLINED, there and here, is the digest
of what else went in, held by a test.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mechanism.kernel.compiled_ends import DROP, add_up, to_nearest
from mechanism.kernel.compiled_steps import peaks, step8, step16
from mechanism.kernel.compiled_weights import FIELDS, MOST_WORDS, STRIDE, dequantize, turn_to
from mechanism.kernel.compiled_words import compiled, next_turn, part, round_by, roundings

INLINED = "d57af4616aa7b051129284b1dea1946bec0993e2d4ef43b3a05659bb44d3a114"

ROOM = 1 << 14  # accumulators that are kept at a time: what stays in a core's own cache

_U = np.uint64  # see `compiled_weights`
_UNDROP = np.float32(2.0**DROP)


class Given(NamedTuple):
    """What the loops read.

    Attributes:
        packed: uint32 (E, K, words).
        scales: uint32 (E, K/group, columns / 2), fp16 bits of two columns, finite.
        zeros: uint32 (E, K/group, words), packed.
        a: fp32, flat, from ``operands``: (K/16, rows of A, 16).
        exponents: int8, likewise.
        rows_of: int64: which row of A each row of each block is, block after block.
        starts: int64 (blocks + 1,), where the rows of each block begin.
        slots: int16 (blocks, column tiles, k-tiles): slice that ends after the k-tile, or -1.
        counts: int64 (blocks, column tiles), slices.
        interleaved: Rows of vllm 0.11.0 (A.1).
        tile_k: K extent of a tile.
        length: L, 8 or 16.
        tile_words: Words of a column tile.
    """

    packed: npt.NDArray[np.uint32]
    scales: npt.NDArray[np.uint32]
    zeros: npt.NDArray[np.uint32]
    a: npt.NDArray[np.float32]
    exponents: npt.NDArray[np.int8]
    rows_of: npt.NDArray[np.int64]
    starts: npt.NDArray[np.int64]
    slots: npt.NDArray[np.int16]
    counts: npt.NDArray[np.int64]
    interleaved: bool
    tile_k: int
    length: int
    tile_words: int


@compiled
def sweep(given, items, turn, most, begins, sums, routes, weighted, out, done):
    """Every slice of the pieces of work that are next, and their sums if these are wanted.

    Args:
        given: See ``Given``.
        items: int64 (n, 6): expert, blocks [first, last), column tiles [first, last), and whether no nonzero
            operand is subnormal.
        turn: In and out, int64 (1,): which item is next, whoever asks.
        most: Items to take.
        begins: int64 (n,), where the sums of each item begin.
        sums: Out, fp32, flat: (slices, rows, 2, byte columns) of each item.
        routes: int64, output row of each row of each block, block after block.
        weighted: fp32 (routes,), routing weights rounded to fp16; empty for none.
        out: Out, uint16 (routes, N), fp16 bits: slices added up, and weighted; without rows, they are not.
        done: Out, int32 (blocks, column tiles, slices, 2): k-tiles [begin, end) of each, as they were summed.
    """
    before = to_nearest()
    for _ in range(most):
        index = next_turn(turn)
        if index >= items.shape[0]:
            break
        mine = sums[begins[index] :]
        walk(given, items[index], mine, done)
        if out.shape[0] > 0:
            half_tile = 4 * given.tile_words
            add_up(mine, items[index], given.counts, given.starts, routes, half_tile, weighted, out)
    round_by(before)


class Scratch(NamedTuple):
    """What a piece of work is computed in.

    Attributes:
        lows: int64, first word of each piece of columns: the last two may overlap.
        acc: fp32 accumulators (pieces, rows, warp rows, STRIDE), flat.
        of_group: fp32 (pieces, 4, STRIDE), flat, from ``turn_to``.
        values: fp32 (L * STRIDE,), from ``dequantize``.
        fields: int32 (L * FIELDS,), likewise.
        peak: int32 (FIELDS,), from ``peaks``.
        begun: int32 (blocks, column tiles): k-tile in which the running slice began.
    """

    lows: npt.NDArray[np.int64]
    acc: npt.NDArray[np.float32]
    of_group: npt.NDArray[np.float32]
    values: npt.NDArray[np.float32]
    fields: npt.NDArray[np.int32]
    peak: npt.NDArray[np.int32]
    begun: npt.NDArray[np.int32]


@part
def walk(given, item, sums, done):
    """Blocks of one expert, for a run of column tiles. Arguments as for ``sweep``."""
    _, block0, block1, tile0, tile1, _ = item
    rows, warp_rows = given.starts[block1] - given.starts[block0], given.tile_k // 32
    per = max(1, MOST_WORDS // given.tile_words)  # column tiles of a piece
    pieces = max(1, min(-(-(tile1 - tile0) // per), ROOM // max(1, rows * warp_rows * STRIDE)))
    words = _U(min(MOST_WORDS, given.packed.shape[2]))
    scratch = Scratch(
        lows=np.empty(pieces, dtype=np.int64),
        acc=np.empty(pieces * rows * warp_rows * STRIDE, dtype=np.float32),
        of_group=np.zeros(pieces * 4 * STRIDE, dtype=np.float32),
        values=np.zeros(given.length * STRIDE, dtype=np.float32),
        fields=np.zeros(given.length * FIELDS, dtype=np.int32),
        peak=np.empty(FIELDS, dtype=np.int32),
        begun=np.zeros((block1 - block0, tile1 - tile0), dtype=np.int32),
    )
    for first in range(tile0, tile1, per * pieces):
        last = min(first + per * pieces, tile1)
        filled = -(-(last - first) // per)
        for piece in range(filled):
            low = (first + piece * per) * given.tile_words
            scratch.lows[piece] = min(low, given.packed.shape[2] - np.int64(words))
        scratch.acc[:] = np.float32(0)
        group = np.int64(-1)  # one kind throughout, or `_advance` is compiled twice
        for tile in range(given.slots.shape[2]):
            group = _advance(given, item, scratch, filled, words, tile, group)
            _release(given, item, scratch, first, last, tile, sums, done)


@part
def _advance(given, item, scratch, filled, words, tile, group):
    """Feed k-tile ``tile`` to every accumulator of ``filled`` pieces of ``words`` words.

    ``group`` is that whose scales and zero points are in the scratch, before; what it gives is that after.
    """
    packed, normal = given.packed[item[0]], item[5] != 0
    scales, zeros = given.scales[item[0]], given.zeros[item[0]]
    rows_of = given.rows_of[given.starts[item[1]] : given.starts[item[2]]]
    a, fa, length, warp_rows = given.a, given.exponents, given.length, given.tile_k // 32
    values, fields, peak, acc = scratch.values, scratch.fields, scratch.peak, scratch.acc
    of_group = scratch.of_group  # all of it: a view of a part is counted by every thread, at a price
    zero, nearest, _ = roundings()
    all_rows, size = a.shape[0] // packed.shape[0], packed.shape[0] // scales.shape[0]
    for w in range(warp_rows):
        for h in range(2):
            run = (tile * warp_rows + w) * 2 + h
            k0 = tile * given.tile_k + (16 * (w + warp_rows * h) if given.interleaved else 32 * w + 16 * h)
            if k0 // size != group:
                group = k0 // size
                for piece in range(filled):
                    low, of = _U(scratch.lows[piece]), _U(piece * 4 * STRIDE)
                    turn_to(scales, zeros, _U(group), low, words, of_group, of)
            for sub in range(0, 16, length):
                for piece in range(filled):
                    low, of = _U(scratch.lows[piece]), _U(piece * 4 * STRIDE)
                    for i in range(0, length, 8):
                        k = _U(k0 + sub + i)
                        dequantize(packed, k, low, words, of_group, of, normal, values, fields, _U(i))
                    round_by(zero)
                    for row in range(len(rows_of)):
                        to = _U(((piece * len(rows_of) + row) * warp_rows + w) * STRIDE)
                        at = _U((run * all_rows + rows_of[row]) * 16 + sub)
                        peaks(fa, at, fields, length, peak)
                        if length == 8:
                            step8(a, at, values, peak, acc, to)
                        else:
                            step16(a, at, values, peak, acc, to)
                    round_by(nearest)
    return group


@part
def _release(given, item, scratch, first, last, tile, sums, done):
    """Let go of every slice of column tiles ``[first, last)`` that ends after k-tile ``tile``."""
    _, block0, block1, tile0, tile1, _ = item
    tile_words, starts, begun = given.tile_words, given.starts, scratch.begun
    rows, warp_rows = starts[block1] - starts[block0], given.tile_k // 32
    width, per = (tile1 - tile0) * 4 * tile_words, max(1, MOST_WORDS // tile_words)  # byte columns; tiles
    for block in range(block0, block1):
        for column in range(first, last):
            slot = given.slots[block, column, tile]
            if slot < 0:
                continue
            done[block, column, slot, 0] = begun[block - block0, column - tile0]
            done[block, column, slot, 1] = tile + 1
            begun[block - block0, column - tile0] = tile + 1
            piece = (column - first) // per
            for row in range(starts[block] - starts[block0], starts[block + 1] - starts[block0]):
                _take(
                    scratch.acc[(piece * rows + row) * warp_rows * STRIDE :],
                    column * tile_words - scratch.lows[piece],
                    tile_words,
                    warp_rows,
                    sums[(slot * rows + row) * 2 * width + (column - tile0) * 4 * tile_words :],
                    width,
                )


@part
def _take(acc, low, words, warp_rows, out, width):
    """fp32 adds over warp rows, f0 + f1 or f0 + (f1 + (f2 + f3)) (6.4); the accumulators go back to +0.

    Args:
        acc: fp32, those of one row and piece, (warp rows, STRIDE).
        low: First word of the column tile in the piece.
        words: Words of the column tile.
        warp_rows: R.
        out: Out, fp32: byte columns of the tile in plane 0, and ``width`` further in plane 1.
        width: Byte columns of a plane.
    """
    for nibble in range(8):
        for w in range(words):
            c = nibble * MOST_WORDS + low + w
            if warp_rows == 2:
                total = acc[c] + acc[STRIDE + c]  # RNE
            else:
                upper = acc[STRIDE + c] + (acc[2 * STRIDE + c] + acc[3 * STRIDE + c])  # RNE, twice
                total = acc[c] + upper  # RNE
            out[(nibble & 1) * width + 4 * w + (nibble >> 1)] = total * _UNDROP  # exact
            for row in range(warp_rows):
                acc[row * STRIDE + c] = np.float32(0)
