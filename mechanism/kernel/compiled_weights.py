"""Operands of a piece of one expert's packed weights, eight k at a time, for the compiled loops (6.2).

A piece has up to MOST_WORDS words of a row of the packed weights. Its columns are kept by nibble: nibble j of
word w at ``j * MOST_WORDS + w``, so that taking words apart is a mask and moves nothing across. Exponents are
bytes of int32: those of nibbles 0 to 3 of word w at ``w``, those of 4 to 7 at ``MOST_WORDS + w``.
"""

from __future__ import annotations

import numpy as np

from mechanism.kernel.compiled_lanes import (
    LANES,
    as_floats,
    as_ints,
    bytes_in_turn,
    chosen,
    fma,
    halves,
    larger,
    load,
    load_fours,
    prefetch,
    spread,
    store,
    to_floats,
)
from mechanism.kernel.compiled_words import inlined, part

STRIDE = 512  # columns of a piece, and operands from one k to the next
MOST_WORDS = STRIDE // 8
FIELDS = STRIDE // 4  # int32 that hold the exponents of one k
AHEAD = 16  # rows of the packed weights that are asked of memory before they are wanted: two steps' worth

# numba checks signed indices for negative ones, in the way of vector code: offsets are unsigned
_U = np.uint64
_L, _W, _F, _S = (np.uint64(size) for size in (LANES, MOST_WORDS, FIELDS, STRIDE))
_I, _A = np.int32, np.uint64(AHEAD)
_REBIAS = np.float32(2.0**112)
_MAGNITUDE = np.int32(0x7FFF_FFFF)
_SMALLEST = np.int32((127 - 14) << 23)  # 2^-14: subnormal operands have its exponent


