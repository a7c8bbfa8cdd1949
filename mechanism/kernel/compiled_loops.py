"""The loops of the compiled arithmetic (marlin-moe 6, tensor-core 7.1), for numba.

Compiled without fast-math: every operation here is the one that is written. Loops run over columns with
constant strides between k, which is what makes vector code of them. Only finite fp16 operands come here.

All in one file: numba throws kept machine code away when this file changes, not when an imported one does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba
import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from mechanism.kernel.panel import LIFT

Function = TypeVar("Function", bound=Callable[..., Any])

STRIDE = 512  # columns from one k to the next in the operands of a step; also the most columns of a piece

ROOM = 1 << 14  # accumulators that are kept at a time: what stays in a core's own cache

# numba checks signed indices for negative ones, in the way of vector code: offsets are unsigned
_U = np.uint64
_S = np.uint64(STRIDE)
_REBIAS = np.float32(2.0**112)
_UNLIFT = np.float32(2.0**-LIFT)
_FLOOR = 64  # under the exponent field of every real product, see `chain`
_SMALLEST = 127 - 14  # exponent field of subnormal fp16 operands
_EXPONENT = 0x7F80_0000
# exponent field of 2^(F - Emax): this less that of 2^Emax, modulo 2^32; for F = 24 and 25
_TOP24, _TOP25 = (((f + 254) << 23) - (1 << 32) for f in (24, 25))
_KEEP24 = -1 << 29  # clears all of an fp64 mantissa below its 24th bit


def compiled(function: Function) -> Function:
    """``function`` as machine code that lets go of the interpreter, kept where numba keeps it."""
    made: Function = numba.njit(nogil=True, cache=True, error_model="numpy", boundscheck=False)(function)
    return made


def _bitcast(result: Any, argument: Any, to: ir.Type) -> Any:
    def build(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], to)

    return result(argument), build


@intrinsic
def bits32(_context: Any, value: Any) -> Any:
    """The int32 whose bits an fp32 value has."""
    return _bitcast(types.int32, value, ir.IntType(32))


@intrinsic
def value32(_context: Any, bits: Any) -> Any:
    """The fp32 value that has the bits of an int32."""
    return _bitcast(types.float32, bits, ir.FloatType())


@intrinsic
def bits64(_context: Any, value: Any) -> Any:
    """The int64 whose bits an fp64 value has."""
    return _bitcast(types.int64, value, ir.IntType(64))


@intrinsic
def value64(_context: Any, bits: Any) -> Any:
    """The fp64 value that has the bits of an int64."""
    return _bitcast(types.float64, bits, ir.DoubleType())


@compiled
def dequantize_short(packed, k, low, large, small, zeros, half, values, fields, to):
    """Operands of one k and their exponent fields: low nibbles, then high ones. None may be subnormal.

    RN16((q - z) * s); a zero has the field 0.

    Args:
        packed: uint8 (K, byte columns).
        k: Which row.
        low: First byte column.
        large: fp32 (STRIDE,), 8193 s of the columns.
        small: fp32 (STRIDE,), 8192 s.
        zeros: fp32 (STRIDE,).
        half: Byte columns.
        values: Out, fp32; from ``to``.
        fields: Out, uint8; from ``to``.
        to: See ``values``.
    """
    high = to + half
    for c in range(half):
        code = np.int32(packed[k, low + c])
        centred = np.float32(np.int32(code & np.int32(15))) - zeros[c]  # exact
        # 8193 p rounded to 24 bits keeps 11 bits of p: less 8192 p it is RN16(p), ties to even
        values[to + c] = centred * large[c] - centred * small[c]
    for c in range(half):
        code = np.int32(packed[k, low + c])
        centred = np.float32(np.int32(code >> np.int32(4))) - zeros[half + c]  # exact
        values[high + c] = centred * large[half + c] - centred * small[half + c]
    for c in range(half + half):
        fields[to + c] = np.uint8(bits32(values[to + c]) >> np.int32(23))  # the sign falls off


@compiled
def dequantize_any(packed, k, low, scales, zeros, half, grouped, values, fields, to):
    """``dequantize_short`` for scales of any size, ``scales``; the exact q - z if not ``grouped``."""
    high = to + half
    for c in range(half):
        code = np.int32(packed[k, low + c])
        values[to + c] = np.float32(np.int32(code & np.int32(15))) - zeros[c]  # exact
    for c in range(half):
        code = np.int32(packed[k, low + c])
        values[high + c] = np.float32(np.int32(code >> np.int32(4))) - zeros[half + c]  # exact
    if grouped:
        for c in range(half + half):
            product = values[to + c] * scales[c]  # exact: 15 bits
            kept = product * np.float32(8193) - product * np.float32(8192)  # RN16 of a normal one
            small = (product + np.float32(0.75)) - np.float32(0.75)  # RN16: multiples of 2^-24
            values[to + c] = small if abs(product) < np.float32(2.0**-14) else kept
    for c in range(half + half):
        field = np.int32((bits32(values[to + c]) & np.int32(_EXPONENT)) >> np.int32(23))
        field = field if field > np.int32(_SMALLEST) else np.int32(_SMALLEST)
        fields[to + c] = np.uint8(field if values[to + c] != np.float32(0) else np.int32(0))


@compiled
def peaks(fa, row, at, fb, length, width, peak):
    """Largest exponent field of the products of one step, by column.

    Args:
        fa: uint8 (rows, K), exponents of the operands, lifted.
        row: Which row.
        at: Which k is the step's first.
        fb: uint8 (length * STRIDE,).
        length: L, 8 or 16.
        width: Columns.
        peak: Out, uint8 (STRIDE,).
    """
    for c in range(width):
        most = np.uint8(_FLOOR)
        for i in range(8):
            other = np.uint8(fa[row, at + _U(i)] + fb[_U(i) * _S + c])
            most = other if other > most else most
        peak[c] = most
    if length == 16:
        for c in range(width):
            most = peak[c]
            for i in range(8, 16):
                other = np.uint8(fa[row, at + _U(i)] + fb[_U(i) * _S + c])
                most = other if other > most else most
            peak[c] = most


@compiled
def _cut8(a, row, at, b, first, c, scale):
    """Sum of eight products of column ``c``, each cut toward zero to the quantum; below 2^30.1 in size."""
    total = np.int32(0)
    for i in range(8):
        k = _U(i) + _U(first)
        term = np.int32(np.float32(np.float32(a[row, at + k] * b[k * _S + c]) * scale))
        total = np.int32(total + term)
    return total


@compiled
def step8(a, row, at, b, peak, width, acc, to):
    """One step of eight products of one row (Turing, Ampere, Ada: F = 24).

    Args:
        a: fp32 (rows, K), the operands, lifted.
        row: Which row.
        at: Which k is the step's first.
        b: fp32 (8 * STRIDE,).
        peak: uint8 (STRIDE,), from ``peaks``.
        width: Columns.
        acc: In and out, fp32; from ``to``.
        to: See ``acc``.
    """
    for c in range(width):
        before = acc[to + c]
        emax = np.int32(np.int32(peak[c]) << np.int32(23))
        own = np.int32(bits32(before) & np.int32(_EXPONENT))
        emax = own if own > emax else emax
        scale = value32(np.int32(np.int32(_TOP24) - emax))  # 2^(F - Emax)
        total = np.int32(_cut8(a, row, at, b, 0, c, scale) + np.int32(np.float32(before * scale)))
        # RZ to 24 bits: the nearest, and one unit less where that is further from zero
        near = np.float32(total)
        beyond = np.int32(abs(np.int32(near))) > np.int32(abs(total))
        bits = np.int32(bits32(near) - (np.int32(1) if beyond else np.int32(0)))
        acc[to + c] = value32(bits) * value32(np.int32(emax - np.int32(24 << 23)))  # exact


@compiled
def step16(a, row, at, b, peak, width, acc, to):
    """One step of sixteen products of one row (Hopper, Blackwell: F = 25). Arguments as for ``step8``."""
    for c in range(width):
        before = acc[to + c]
        emax = np.int32(np.int32(peak[c]) << np.int32(23))
        own = np.int32(bits32(before) & np.int32(_EXPONENT))
        emax = own if own > emax else emax
        scale = value32(np.int32(np.int32(_TOP25) - emax))  # 2^(F - Emax)
        low = np.int32(_cut8(a, row, at, b, 0, c, scale) + np.int32(np.float32(before * scale)))
        total = np.float64(low) + np.float64(_cut8(a, row, at, b, 8, c, scale))  # with C it can leave int32
        kept = value64(bits64(total) & np.int64(_KEEP24))  # RZ to 24 bits
        acc[to + c] = np.float32(kept) * value32(np.int32(emax - np.int32(25 << 23)))  # exact


@compiled
def walk(
    packed,
    scales,
    zeros,
    origin,
    grouped,
    normal,
    a,
    fa,
    starts,
    interleaved,
    tile_k,
    length,
    half_tile,
    slots,
    sums,
    done,
):
    """Every slice of some blocks of one expert, for a run of column tiles.

    Args:
        packed: uint8 (K, byte columns).
        scales: uint16 (K/group, columns), fp16 bits, finite.
        zeros: uint8 (K/group, byte columns), packed.
        origin: First byte column of the run.
        grouped: Whether scales belong to the operand (False if channelwise).
        normal: Whether scales are applied and no nonzero operand is subnormal.
        a: fp32 (rows, K), lifted (`panel`), K as (k-tile, warp row, instruction, 16).
        fa: uint8, same shape: exponents, lifted; 0 for a zero.
        starts: int64 (blocks + 1,), the rows of each block.
        interleaved: Rows of vllm 0.11.0 (A.1).
        tile_k: K extent of a tile.
        length: L, 8 or 16.
        half_tile: Byte columns of a column tile.
        slots: int16 (blocks, column tiles, k-tiles): slice that ends after the k-tile, or -1.
        sums: Out, fp32 (slices, rows, 2, byte columns of the run).
        done: Out, int32 (slices, blocks, column tiles, 2): k-tiles [begin, end) that were summed.
    """
    rows, warp_rows = a.shape[0], tile_k // 32
    tiles, k_tiles = slots.shape[1], slots.shape[2]
    per = max(1, STRIDE // (2 * half_tile))  # column tiles of a piece
    pieces = max(1, min(-(-tiles // per), ROOM // max(1, rows * warp_rows * STRIDE)))
    size = packed.shape[0] // scales.shape[0]
    acc = np.empty(pieces * rows * warp_rows * STRIDE, dtype=np.float32)
    values = np.empty(length * STRIDE, dtype=np.float32)
    fields = np.empty(length * STRIDE, dtype=np.uint8)
    peak = np.empty(STRIDE, dtype=np.uint8)
    of_group = np.empty((pieces, 4, STRIDE), dtype=np.float32)
    begun = np.empty((slots.shape[0], tiles), dtype=np.int32)
    begun[:] = 0
    for first in range(0, tiles, per * pieces):
        last = min(first + per * pieces, tiles)
        acc[:] = np.float32(0)
        group = -1
        for tile in range(k_tiles):
            for w in range(warp_rows):
                for h in range(2):
                    offset = 16 * (w + warp_rows * h) if interleaved else 32 * w + 16 * h
                    k0 = tile * tile_k + offset
                    if k0 // size != group:
                        group = k0 // size
                        for piece, start in enumerate(range(first, last, per)):
                            low, half = origin + start * half_tile, min(per, last - start) * half_tile
                            _turn_to(scales[group], zeros[group], low, half, of_group[piece])
                    for sub in range(0, 16, length):
                        at = ((tile * warp_rows + w) * 2 + h) * 16 + sub
                        for piece, start in enumerate(range(first, last, per)):
                            low, half = origin + start * half_tile, min(per, last - start) * half_tile
                            scale, large = of_group[piece, 0], of_group[piece, 1]
                            small, zero = of_group[piece, 2], of_group[piece, 3]
                            for i in range(length):
                                k, to = _U(k0 + sub + i), _U(i * STRIDE)
                                if normal:
                                    dequantize_short(
                                        packed, k, _U(low), large, small, zero, _U(half), values, fields, to
                                    )
                                else:
                                    dequantize_any(
                                        packed, k, _U(low), scale, zero, _U(half), grouped, values, fields, to
                                    )
                            for row in range(rows):
                                to = _U(((piece * rows + row) * warp_rows + w) * STRIDE)
                                peaks(fa, _U(row), _U(at), fields, length, _U(2 * half), peak)
                                if length == 8:
                                    step8(a, _U(row), _U(at), values, peak, _U(2 * half), acc, to)
                                else:
                                    step16(a, _U(row), _U(at), values, peak, _U(2 * half), acc, to)
            _release(
                acc, slots, tile, first, last, per, rows, warp_rows, half_tile, starts, begun, sums, done
            )


@compiled
def _turn_to(scales, zeros, low, half, out):
    """What a piece's columns need of one group: scale, 8193 and 8192 times it (exact), and zero point.

    Args:
        scales: uint16 (columns,), fp16 bits, finite.
        zeros: uint8 (byte columns,), packed.
        low: First byte column.
        half: Byte columns.
        out: Out, fp32 (4, STRIDE).
    """
    for plane in range(2):
        for c in range(half):
            byte, to = low + c, plane * half + c
            # byte b of a word holds columns x0 + 2 plane + 4 x2, x0 = b >> 1, x2 = b & 1 (1.1)
            column = (byte >> 2) * 8 + ((byte & 3) >> 1) + 2 * plane + 4 * (byte & 1)
            bits = np.int32(scales[column])
            # fp16 to fp32: the mantissa moves up 13 bits, the exponent's bias grows by 112; subnormals too
            scale = value32(np.int32((bits & np.int32(0x7FFF)) << np.int32(13))) * _REBIAS  # exact
            scale = -scale if bits & np.int32(0x8000) else scale
            out[0, to] = scale
            out[1, to] = scale * np.float32(8193)
            out[2, to] = scale * np.float32(8192)
            out[3, to] = np.float32((np.int32(zeros[byte]) >> np.int32(4 * plane)) & np.int32(15))


@compiled
def _release(acc, slots, tile, first, last, per, rows, warp_rows, half_tile, starts, begun, sums, done):
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
        half_tile: Byte columns of a column tile.
        starts: int64 (blocks + 1,).
        begun: In and out, int32 (blocks, column tiles): k-tile in which the running slice began.
        sums: Out.
        done: Out.
    """
    for block in range(slots.shape[0]):
        for column in range(first, last):
            slot = slots[block, column, tile]
            if slot < 0:
                continue
            done[slot, block, column, 0] = begun[block, column]
            done[slot, block, column, 1] = tile + 1
            begun[block, column] = tile + 1
            piece = (column - first) // per
            start = first + piece * per
            half = min(per, last - start) * half_tile
            for row in range(starts[block], starts[block + 1]):
                for plane in range(2):
                    at = (piece * rows + row) * warp_rows * STRIDE
                    _take(
                        acc[at + plane * half + (column - start) * half_tile :],
                        warp_rows,
                        sums[slot, row, plane, column * half_tile : (column + 1) * half_tile],
                    )


@compiled
def _take(acc, warp_rows, out):
    """fp32 adds over warp rows, f0 + f1 or f0 + (f1 + (f2 + f3)) (6.4); the accumulators go back to +0."""
    for c in range(out.shape[0]):
        if warp_rows == 2:
            total = acc[c] + acc[STRIDE + c]  # RNE
        else:
            total = acc[c] + (acc[STRIDE + c] + (acc[2 * STRIDE + c] + acc[3 * STRIDE + c]))  # RNE, thrice
        out[c] = total * _UNLIFT  # exact: a multiple of 2^-53
        for w in range(warp_rows):
            acc[w * STRIDE + c] = np.float32(0)
