"""Steps of the tensor core on eight columns at a time (tensor-core 7.1), for the compiled loops.

Everything is held times 2^-DROP, exactly: the smallest product, 2^-48, is a normal number still. Emax is
then below F for all sums under 2^84, and a term is taken times 2^(F - Emax) by adding to its exponent field:
that of a zero stays under 127, so that it is cut to 0 like every term below the quantum.

Exponents of operands are bytes that add up modulo 256: a field less BIAS of A and the field of a weight give
the field of their product, 39 to 97. A zero has -128 or 0, so that a product with one has 14 at most. An
int32 holds those of four columns that stand MOST_WORDS apart (see `compiled_weights`).
"""

from __future__ import annotations

import numpy as np

from mechanism.kernel.compiled_lanes import (
    LANES,
    add_bytes,
    as_floats,
    as_ints,
    cut,
    larger,
    larger_bytes,
    load,
    spread,
    store,
    sum_to_floats,
    to_floats,
)
from mechanism.kernel.compiled_weights import FIELDS, MOST_WORDS, STRIDE
from mechanism.kernel.compiled_words import inlined, part

_U = np.uint64  # see `compiled_weights`
_S, _F = np.uint64(STRIDE), np.uint64(FIELDS)
_W, _L = np.uint64(MOST_WORDS), np.uint64(LANES)
# Under every real product. With all products zero, sums are cut against it: nothing is lost, for they are
# multiples of 2^-53, and 2^(38 - 127 + DROP - F) is that or less.
_FLOOR = 38
_I = np.int32
_EXPONENT = np.int32(0x7F80_0000)
_TOP24, _TOP25 = (np.int32((127 + f) << 23) for f in (24, 25))  # exponent bits of 2^F
_DOWN24, _DOWN25 = (np.int32(f << 23) for f in (24, 25))


@inlined
def _eight(a, at):
    """Eight k of a row of A, each in every lane."""
    x0, x1, x2, x3 = a[at], a[at + _U(1)], a[at + _U(2)], a[at + _U(3)]
    x4, x5, x6, x7 = a[at + _U(4)], a[at + _U(5)], a[at + _U(6)], a[at + _U(7)]
    low = spread(x0), spread(x1), spread(x2), spread(x3)
    return *low, spread(x4), spread(x5), spread(x6), spread(x7)


@inlined
def _largest(mine, fb, c, most):
    """The larger of ``most`` and the exponents of eight products, in two chains."""
    other = add_bytes(mine[0], load(fb, c))
    most = larger_bytes(most, add_bytes(mine[1], load(fb, c + _F)))
    other = larger_bytes(other, add_bytes(mine[2], load(fb, c + _U(2) * _F)))
    most = larger_bytes(most, add_bytes(mine[3], load(fb, c + _U(3) * _F)))
    other = larger_bytes(other, add_bytes(mine[4], load(fb, c + _U(4) * _F)))
    most = larger_bytes(most, add_bytes(mine[5], load(fb, c + _U(5) * _F)))
    other = larger_bytes(other, add_bytes(mine[6], load(fb, c + _U(6) * _F)))
    most = larger_bytes(most, add_bytes(mine[7], load(fb, c + _U(7) * _F)))
    return larger_bytes(most, other)


