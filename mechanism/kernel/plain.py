"""A plain reading of the two specifications with integers only: the oracle of the tests.

Slow on purpose: loops in the hardware's order, one element at a time, nothing shared with the fast
rooms. tensor-core 5, marlin-moe 8.1 and 10.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from mechanism.kernel.exact import (
    BF16,
    FP16,
    FP32,
    Format,
    Value,
    decode,
    encode,
    over,
    plus,
    rounded,
    times,
)

FORMATS = {"float16": FP16, "bfloat16": BF16}
ONE = Value(significand=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Core:
    """L, F and E0 of one architecture (tensor-core 1)."""

    length: int
    fraction: int
    floor: int


CORES = {
    "sm_70": Core(length=4, fraction=23, floor=-131),
    "sm_75": Core(length=8, fraction=24, floor=-132),
    "sm_80": Core(length=8, fraction=24, floor=-132),
    "sm_86": Core(length=8, fraction=24, floor=-132),
    "sm_89": Core(length=8, fraction=24, floor=-132),
    "sm_90": Core(length=16, fraction=25, floor=-133),
    "sm_100": Core(length=16, fraction=25, floor=-133),
    "sm_120": Core(length=16, fraction=25, floor=-133),
}


def step(a: Sequence[int], b: Sequence[int], c: int, *, fmt: Format, core: Core) -> int:
    """One step of one output element: bit patterns in, fp32 bits out (tensor-core 5)."""
    terms: list[tuple[int, int, int, int]] = []  # sign, M, e, f: |t| = M * 2^(e - f)
    infinities = set()
    nan = False
    acc = decode(c, FP32)
    if acc.kind == "nan":
        nan = True
    elif acc.kind == "inf":
        infinities.add(acc.sign)
    elif acc.significand:
        terms.append((acc.sign, acc.significand, acc.exponent + 23, 23))
    for left, right in zip(a, b, strict=True):
        x, y = decode(left, fmt), decode(right, fmt)
        product = times(x, y)
        if product.kind == "nan":
            nan = True
        elif product.kind == "inf":
            infinities.add(product.sign)
        elif product.significand:
            # not renormalised: e = ea + eb, whatever the significands multiply to
            exponent = (x.exponent + fmt.mantissa) + (y.exponent + fmt.mantissa)
            terms.append((product.sign, product.significand, exponent, 2 * fmt.mantissa))
    if nan or len(infinities) == 2:
        return 0x7FFF_FFFF
    if infinities:
        return FP32.infinity | (infinities.pop() << 31)
    return _cut_and_add(terms, core)


def _cut_and_add(terms: list[tuple[int, int, int, int]], core: Core) -> int:
    if not terms:
        return 0
    emax = max(core.floor, *(e for _, _, e, _ in terms))
    total = 0
    for sign, m, e, f in terms:
        shift = core.fraction - f + e - emax
        cut = m << shift if shift >= 0 else m >> -shift  # RZ
        total += -cut if sign else cut
    return _to_fp32(total, emax - core.fraction)


def _to_fp32(total: int, power: int) -> int:
    if total == 0:
        return 0
    sign = (1 << 31) if total < 0 else 0
    m = abs(total)
    exponent = m.bit_length() - 1 + power
    if exponent > 127:
        return sign | FP32.infinity
    last = max(exponent - 23, -149)
    m = m << (power - last) if power >= last else m >> (last - power)  # RZ
    if m == 0:
        return 0
    field = 0 if m < 1 << 23 else last + 150
    return sign | field << 23 | (m & 0x7F_FFFF)


def chain(a: Sequence[int], b: Sequence[int], c: int, *, fmt: Format, core: Core, k: int = 16) -> int:
    """Instructions of depth ``k`` over all of K in ascending order, each cut into steps."""
    for start in range(0, len(a), k):
        for low in range(start, start + k, core.length):
            high = min(low + core.length, start + k)
            c = step(a[low:high], b[low:high], c, fmt=fmt, core=core)
    return c


def operand(code: int, zero: int, scale: int, *, fmt: Format, channelwise: bool) -> int:
    """Bits of the matrix instruction's weight operand (marlin-moe 6.2, 6.6)."""
    centred = Value(sign=int(code < zero), significand=abs(code - zero))
    return encode(centred if channelwise else times(centred, decode(scale, fmt)), fmt)  # RNE


