"""What a layer computes beside its GEMMs, in machine code: the activation and the final sum (marlin-moe 8).

Only fp16 comes here; bf16 goes the way of ``activation`` and ``combine``.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from mechanism.kernel import activation, combine, silu, versions
from mechanism.kernel.activation import Activation
from mechanism.kernel.combine import Order
from mechanism.kernel.compiled_ends import activate, add_routes
from mechanism.kernel.compiled_words import read_only
from mechanism.kernel.rounding import Stored, bits16


def silu_and_mul(
    w13: Stored,
    *,
    dtype: str = "float16",
    kernel: str = versions.DEFAULT,
    measured: Mapping[int, int] | None = None,
) -> Activation:
    """As in ``activation``."""
    if dtype != "float16" or w13.dtype != np.float16 or w13.ndim != 2 or w13.shape[1] % 2:
        return activation.silu_and_mul(w13, dtype=dtype, kernel=kernel, measured=measured)
    table = silu.table(dtype)
    if measured:
        table = table.copy()
        table[np.array(list(measured), dtype=np.uint16)] = list(measured.values())
    bits = read_only(bits16(w13))
    out = np.empty((bits.shape[0], bits.shape[1] // 2), dtype=np.uint16)
    positive = versions.version(kernel).positive_zero_up
    met = activate(bits, read_only(table), read_only(silu.depends(dtype)), positive, out)
    gates = silu.ambiguous(bits[:, : out.shape[1]], dtype) if met else ()
    return Activation(output=out.view(np.float16), ambiguous_gates=gates)


def moe_sum(routed: Stored, *, top_k: int, dtype: str = "float16", kernel: str = versions.DEFAULT) -> Stored:
    """As in ``combine``."""
    fits = routed.ndim == 2 and top_k > 0 and routed.shape[0] % top_k == 0
    if dtype != "float16" or routed.dtype != np.float16 or not fits:
        return combine.moe_sum(routed, top_k=top_k, dtype=dtype, kernel=kernel)
    bits = read_only(bits16(routed))
    out = np.empty((len(bits) // top_k, bits.shape[1]), dtype=np.uint16)
    order = combine.order(top_k, kernel)
    add_routes(bits, top_k, 4 if order is Order.FOUR else 1, order is Order.SIXTEEN, out)
    return out.view(np.float16)
