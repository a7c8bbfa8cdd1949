"""AutoAWQ's layout to Marlin's on a CPU, for the path that needs `_moe_C` alone (marlin-moe 1.3).

Equal bit for bit to what vLLM's own functions make, by test against the real package. That includes the
defect of 1.4: the scale permutation is chosen by I per rank for both GEMMs.
"""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt

from mechanism.fixture.packing import pack, unpack

Array = npt.NDArray[Any]
I32 = npt.NDArray[np.int32]

_TILE_K, _TILE_N = 16, 64  # rows and columns of one repacked tile
_LANES, _WORDS, _NIBBLES = 32, 4, 8
#: Nibble to (row offset, column offset) beyond the lane's own (marlin-moe 1.3).
_K_OFFSET = (0, 8, 0, 8, 1, 9, 1, 9)
_N_OFFSET = (0, 0, 8, 8, 0, 0, 8, 8)
_GROUPED = tuple(i + 8 * j for i in range(8) for j in range(8))
_SINGLE = tuple(2 * i + t for i in range(4) for t in (0, 1, 8, 9, 16, 17, 24, 25))


def repack_weights(qweight: I32) -> I32:
    """Packed words int32 [K, N/8] of one expert to Marlin's tiles, int32 [K/16, 2N]; exact."""
    codes = unpack(np.ascontiguousarray(qweight))
    k, n = codes.shape
    tiles = codes.reshape(k // _TILE_K, _TILE_K, n // _TILE_N, _TILE_N)
    rows, columns = _places()
    picked = tiles[:, rows, :, columns]  # (lanes * words * nibbles, K/16, N/64)
    words = np.zeros((_LANES * _WORDS, k // _TILE_K, n // _TILE_N), dtype=np.uint32)
    grouped = picked.reshape(_LANES * _WORDS, _NIBBLES, k // _TILE_K, n // _TILE_N)
    for nibble in range(_NIBBLES):
        words |= grouped[:, nibble].astype(np.uint32) << np.uint32(4 * nibble)
    packed = words.transpose(1, 2, 0).reshape(k // _TILE_K, 2 * n)  # index 128 nt + 4 lane + word
    return np.ascontiguousarray(packed).view(np.int32)


def _places() -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Row and column inside a tile of every (lane, word, nibble), lanes slowest."""
    lane, word, nibble = np.meshgrid(np.arange(_LANES), np.arange(_WORDS), np.arange(_NIBBLES), indexing="ij")
    rows = 2 * (lane % 4) + np.take(_K_OFFSET, nibble)
    columns = 16 * word + lane // 4 + np.take(_N_OFFSET, nibble)
    return rows.ravel(), columns.ravel()


def permute_scales(scales: Array, *, intermediate: int, group: int) -> Array:
    """Scales [..., N] in the order that the build stores, for either GEMM of a layer.

    `intermediate`: I per rank, by which the build chooses for w13 too (1.4): grouped if group < I.
    """
    grouped = group not in (-1, intermediate) and group < intermediate
    order = list(_GROUPED if grouped else _SINGLE)
    moved = scales.reshape(-1, len(order))[:, order]
    return np.ascontiguousarray(moved.reshape(scales.shape))


def permute_zeros(qzeros: I32) -> I32:
    """Packed zero points int32 [..., N/8] in Marlin's column order, packed again; exact."""
    zeros = unpack(np.ascontiguousarray(qzeros))
    moved = zeros.reshape(-1, len(_GROUPED))[:, list(_GROUPED)].reshape(zeros.shape)
    # the word's nibbles are interleaved as AutoAWQ's are: nibble j holds column NIBBLE_COLUMN[j]
    return pack(np.ascontiguousarray(moved))


def repacked(
    qweight: I32, scales: Array, qzeros: I32, *, intermediate: int, group: int
) -> tuple[I32, Array, I32]:
    """All experts of one GEMM: int32 [E, K/16, 2N], scales and zero points in their own shapes."""
    with ThreadPoolExecutor(max_workers=8) as pool:  # numpy releases the interpreter lock
        experts = np.stack(list(pool.map(repack_weights, qweight)))
    return experts, permute_scales(scales, intermediate=intermediate, group=group), permute_zeros(qzeros)
