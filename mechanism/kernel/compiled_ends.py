"""Before and after the compiled loops: operands of A, what scales there are, slices added up, routes too."""

from __future__ import annotations

import numpy as np

from mechanism.kernel.compiled_words import bits32, compiled, inlined, part, round_by, roundings, value32

INLINED = "64f46c0a4f623dceecbb61654c96ec150f453d6710274d92583ac535b072a976"  # see `compiled_loops`

DROP = 60  # A is taken times 2^-DROP: see `compiled_steps`
BIAS = 127 + DROP  # what is taken off the exponent fields of A
ZERO = -128  # the exponent byte of a zero in A
_SCALE = np.float32(2.0 ** (112 - DROP))
_RUN = 512  # columns of which the sums over routes are kept at a time
_U = np.uint64  # see `compiled_weights`


@inlined
def to_nearest():
    """This thread rounds to nearest and keeps subnormals from now on. Gives, for ``round_by``, what was."""
    _, nearest, before = roundings()
    round_by(nearest)
    return before


@compiled
def operands(bits, tile_k, interleaved, values, exponents, finite):
    """A as the loops take it: times 2^-DROP, K as (k-tile, warp row, instruction, 16).

    Rows stand together in every run of 16: taken one after the other in rows of K they would all fall into
    the same few places of a cache.

    Args:
        bits: uint16 (rows, K), fp16.
        tile_k: K extent of a tile.
        interleaved: Rows of vllm 0.11.0 (A.1).
        values: Out, fp32, flat: (K/16, rows, 16).
        exponents: Out, int8, likewise: exponent fields of fp32 less BIAS; subnormals enter with that of
            -14, zeros have ZERO.
        finite: Out, bool (rows,).
    """
    before = to_nearest()
    warp_rows = tile_k // 32
    rows = _U(bits.shape[0])
    for row in range(rows):
        most, to = np.uint16(0), row * _U(16)
        for tile in range(bits.shape[1] // tile_k):
            for w in range(warp_rows):
                for h in range(2):
                    offset = 16 * (w + warp_rows * h) if interleaved else 32 * w + 16 * h
                    start = _U(tile * tile_k + offset)
                    for i in range(_U(16)):
                        word = np.int32(bits[row, start + i])
                        magnitude = np.int32(word & np.int32(0x7FFF))
                        sign = np.int32(np.int32(word & np.int32(0x8000)) << np.int32(16))
                        # the mantissa moves up 13 bits, the exponent's bias grows by 112; subnormals too
                        raised = value32(np.int32(np.int32(magnitude << np.int32(13)) | sign))
                        values[to + i] = raised * _SCALE  # exact
                        field = max(np.int32(magnitude >> np.int32(10)), np.int32(1)) + np.int32(112 - BIAS)
                        exponents[to + i] = np.int8(field if magnitude else np.int32(ZERO))
                        most = max(most, np.uint16(magnitude))
                    to += rows * _U(16)
        finite[row] = most < np.uint16(0x7C00)
    round_by(before)


@compiled
def survey(scales, experts, largest, subnormal):
    """Largest magnitude of each expert's scales, and whether one is subnormal.

    Args:
        scales: uint16 (E, K/group, N), fp16 bits.
        experts: int64 (n,), which.
        largest: Out, uint16 (n,): bits without the sign.
        subnormal: Out, bool (n,).
    """
    for index in range(len(experts)):
        most, least = np.uint16(0), np.uint16(0xFFFF)
        for group in range(scales.shape[1]):
            row = scales[experts[index], group]
            for c in range(len(row)):
                bits = np.uint16(row[c] & np.uint16(0x7FFF))
                most = max(most, bits)
                least = min(least, np.uint16(bits - np.uint16(1)))  # a zero becomes the largest
        largest[index] = most
        subnormal[index] = least < np.uint16(0x3FF)


@part
def wide(bits):
    """The fp32 value of fp16 bits."""
    magnitude = np.uint32(bits & np.uint16(0x7FFF))
    shifted = np.uint32(magnitude << np.uint32(13))
    finite = np.float32(value32(np.int32(shifted)) * np.float32(2.0**112))  # exact; subnormals too
    others = np.uint32(shifted | np.uint32(0x7F80_0000))  # Inf and NaN
    raised = np.uint32(bits32(finite)) if magnitude < np.uint32(0x7C00) else others
    sign = np.uint32(np.uint32(bits & np.uint16(0x8000)) << np.uint32(16))
    return np.float32(value32(np.int32(raised | sign)))


@part
def half(value):
    """RN16 of an fp32 value, as bits: ties to even, subnormals kept, overflow to Inf, NaN canonical."""
    bits = np.uint32(bits32(value))
    magnitude = np.uint32(bits & np.uint32(0x7FFF_FFFF))
    odd = np.uint32(np.uint32(magnitude >> np.uint32(13)) & np.uint32(1))
    normal = np.uint32(np.uint32(magnitude - np.uint32(112 << 23) + np.uint32(0xFFF) + odd) >> np.uint32(13))
    normal = normal if normal < np.uint32(0x7C00) else np.uint32(0x7C00)
    # in [1/2, 1) fp32 has the quantum of subnormal fp16, 2^-24: adding 1/2 rounds to it
    shifted = np.float32(value32(np.int32(magnitude)) + np.float32(0.5))
    subnormal = np.uint32(np.uint32(bits32(shifted)) - np.uint32(0x3F00_0000))
    kept = normal if magnitude >= np.uint32(113 << 23) else subnormal
    signed = np.uint32(kept | np.uint32(np.uint32(bits >> np.uint32(16)) & np.uint32(0x8000)))
    return np.uint16(signed if magnitude <= np.uint32(0x7F80_0000) else np.uint32(0x7FFF))


@part
def scaled(bits, factor):
    """RN16 of an fp16 value, as bits, times another, held in fp32; NaN canonical."""
    return half(np.float32(wide(bits) * factor))  # the product is exact: 22 bits


@part
def add_up(sums, item, counts, starts, routes, half_tile, weighted, out):
    """Slices from the highest k down to the one that holds k = 0, fp32 (7.1), rounded to fp16 (7.2).

    Then times the routing weight, rounded once more (7.3).

    Args:
        sums: fp32, flat, as ``sweep`` left those of its item: finite.
        item: As for ``sweep``.
        counts: int64 (blocks, column tiles), slices.
        starts: int64 (blocks + 1,), where the rows of each block begin.
        routes: int64, output row of each row of each block, block after block.
        half_tile: Byte columns of a column tile.
        weighted: fp32 (routes,), routing weights rounded to fp16; empty for none.
        out: Out, uint16 (routes, N), fp16 bits, natural order of columns.
    """
    _, block0, block1, tile0, tile1, _ = item
    buffer = np.empty(half_tile, dtype=np.float32)
    words = np.empty(half_tile, dtype=np.uint16)
    rows, width = starts[block1] - starts[block0], (tile1 - tile0) * half_tile
    for block in range(block0, block1):
        for row in range(starts[block], starts[block + 1]):
            for column in range(tile0, tile1):
                for plane in range(2):
                    at = ((row - starts[block0]) * 2 + plane) * width + (column - tile0) * half_tile
                    last = counts[block, column] - 1
                    highest = sums[at + last * rows * 2 * width :]
                    for c in range(half_tile):
                        buffer[c] = highest[c]
                    for earlier in range(last - 1, -1, -1):
                        lower = sums[at + earlier * rows * 2 * width :]
                        for c in range(half_tile):
                            buffer[c] = lower[c] + buffer[c]  # RNE
                    for c in range(half_tile):
                        words[c] = half(buffer[c])
                    if len(weighted) > 0:
                        for c in range(half_tile):
                            words[c] = scaled(words[c], weighted[routes[row]])
                    natural = out[routes[row], column * 2 * half_tile + 2 * plane :]
                    for word in range(half_tile // 4):
                        for byte in range(4):  # columns x0 + 2 plane + 4 x2 of a word (1.1)
                            natural[8 * word + (byte >> 1) + 4 * (byte & 1)] = words[4 * word + byte]


@compiled
def activate(gate_and_up, table, depends, positive, out):
    """RN16(silu(gate) * up), fp16 bits; gives whether a gate was met whose silu depends on EX2.

    Args:
        gate_and_up: uint16 (rows, 2 I).
        table: uint16 (65,536,), silu of every gate, rounded.
        depends: bool (65,536,), which of them depend on EX2.
        positive: Whether -0 of up becomes +0 first (A.2).
        out: Out, uint16 (rows, I).
    """
    before = to_nearest()
    width, met = out.shape[1], np.uint8(0)
    plus = np.float32(0 if positive else -0.0)  # x + -0 is x, and that of -0 is -0
    for row in range(out.shape[0]):
        gates, ups, made = gate_and_up[row, :width], gate_and_up[row, width:], out[row]
        for c in range(width):
            made[c] = table[gates[c]]
            met |= np.uint8(depends[gates[c]])
        for c in range(width):
            made[c] = scaled(made[c], wide(ups[c]) + plus)
    round_by(before)
    return met != 0


@compiled
def add_routes(routed, top_k, accumulators, rounded, out):
    """The sum of the routes of every token, fp16 bits.

    Args:
        routed: uint16 (tokens * top_k, H).
        top_k: Routes per token.
        accumulators: fp32 sums that routes are dealt to in turn, 1 or 4, to be added up at the end.
        rounded: Whether every partial sum is rounded to 16 bits.
        out: Out, uint16 (tokens, H).
    """
    before = to_nearest()
    sums = np.empty((4, _RUN), dtype=np.float32)
    for token in range(out.shape[0]):
        for low in range(0, out.shape[1], _RUN):
            width = min(_RUN, out.shape[1] - low)
            sums[:] = np.float32(0)
            for route in range(top_k):
                terms = routed[token * top_k + route, low : low + width]
                total = sums[route % accumulators]
                for c in range(width):
                    total[c] = total[c] + wide(terms[c])  # RNE
                if rounded:
                    for c in range(width):
                        total[c] = wide(half(total[c]))  # RN16
            for c in range(width):
                # what was not used is +0, which changes nothing: no sum here is -0
                total = ((sums[0, c] + sums[1, c]) + sums[2, c]) + sums[3, c]  # RNE
                out[token, low + c] = half(total)
    round_by(before)