def element(
    x: Sequence[int],
    w: Sequence[int],
    slices: Sequence[tuple[int, int]],
    *,
    tile_k: int,
    core: Core,
    fmt: Format,
    interleaved: bool = False,
) -> int:
    """fp32 bits of one output element before the final conversion (marlin-moe 10).

    Args:
        x: Activation bits of the row, K of them.
        w: Operand bits of the column, K of them.
        slices: (begin, end) in k-tiles, ascending.
        tile_k: K extent of a tile.
        core: Architecture.
        fmt: Input format.
        interleaved: Warp rows as in vllm 0.11.0 (A.1).
    """
    warp_rows = tile_k // 32
    acc: int | None = None
    for begin, end in reversed(slices):  # highest k first
        parts = []
        for row in range(warp_rows):
            c = 0
            for tile in range(begin, end):
                for half in (0, 1):
                    offset = 16 * (row + warp_rows * half) if interleaved else 32 * row + 16 * half
                    k = tile * tile_k + offset
                    c = chain(x[k : k + 16], w[k : k + 16], c, fmt=fmt, core=core)
            parts.append(c)
        total = parts[-1]
        for part in parts[-2::-1]:
            total = add32(part, total)  # f0 + (f1 + (f2 + f3))
        acc = total if acc is None else add32(total, acc)
    return acc if acc is not None else 0


def add32(a: int, b: int) -> int:
    """One fp32 add, RNE."""
    return encode(plus(decode(a, FP32), decode(b, FP32)), FP32)


def finish(acc: int, *, fmt: Format, scale: int | None = None, topk_weight: int | None = None) -> int:
    """16-bit output bits: conversion, column scale, routing weight (7.2, 6.6, 7.3).

    Args:
        acc: fp32 bits of the reduced sum.
        fmt: Output format.
        scale: 16-bit column scale of a channelwise GEMM.
        topk_weight: fp32 bits of the routing weight.
    """
    y = rounded(decode(acc, FP32), fmt)  # RNE
    if scale is not None:
        y = rounded(times(y, decode(scale, fmt)), fmt)  # RNE
    if topk_weight is not None:
        y = rounded(times(y, rounded(decode(topk_weight, FP32), fmt)), fmt)  # RNE twice
    return encode(y, fmt)


def silu_bits(gate: int, fmt: Format = FP16) -> int:
    """Bits of silu of a gate pattern, EX2 taken as RN32(2^r) (marlin-moe 8.1, steps 1 to 4)."""
    x = decode(gate, fmt)
    if x.kind == "nan":
        return fmt.nan
    a = Value(kind=x.kind, sign=1 - x.sign, significand=x.significand, exponent=x.exponent)
    if a.kind == "inf":
        t = Value(significand=0 if a.sign else 1)
        j = -126 if a.sign else 126
        e = Value() if a.sign else Value(kind="inf")
    else:
        t = rounded(plus(times(a, _constant(0x3BBB_989D)), Value(significand=1, exponent=-1)), FP32)
        t = Value() if t.sign else (t if plus(t, Value(sign=1, significand=1)).sign else ONE)  # saturate
        j = (t.significand * 252 >> -t.exponent if t.exponent < 0 else t.significand * 252) - 126
        minus_j = Value(sign=int(j > 0), significand=abs(j))
        high = rounded(plus(times(a, _constant(0x3FB8_AA3B)), minus_j), FP32)  # RNE
        e = _ex2(rounded(plus(times(a, _constant(0x32A5_7060)), high), FP32))  # RNE
    power = times(e, Value(significand=1, exponent=j))
    d = rounded(plus(power, ONE), FP32)  # RNE
    q = rounded(over(x, d), FP32)  # RNE
    return encode(q, fmt)  # RNE


def _constant(bits: int) -> Value:
    return decode(bits, FP32)


def _ex2(r: Value) -> Value:
    """RN32(2^r) by a series in integers; results below the normal range are flushed to zero."""
    if r.kind == "inf":
        return Value() if r.sign else r
    whole = r.signed << r.exponent if r.exponent >= 0 else r.signed >> -r.exponent  # floor
    if whole > 128:
        return Value(kind="inf")
    if whole < -126:
        return Value()
    bits = 192
    fraction = 0 if r.exponent >= 0 else (r.signed - (whole << -r.exponent)) << bits + r.exponent
    y = fraction * _ln2(bits) >> bits
    term = total = 1 << bits
    n = 1
    while term:
        term = term * y // (n << bits)
        total += term
        n += 1
    # no tie: 2^r is irrational unless r is an integer, and then total is exact
    return rounded(Value(significand=total, exponent=whole - bits), FP32)


@cache
def _ln2(bits: int) -> int:
    """Fixed-point ln 2: the sum of 1 / (n 2^n)."""
    return sum((1 << bits) // (n << n) for n in range(1, bits))
