"""The loops of the compiled arithmetic (marlin-moe 6, tensor-core 7.1), for numba.

Compiled without fast-math: every operation here is the one that is written. What is done to operands is in
`compiled_weights`, what is done with them in `compiled_steps`; here is who meets whom, in which order. Only
finite fp16 operands come here.

numba throws kept machine code away when the file of its function changes, not when one of the functions that
went into it does. Only `sweep` is kept, and what `compiled_ends` has. INLINED, there and here, is the digest
of what else went in, held by a test.
"""

from __future__ import annotations

import numpy as np

from mechanism.kernel.compiled_ends import DROP
from mechanism.kernel.compiled_steps import peaks, step8, step16
from mechanism.kernel.compiled_weights import FIELDS, MOST_WORDS, STRIDE, dequantize, turn_to
from mechanism.kernel.compiled_words import TO_NEAREST, TO_ZERO, compiled, part, set_rounding

INLINED = "2ad6b375664d2732288dc403fc129bf3461d83de5edbcf54d186f2944274e8a7"

ROOM = 1 << 14  # accumulators that are kept at a time: what stays in a core's own cache

_U = np.uint64  # see `compiled_weights`
_UNDROP = np.float32(2.0**DROP)


@compiled
def sweep(
    packed,
    scales,
    zeros,
    a,
    fa,
    rows_of,
    starts,
    interleaved,
    tile_k,
    length,
    tile_words,
    slots,
    items,
    begins,
    sums,
    done,
):
    """Every slice of some pieces of work, one after the other.

    Args:
        packed: uint32 (E, K, words).
        scales: uint32 (E, K/group, columns / 2), fp16 bits of two columns, finite.
        zeros: uint32 (E, K/group, words), packed.
        a: fp32 (rows, K), dropped, K as (k-tile, warp row, instruction, 16).
        fa: int8, same shape: exponents.
        rows_of: int64: which row of ``a`` each row of each block is, block after block.
        starts: int64 (blocks + 1,), where the rows of each block begin.
        interleaved: Rows of vllm 0.11.0 (A.1).
        tile_k: K extent of a tile.
        length: L, 8 or 16.
        tile_words: Words of a column tile.
        slots: int16 (blocks, column tiles, k-tiles): slice that ends after the k-tile, or -1.
        items: int64 (n, 6): expert, blocks [first, last), column tiles [first, last), and whether no nonzero
            operand is subnormal.
        begins: int64 (n + 1,), where the sums of each item begin.
        sums: Out, fp32, flat: (slices, rows, 2, byte columns) of each item.
        done: Out, int32 (slices, 4): block, column tile, k-tiles [begin, end), as they were summed.

    Returns:
        How many slices were summed.
    """
    count = 0
    for index in range(items.shape[0]):
        expert, first_block, last_block, first, last, normal = items[index]
        count = walk(
            packed[expert],
            scales[expert],
            zeros[expert],
            normal != 0,
            a,
            fa,
            rows_of[starts[first_block] : starts[last_block]],
            starts[first_block : last_block + 1],
            interleaved,
            tile_k,
            length,
            tile_words,
            slots[first_block:last_block],
            first_block,
            first,
            last,
            sums[begins[index] :],
            done,
            count,
        )
    return count


