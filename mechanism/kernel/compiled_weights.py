"""Operands of a piece of one expert's packed weights, eight k at a time, for the compiled loops (6.2).

A piece has up to MOST_WORDS words of a row of the packed weights. Its columns are kept by nibble: nibble j of
word w at ``j * MOST_WORDS + w``, so that taking words apart is a shift and a mask and moves nothing across.
"""

from __future__ import annotations

import numpy as np

from mechanism.kernel.compiled_words import bits32, compiled, fma, prefetch, value32

STRIDE = 512  # columns of a piece, and operands from one k to the next
MOST_WORDS = STRIDE // 8

# numba checks signed indices for negative ones, in the way of vector code: offsets are unsigned
_U = np.uint64
_S, _W = np.uint64(STRIDE), np.uint64(MOST_WORDS)
_REBIAS = np.float32(2.0**112)
_SMALLEST = 127 - 14  # exponent field of subnormal fp16 operands


@compiled
def ask_for(packed, k, low, words):
    """Have eight rows brought to the cache that will be wanted soon."""
    for row in range(k, min(k + 8, packed.shape[0])):
        for line in range(0, words, 16):
            prefetch(packed, _U(row), low + _U(line))


@compiled
def turn_to(scales, zeros, low, words, out):
    """What a piece's columns need of one group: scale, 8193 and 8192 times it (exact), and zero point.

    Args:
        scales: uint16 (columns,), fp16 bits, finite.
        zeros: uint32 (words,), packed.
        low: First word.
        words: How many.
        out: Out, fp32 (4, STRIDE).
    """
    for w in range(words):
        for nibble in range(8):
            # byte b of a word holds columns x0 + 2 plane + 4 x2, x0 = b >> 1, x2 = b & 1 (1.1)
            plane, byte, to = nibble & 1, nibble >> 1, nibble * MOST_WORDS + w
            bits = np.int32(scales[(low + w) * 8 + (byte >> 1) + 2 * plane + 4 * (byte & 1)])
            # fp16 to fp32: the mantissa moves up 13 bits, the exponent's bias grows by 112; subnormals too
            scale = value32(np.int32((bits & np.int32(0x7FFF)) << np.int32(13))) * _REBIAS  # exact
            scale = -scale if bits & np.int32(0x8000) else scale
            out[0, to] = scale
            out[1, to] = scale * np.float32(8193)
            out[2, to] = scale * np.float32(8192)
            out[3, to] = _nibble(np.uint32(zeros[low + w]), nibble)


@compiled
def _nibble(code, index):
    return np.float32(np.int32((code >> np.uint32(4 * index)) & np.uint32(15)))


@compiled
def dequantize_short(packed, k, low, of_group, values, to):
    """Operands of eight k. None may be subnormal. RN16((q - z) * s).

    Args:
        packed: uint32 (K, words).
        k: The first row.
        low: First word.
        of_group: fp32 (4, STRIDE), from ``turn_to``.
        values: Out, fp32, from ``to``: STRIDE from one k to the next.
        to: See ``values``.
    """
    large, small, zeros = of_group[1], of_group[2], of_group[3]
    for i in range(8):
        row = to + _U(i) * _S
        for w in range(_W):
            code = np.uint32(packed[k + _U(i), low + w])
            for nibble in range(8):
                at = _U(nibble) * _W + w
                centred = _nibble(code, nibble) - zeros[at]  # exact
                # 8193 p rounded to 24 bits keeps 11 bits of p: less 8192 p it is RN16(p), ties to even
                values[row + at] = fma(-centred, small[at], centred * large[at])


@compiled
def dequantize_any(packed, k, low, words, of_group, grouped, values, to):
    """``dequantize_short`` of so many words, for scales of any size; the exact q - z if not ``grouped``."""
    scales, zeros = of_group[0], of_group[3]
    for i in range(8):
        row = to + _U(i) * _S
        for w in range(words):
            code = np.uint32(packed[k + _U(i), low + w])
            for nibble in range(8):
                at = _U(nibble) * _W + w
                values[row + at] = _nibble(code, nibble) - zeros[at]
        if grouped:
            for c in range(_S):
                product = values[row + c] * scales[c]  # exact: 15 bits
                kept = product * np.float32(8193) - product * np.float32(8192)  # RN16 of a normal one
                small = (product + np.float32(0.75)) - np.float32(0.75)  # RN16: multiples of 2^-24
                values[row + c] = small if abs(product) < np.float32(2.0**-14) else kept


@compiled
def exponents(values, count, normal, fields):
    """Exponent fields of so many operands, as bytes; 0 for a zero. ``normal``: whether none is subnormal."""
    for c in range(count):
        field = np.uint32(bits32(np.float32(abs(values[c])))) >> np.uint32(23)
        if not normal:
            field = field if field > np.uint32(_SMALLEST) else np.uint32(_SMALLEST)
            field = field if values[c] != np.float32(0) else np.uint32(0)
        # 254 is never met: said so, the compiler packs bytes by saturation, which is fewer instructions
        fields[c] = np.int8(np.uint8(min(field, np.uint32(254))))