@part
def turn_to(scales, zeros, group, low, words, out, to):
    """What a piece's columns need of one group, where nibble j stands for 16^j times its number.

    Asks memory for those of the next.

    Args:
        scales: uint32 (groups, columns / 2): fp16 bits of two columns, finite.
        zeros: uint32 (groups, words), packed.
        group: Which.
        low: First word.
        words: How many: a multiple of LANES.
        out: Out, fp32, from ``to``: (4, STRIDE), zero point; 8193 and -8192 times the scale; the scale.
        to: See ``out``.
    """
    later = min(group + _U(1), _U(zeros.shape[0] - 1))
    for run in range(words // _L):
        w = run * _L
        prefetch(zeros, (later, low + w))
        prefetch(scales, (later, (low + w) * _U(4)))
        prefetch(scales, (later, (low + w) * _U(4) + _U(2) * _L))
        code = load(zeros, (group, low + w))
        pairs = load_fours(scales, (group, (low + w) * _U(4)))
        _turn_two(pairs[0], code, np.int64(0), out, to + w)
        _turn_two(pairs[1], code, np.int64(1), out, to + w)
        _turn_two(pairs[2], code, np.int64(2), out, to + w)
        _turn_two(pairs[3], code, np.int64(3), out, to + w)


@inlined
def _turn_two(two, code, pair, out, to):
    """Columns 2 pair and 2 pair + 1 of LANES words are their nibbles ``pair`` and 4 + ``pair`` (1.1)."""
    _turn_one(two & spread(_I(0xFFFF)), code, pair, out, to)
    _turn_one(two >> spread(_I(16)), code, pair + 4, out, to)


@inlined
def _turn_one(bits, code, nibble, out, to):
    place = 6 if nibble == 7 else nibble  # where it stands: see `dequantize`
    times = np.float32(np.int32(1) << _I(4 * place))
    mask = spread(_I(_I(15) << _I(4 * place)))
    zero = to_floats((code >> spread(_I(4 * (nibble - place)))) & mask)
    # fp16 to fp32: the mantissa moves up 13 bits, the exponent's bias grows by 112; subnormals too
    magnitude = as_floats((bits & spread(_I(0x7FFF))) << spread(_I(13))) * spread(_REBIAS)  # exact
    signed = as_ints(magnitude) | ((bits & spread(_I(0x8000))) << spread(_I(16)))
    scale = as_floats(signed) * spread(np.float32(1) / times)  # exact, like the products of 14 by 11 bits
    at = to + _U(nibble) * _W
    store(out, at, zero)
    store(out, at + _S, scale * spread(np.float32(8193)))
    store(out, at + _U(2) * _S, scale * spread(np.float32(-8192)))
    store(out, at + _U(3) * _S, scale)


@inlined
def _operand(code, of_group, of, normal, values, to):
    """RN16((q - z) * s) of a nibble in its place; gives the bits of its magnitude, or of its exponent."""
    centred = to_floats(code) - load(of_group, of)  # exact
    # 8193 p rounded to 24 bits keeps 11 bits of p: less 8192 p it is RN16(p), ties to even
    value = fma(centred, load(of_group, of + _U(2) * _S), centred * load(of_group, of + _S))
    if normal:
        store(values, to, value)
        return as_ints(value)
    product = centred * load(of_group, of + _U(3) * _S)  # exact: 15 bits
    small = (product + spread(np.float32(0.75))) - spread(np.float32(0.75))  # RN16: multiples of 2^-24
    magnitude, smallest = spread(_MAGNITUDE), spread(_SMALLEST)
    value = chosen(as_ints(product) & magnitude, smallest, small, value)
    store(values, to, value)
    bits = as_ints(value) & magnitude
    zero = spread(np.float32(0))
    return as_ints(chosen(bits, spread(_I(1)), zero, as_floats(larger(bits, smallest))))


@inlined
def _four(codes, of_group, of, normal, values, to):
    """Operands of four nibbles, in their places; their exponents as the bytes of an int32."""
    v0 = _operand(codes[0], of_group, of, normal, values, to)
    v1 = _operand(codes[1], of_group, of + _W, normal, values, to + _W)
    v2 = _operand(codes[2], of_group, of + _U(2) * _W, normal, values, to + _U(2) * _W)
    v3 = _operand(codes[3], of_group, of + _U(3) * _W, normal, values, to + _U(3) * _W)
    # the exponent fields are moved to where their bytes are to be, and what stands beside them is not taken
    even = halves(v0 >> spread(_I(23)), v2 >> spread(_I(7)))
    odd = halves(v1 >> spread(_I(15)), v3 << spread(_I(1)))
    return bytes_in_turn(even, odd)


@part
def dequantize(packed, k, low, words, of_group, of, normal, values, fields, first):
    """Operands of eight k, RN16((q - z) * s), and their exponents; asks memory for the words of a later step.

    A nibble is taken where it stands, nibble j as 16^j times its number; only the last moves, or it would be
    a sign.

    Args:
        packed: uint32 (K, words).
        k: The first row.
        low: First word.
        words: How many: a multiple of LANES.
        of_group: fp32, from ``of``: (4, STRIDE), from ``turn_to``.
        of: See ``of_group``.
        normal: Whether no nonzero operand is subnormal.
        values: Out, fp32: STRIDE from one k to the next.
        fields: Out, int32: FIELDS from one k to the next. Exponent fields of fp32: subnormal operands have
            that of 2^-14, zeros have 0.
        first: Which k of ``values`` and ``fields`` the first row becomes.
    """
    if normal:  # asked here, not for every vector
        _rows(packed, k, low, words, of_group, of, True, values, fields, first)
    else:
        _rows(packed, k, low, words, of_group, of, False, values, fields, first)


@inlined
def _rows(packed, k, low, words, of_group, of, normal, values, fields, first):
    m0, m1, m2, m3 = spread(_I(0xF)), spread(_I(0xF0)), spread(_I(0xF00)), spread(_I(0xF000))
    m4, m5, m6 = spread(_I(0xF_0000)), spread(_I(0xF0_0000)), spread(_I(0xF00_0000))
    four = spread(_I(4))
    last = _U(packed.shape[0] - 1)
    for i in range(_U(8)):
        to, field = (first + i) * _S, (first + i) * _F
        later = min(k + i + _A, last)
        for run in range(words // _L):
            w = run * _L
            prefetch(packed, (later, low + w))
            code = load(packed, (k + i, low + w))
            codes = code & m0, code & m1, code & m2, code & m3
            store(fields, field + w, _four(codes, of_group, of + w, normal, values, to + w))
            codes = code & m4, code & m5, code & m6, (code >> four) & m6
            upper = _U(4) * _W + w
            store(fields, field + _W + w, _four(codes, of_group, of + upper, normal, values, to + upper))