@part
def walk(
    packed,
    scales,
    zeros,
    normal,
    a,
    fa,
    rows_of,
    starts,
    interleaved,
    tile_k,
    length,
    tile_words,
    slots,
    block0,
    tile0,
    tile1,
    sums,
    done,
    count,
):
    """Blocks of one expert, for column tiles ``[tile0, tile1)``; gives the new count. Else as ``sweep``.

    Arrays are the parts that belong to the expert and its blocks; ``block0`` is the first one's number.
    """
    rows, warp_rows, k_tiles = rows_of.shape[0], tile_k // 32, slots.shape[2]
    per = max(1, MOST_WORDS // tile_words)  # column tiles of a piece
    pieces = max(1, min(-(-(tile1 - tile0) // per), ROOM // max(1, rows * warp_rows * STRIDE)))
    size = packed.shape[0] // scales.shape[0]
    words = min(MOST_WORDS, packed.shape[1])
    acc = np.empty(pieces * rows * warp_rows * STRIDE, dtype=np.float32)
    values = np.zeros(length * STRIDE, dtype=np.float32)
    fields = np.zeros(length * FIELDS, dtype=np.int32)
    peak = np.empty(FIELDS, dtype=np.int32)
    of_group = np.zeros((pieces, 4, STRIDE), dtype=np.float32)
    lows = np.empty(pieces, dtype=np.int64)  # first word of each piece: the last two may overlap
    begun = np.empty((slots.shape[0], tile1 - tile0), dtype=np.int32)
    begun[:] = 0
    for first in range(tile0, tile1, per * pieces):
        last = min(first + per * pieces, tile1)
        filled = -(-(last - first) // per)
        for piece in range(filled):
            lows[piece] = min((first + piece * per) * tile_words, packed.shape[1] - words)
        acc[:] = np.float32(0)
        group = -1
        for tile in range(k_tiles):
            for w in range(warp_rows):
                for h in range(2):
                    offset = 16 * (w + warp_rows * h) if interleaved else 32 * w + 16 * h
                    k0 = tile * tile_k + offset
                    if k0 // size != group:
                        group = k0 // size
                        for piece in range(filled):
                            turn_to(scales, zeros, _U(group), _U(lows[piece]), _U(words), of_group[piece])
                    for sub in range(0, 16, length):
                        at = ((tile * warp_rows + w) * 2 + h) * 16 + sub
                        for piece in range(filled):
                            low = _U(lows[piece])
                            for i in range(0, length, 8):
                                k, mine = _U(k0 + sub + i), of_group[piece]
                                dequantize(packed, k, low, _U(words), mine, normal, values, fields, _U(i))
                            set_rounding(np.int32(TO_ZERO))
                            for row in range(rows):
                                to = _U(((piece * rows + row) * warp_rows + w) * STRIDE)
                                source = _U(rows_of[row])
                                peaks(fa, source, _U(at), fields, length, peak)
                                if length == 8:
                                    step8(a, source, _U(at), values, peak, acc, to)
                                else:
                                    step16(a, source, _U(at), values, peak, acc, to)
                            set_rounding(np.int32(TO_NEAREST))
            count = _release(
                acc,
                slots,
                tile,
                first,
                last,
                per,
                rows,
                warp_rows,
                tile_words,
                lows,
                starts,
                block0,
                tile0,
                tile1,
                begun,
                sums,
                done,
                count,
            )
    return count


@part
def _release(
    acc,
    slots,
    tile,
    first,
    last,
    per,
    rows,
    warp_rows,
    tile_words,
    lows,
    starts,
    block0,
    tile0,
    tile1,
    begun,
    sums,
    done,
    count,
):
    """Let go of every slice that ends after k-tile ``tile``, in column tiles ``[first, last)``.

    Args:
        acc: fp32 accumulators (pieces, rows, warp rows, STRIDE), flat.
        slots: See ``walk``; so for what is not named here.
        tile: The k-tile that was just summed.
        first: First column tile.
        last: Its end.
        per: Column tiles of a piece.
        rows: Rows of A.
        warp_rows: R.
        tile_words: Words of a column tile.
        lows: First word of each piece.
        starts: int64 (blocks + 1,).
        block0: Number of the first block.
        tile0: First column tile of the item.
        tile1: Its end.
        begun: In and out, int32 (blocks, column tiles): k-tile in which the running slice began.
        sums: Out.
        done: Out.
        count: Rows of ``done`` so far.
    """
    width = (tile1 - tile0) * 4 * tile_words  # byte columns
    for block in range(slots.shape[0]):
        for column in range(first, last):
            slot = slots[block, column, tile]
            if slot < 0:
                continue
            done[count, 0], done[count, 1] = block0 + block, column
            done[count, 2], done[count, 3] = begun[block, column - tile0], tile + 1
            count += 1
            begun[block, column - tile0] = tile + 1
            piece = (column - first) // per
            for row in range(starts[block] - starts[0], starts[block + 1] - starts[0]):
                _take(
                    acc[(piece * rows + row) * warp_rows * STRIDE :],
                    column * tile_words - lows[piece],
                    tile_words,
                    warp_rows,
                    sums[(slot * rows + row) * 2 * width + (column - tile0) * 4 * tile_words :],
                    width,
                )
    return count


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