@part
def peaks(fa, at, fb, length, peak):
    """Largest exponent field of the products of one step, by column.

    Args:
        fa: int8, flat, exponents of A.
        at: Where those of the row and of the step's first k are.
        fb: int32 (length * FIELDS,), bytes, from ``dequantize``.
        length: L, 8 or 16.
        peak: Out, int32 (FIELDS,), bytes; 38 or more.
    """
    mine, floor = _eight(fa, at), spread(np.int8(_FLOOR))
    for run in range(_F // _L):
        store(peak, run * _L, _largest(mine, fb, run * _L, floor))
    if length == 16:
        mine = _eight(fa, at + _U(8))
        for run in range(_F // _L):
            store(peak, run * _L, _largest(mine, fb, _U(8) * _F + run * _L, load(peak, run * _L)))


@inlined
def _cut(value, shift):
    """A term times 2^(F - Emax), cut toward zero. ``shift``: what that adds to its exponent bits."""
    return cut(as_floats(as_ints(value) + shift))


@inlined
def _cut8(mine, b, c, shift, total):
    """``total`` and eight products of columns ``c``, cut to the quantum: together below 2^30.1 in size."""
    total = total + _cut(mine[0] * load(b, c), shift)
    total = total + _cut(mine[1] * load(b, c + _S), shift)
    total = total + _cut(mine[2] * load(b, c + _U(2) * _S), shift)
    total = total + _cut(mine[3] * load(b, c + _U(3) * _S), shift)
    total = total + _cut(mine[4] * load(b, c + _U(4) * _S), shift)
    total = total + _cut(mine[5] * load(b, c + _U(5) * _S), shift)
    total = total + _cut(mine[6] * load(b, c + _U(6) * _S), shift)
    return total + _cut(mine[7] * load(b, c + _U(7) * _S), shift)


@inlined
def _four_peaks(peak, lane):
    """Exponent bits of the largest products of four times LANES columns, MOST_WORDS apart."""
    four, field = load(peak, lane), spread(_EXPONENT)
    low = (four << spread(_I(23))) & field, (four << spread(_I(15))) & field
    return *low, (four << spread(_I(7))) & field, (four >> spread(_I(1))) & field


@inlined
def _emax(products, before):
    """Exponent bits of 2^Emax: of the products or of C."""
    return larger(as_ints(before) & spread(_EXPONENT), products)


@inlined
def _columns8(mine, b, c, products, acc, to):
    before = load(acc, to + c)
    emax = _emax(products, before)
    shift = spread(_TOP24) - emax
    total = _cut8(mine, b, c, shift, _cut(before, shift))
    # to 24 bits toward zero; then times 2^(Emax - F), exact
    store(acc, to + c, to_floats(total) * as_floats(emax - spread(_DOWN24)))


@part
def step8(a, at, b, peak, acc, to):
    """One step of eight products of one row (Turing, Ampere, Ada: F = 24), while rounding toward zero.

    Args:
        a: fp32, flat, the operands, dropped.
        at: Where those of the row and of the step's first k are.
        b: fp32 (8 * STRIDE,), from ``dequantize``.
        peak: int32 (FIELDS,), from ``peaks``.
        acc: In and out, fp32; from ``to``.
        to: See ``acc``.
    """
    mine = _eight(a, at)
    for half in range(_U(2)):
        for run in range(_W // _L):
            lane = half * _W + run * _L
            products, c = _four_peaks(peak, lane), half * _U(4) * _W + run * _L
            _columns8(mine, b, c, products[0], acc, to)
            _columns8(mine, b, c + _W, products[1], acc, to)
            _columns8(mine, b, c + _U(2) * _W, products[2], acc, to)
            _columns8(mine, b, c + _U(3) * _W, products[3], acc, to)


@inlined
def _columns16(low, high, b, c, products, acc, to):
    before = load(acc, to + c)
    emax = _emax(products, before)
    shift = spread(_TOP25) - emax
    first = _cut8(low, b, c, shift, _cut(before, shift))
    second = _cut8(high, b, c + _U(8) * _S, shift, spread(_I(0)))
    total = sum_to_floats(first, second)  # with C it can leave int32
    store(acc, to + c, total * as_floats(emax - spread(_DOWN25)))


@part
def step16(a, at, b, peak, acc, to):
    """One step of sixteen products of one row (Hopper, Blackwell: F = 25). Arguments as for ``step8``."""
    low, high = _eight(a, at), _eight(a, at + _U(8))
    for half in range(_U(2)):
        for run in range(_W // _L):
            lane = half * _W + run * _L
            products, c = _four_peaks(peak, lane), half * _U(4) * _W + run * _L
            _columns16(low, high, b, c, products[0], acc, to)
            _columns16(low, high, b, c + _W, products[1], acc, to)
            _columns16(low, high, b, c + _U(2) * _W, products[2], acc, to)
            _columns16(low, high, b, c + _U(3) * _W, products[3], acc, to)
