"""AutoAWQ's `gemm` packing, which is the canonical one (marlin-moe 1.1): read, checked, never converted.

Per projection K x N: qweight int32 [K, N/8], qzeros int32 [K/group, N/8], scales float16 [K/group, N].
"""

from collections.abc import Mapping

import numpy as np

from mechanism.checkpoint.errors import LayoutError
from mechanism.checkpoint.shards import Stored
from mechanism.fixture.errors import PackingError
from mechanism.fixture.layout import PER_WORD
from mechanism.fixture.packing import check_projection
from mechanism.fixture.recipe import Projection

PARTS = ("qweight", "qzeros", "scales")


def read_projection(parts: Mapping[str, Stored], *, k: int, n: int, group: int, experts: int) -> Projection:
    """One projection as canonical arrays, views of the file; `experts` > 0 if all are stacked in it.

    Raises LayoutError naming the tensor, what was expected and got, and the format that it looks like.
    """
    lead = (experts,) if experts else ()
    qweight, qzeros, scales = (parts[name] for name in PARTS)
    packed = (*lead, k, n // PER_WORD)
    if qweight.shape != packed:
        raise LayoutError(
            f"{qweight.name}: expected shape {list(packed)}, 8 columns in a word, got {list(qweight.shape)}"
            + _looks_like(qweight.shape[len(lead) :], k, n)
        )
    if scales.dtype != "float16":
        raise LayoutError(wrong_scales(scales))
    try:
        made = Projection(qweight=qweight.read(), qzeros=qzeros.read(), scales=scales.read())
        check_projection(made.qweight, made.qzeros, made.scales, group_size=group)
    except PackingError as fault:
        raise LayoutError(f"{qweight.name.rpartition('.')[0]}: {fault}") from fault
    if not np.isfinite(made.scales).all():
        raise LayoutError(f"{scales.name}: expected finite scales, got an infinity or a NaN")
    return made


def wrong_scales(scales: Stored) -> str:
    """Why scales of another type are refused."""
    return (
        f"{scales.name}: expected scales of dtype float16, got {scales.dtype}: rounding them would change"
        f" weights,"
        " so nothing is converted; save the checkpoint in float16"
    )


def _looks_like(shape: tuple[int, ...], k: int, n: int) -> str:
    if shape == (k // PER_WORD, n):
        return ": packed along K, the GPTQ way, whose zero points are stored minus one"
    if shape == (n, k // PER_WORD):
        return ": one row per output column, the way of compressed-tensors"
    if shape == (k, n):
        return ": not packed"
    return ""
