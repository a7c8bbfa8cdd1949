"""Small problems with everything in them, drawn from a seed; and where the vectors are."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import settings

from mechanism.kernel.alignment import Alignment, stable
from mechanism.kernel.configuration import Launch
from mechanism.kernel.dequantize import Weights
from mechanism.kernel.rounding import Stored, bits16, narrow

few = settings(max_examples=40, deadline=None)  # the suite stays short; deadlines are about load
COMMITTED = Path(__file__).parent / "vectors"
ORDER = (0, 2, 4, 6, 1, 3, 5, 7)  # column held by each nibble


def folder() -> Path:
    """The whole published set if MECHANISM_VECTORS names it, else the committed choice."""
    named = os.environ.get("MECHANISM_VECTORS")
    return Path(named) if named else COMMITTED


def arrays(path: Path) -> dict[str, npt.NDArray[Any]]:
    """All arrays of one file."""
    with np.load(path) as held:
        return {key: held[key] for key in held.files}


def pack(codes: npt.NDArray[Any]) -> npt.NDArray[np.int32]:
    """AWQ words of codes 0..15, written apart from the library's own unpacking."""
    words = np.zeros((*codes.shape[:-1], codes.shape[-1] // 8), dtype=np.uint32)
    for nibble, column in enumerate(ORDER):
        words |= codes[..., column::8].astype(np.uint32) << np.uint32(4 * nibble)
    return words.view(np.int32)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Problem:
    """One GEMM and the unpacked numbers it was packed from."""

    a: Stored
    codes: npt.NDArray[np.uint8]  # (E, K, N)
    zeros: npt.NDArray[np.uint8]  # (E, groups, N)
    weights: Weights
    alignment: Alignment
    topk_ids: tuple[tuple[int, ...], ...]
    topk_weights: npt.NDArray[np.float32]  # (routes,)
    top_k: int


def problem(
    seed: int,
    *,
    tokens: int = 5,
    top_k: int = 2,
    experts: int = 3,
    k: int = 256,
    n: int = 128,
    group: int = 128,
    block: int = 8,
    dtype: str = "float16",
    spread: int = 0,
) -> Problem:
    """Random sizes are the caller's; ``spread`` widens the exponents of activations and scales."""
    rng = np.random.default_rng(seed)
    groups = 1 if group == -1 else k // group
    codes = rng.integers(0, 16, size=(experts, k, n), dtype=np.uint8)
    zeros = rng.integers(0, 16, size=(experts, groups, n), dtype=np.uint8)
    values = rng.standard_normal((tokens, k)) * 2.0 ** rng.integers(-spread, spread + 1, size=(tokens, k))
    values[rng.random((tokens, k)) < 0.05] = 0
    scales = rng.uniform(0.005, 0.05, size=(experts, groups, n))
    scales *= 2.0 ** rng.integers(-spread, spread + 1, size=scales.shape)
    ids = tuple(tuple(rng.permutation(experts)[:top_k].tolist()) for _ in range(tokens))
    return Problem(
        a=narrow(values, dtype),
        codes=codes,
        zeros=zeros,
        weights=Weights(qweight=pack(codes), scales=narrow(scales, dtype), qzeros=pack(zeros)),
        alignment=stable(ids, experts=experts, block_size_m=block),
        topk_ids=ids,
        topk_weights=rng.random(tokens * top_k, dtype=np.float32),
        top_k=top_k,
    )


def launch(tile_k: int, tile_n: int, grid: int) -> Launch:
    """A forced launch."""
    return Launch(tile_k=tile_k, tile_n=tile_n, threads=tile_k * tile_n // 64, ctas_per_sm=0, grid=grid)


def hexed(stored: Stored) -> list[str]:
    """Bits for a failing message."""
    return [f"0x{int(bits):04X}" for bits in bits16(stored).reshape(-1)]


def _plain(_rng: np.random.Generator, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return values


def _wide(rng: np.random.Generator, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Any exponent of fp16, subnormals too."""
    return np.asarray(values * 2.0 ** rng.integers(-24, 13, size=values.shape))


def _cancelling(_rng: np.random.Generator, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Exact opposites, eight k apart."""
    cut = values.reshape(len(values), -1, 2, 8).copy()
    cut[:, :, 1] = -cut[:, :, 0]
    return cut.reshape(values.shape)


def _bit_patterns(rng: np.random.Generator, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Uniformly random finite patterns."""
    bits = rng.integers(0, 1 << 16, size=values.shape, dtype=np.uint16)
    found = bits.view(np.float16).astype(np.float32)
    return np.where(np.isfinite(found), found, 65504)


def _zeros(rng: np.random.Generator, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Mostly zeros of both signs."""
    return np.where(rng.random(values.shape) < 0.9, np.copysign(0.0, values), values)


def _specials(_rng: np.random.Generator, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """An Inf and a NaN among them."""
    spoilt = values.copy()
    spoilt[0, 3], spoilt[-1, 5] = np.inf, np.nan
    return spoilt


def _largest(_rng: np.random.Generator, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Sums that overflow fp16."""
    return np.asarray(np.copysign(65504.0, values))


SHAPED: tuple[Callable[[np.random.Generator, Any], Any], ...] = (
    _plain,
    _wide,
    _cancelling,
    _bit_patterns,
    _zeros,
    _specials,
    _largest,
)
"""What activations are made of standard normal ones: adversarial inputs of a chain."""
