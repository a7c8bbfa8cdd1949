"""silu of every 16-bit gate value, by the instructions of the shipped kernel (marlin-moe 8.1, steps 1 to 4).

The whole function is a table of 65,536 entries. It is made here with IEEE additions and multiplications
only, never a library's exp, so it is the same on every machine; a test holds all of it against exact
integer arithmetic (``plain.silu_bits``).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Final

import numpy as np
import numpy.typing as npt

from mechanism.kernel.rounding import F32, F64, U16, bits16, narrow, widen

# fp32 constants of the machine code
_PER_252: Final = float(np.uint32(0x3BBB_989D).view(np.float32))  # log2(e) / 252
_LOG2E: Final = float(np.uint32(0x3FB8_AA3B).view(np.float32))
_LOG2E_LOW: Final = float(np.uint32(0x32A5_7060).view(np.float32))

_LN2: Final = float.fromhex("0x1.62e42fefa39efp-1")  # ln 2 to fp64; the next two bits matter to no entry

AMBIGUOUS_FP16: Final = MappingProxyType(
    {
        0x0001: (0x0000, 0x0001),
        0x8001: (0x8000, 0x8001),
        0x8003: (0x8001, 0x8002),
        0x0005: (0x0003, 0x0002),
        0x8007: (0x8003, 0x8004),
        0x9000: (0x8C00, 0x8BFF),
        0x11A8: (0x0DA8, 0x0DA9),
        0x91A8: (0x8DA8, 0x8DA7),
        0x1400: (0x1000, 0x1001),
        0x1E00: (0x1A04, 0x1A05),
        0x9E00: (0x99FC, 0x99FB),
        0x1FBF: (0x1BC7, 0x1BC6),
        0xB9B6: (0xB383, 0xB382),
        0xC173: (0xB15D, 0xB15E),
        0xC4EC: (0xA88F, 0xA88E),
    }
)
"""fp16 gate bits whose silu depends on EX2: (if e = RN32(2^r), the other candidate). Assumption U2."""

AMBIGUOUS_BF16: Final = frozenset(
    {0x3C00, 0xBB80} | {sign | low for sign in (0, 0x8000) for low in range(0x81, 0x100, 2)}
)
"""bf16 gate bits whose silu depends on EX2 (assumption U2)."""


def ambiguous(gate_bits: U16, dtype: str) -> tuple[int, ...]:
    """The distinct gate patterns, ascending, whose silu depends on the hardware's 2^x."""
    met = gate_bits[depends(dtype).take(gate_bits)]
    return tuple(sorted(set(met.tolist())))  # few; numpy's own `unique` imports more than a silu takes


@cache
def depends(dtype: str) -> npt.NDArray[np.bool_]:
    """Of every gate pattern, whether its silu depends on EX2."""
    known = np.zeros(1 << 16, dtype=np.bool_)
    known[sorted(AMBIGUOUS_FP16 if dtype == "float16" else AMBIGUOUS_BF16)] = True
    known.flags.writeable = False
    return known


@cache
def table(dtype: str) -> U16:
    """Bits of silu for all 65,536 gate patterns, with e = RN32(2^r). Read-only."""
    every = np.arange(1 << 16, dtype=np.uint16)
    stored = every.view(np.float16) if dtype == "float16" else every
    result = bits16(narrow(_silu(widen(stored)), dtype))
    result.flags.writeable = False
    return result


def silu(gate: U16, dtype: str, measured: Mapping[int, int] | None = None) -> U16:
    """Bits of h = RN16(x / (1 + exp(-x))) for gate bits of any shape.

    Args:
        gate: Gate bits.
        dtype: ``float16`` or ``bfloat16``.
        measured: Results of one device by gate bits, where they differ from the table (U2).
    """
    result = table(dtype).take(gate)
    for pattern, bits in (measured or {}).items():
        result[gate == np.uint16(pattern)] = np.uint16(bits)
    return result


def _silu(x: F32) -> F32:
    """The fp32 quotient. An fma is an fp64 product and sum, rounded to fp32 where the kernel rounds."""
    with np.errstate(all="ignore"):
        a = -x.astype(np.float64)
        t = _round32(a * _PER_252 + 0.5)  # RNE
        t = np.where(np.isnan(t), 0.0, np.clip(t, 0.0, 1.0))  # saturate; NaN becomes 0
        j = np.floor(t * 252.0) - 126.0  # the round-down fma onto 1.5 * 2^23 + 1, less the bias
        r = _round32(a * _LOG2E_LOW + _round32(a * _LOG2E - j))  # two RNE fmas
        d = _round32(np.ldexp(_exp2(r), j.astype(np.int32)) + 1.0)  # RNE
        return np.divide(x, d.astype(np.float32))  # RNE


def _exp2(r: F64) -> F64:
    """EX2 taken as RN32(2^r), results below the normal range flushed to zero (assumption U2, U10)."""
    bounded = np.clip(np.where(np.isnan(r), 0.0, r), -1000.0, 1000.0)  # beyond, the result is 0 or Inf
    whole = np.floor(bounded)
    y = (bounded - whole) * _LN2
    term = np.ones_like(y)
    total = np.ones_like(y)
    for n in range(1, 22):  # Taylor: the remainder is below 2^-70; the error stays near 2^-51
        term *= y
        term /= n
        total += term
    power = np.where(np.isnan(r), np.nan, np.ldexp(total, whole.astype(np.int32)))
    return np.where(power < 2.0**-126, 0.0, _round32(power))


def _round32(values: npt.NDArray[np.float64]) -> F64:
    return values.astype(np.float32).astype(np.float64)
