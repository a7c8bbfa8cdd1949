"""Eight numbers at a time: every operation beside numpy's own, on integers of all bits and fp32 of all sizes."""

import importlib
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

pytest.importorskip("numba", reason="numba is the extra `fast`")
# numba infers its types
lanes: Any = importlib.import_module("mechanism.kernel.compiled_lanes")
words: Any = importlib.import_module("mechanism.kernel.compiled_words")
pytestmark = pytest.mark.slow  # compiled anew each time

COUNT = 8 * 512


@words.compiled  # type: ignore[untyped-decorator]
def everything(x: Any, y: Any, f: Any, g: Any, h: Any, ints: Any, floats: Any, fours: Any) -> None:
    """Each operation to a row of its own."""
    to_zero, to_nearest, _ = words.roundings()
    for at in range(0, len(x), 8):
        i, j = lanes.load(x, at), lanes.load(y, at)
        a, b, c = lanes.load(f, at), lanes.load(g, at), lanes.load(h, at)
        lanes.prefetch(x, at)
        lanes.store(ints, (0, at), i + j)
        lanes.store(ints, (1, at), i - j)
        lanes.store(ints, (2, at), i & j)
        lanes.store(ints, (3, at), i | j)
        lanes.store(ints, (4, at), i << lanes.spread(np.int32(7)))
        lanes.store(ints, (5, at), i >> lanes.spread(np.int32(7)))
        lanes.store(ints, (6, at), lanes.spread(x[at]))
        lanes.store(ints, (7, at), lanes.spread(np.int8(x[at])))
        lanes.store(ints, (8, at), lanes.as_ints(a))
        lanes.store(ints, (9, at), lanes.cut(a))
        lanes.store(ints, (10, at), lanes.larger(i, j))
        lanes.store(ints, (11, at), lanes.add_bytes(i, j))
        lanes.store(ints, (12, at), lanes.larger_bytes(i, j))
        lanes.store(ints, (13, at), lanes.halves(i, j))
        lanes.store(ints, (14, at), lanes.bytes_in_turn(i, j))
        lanes.store(floats, (0, at), a + b)
        lanes.store(floats, (1, at), a - b)
        lanes.store(floats, (2, at), a * b)
        lanes.store(floats, (3, at), lanes.spread(f[at]))
        lanes.store(floats, (4, at), lanes.as_floats(i))
        lanes.store(floats, (5, at), lanes.to_floats(i))
        lanes.store(floats, (7, at), lanes.sum_to_floats(i, j))
        words.round_by(to_zero)
        lanes.store(floats, (6, at), lanes.to_floats(lanes.load(x, at)))
        lanes.store(floats, (8, at), lanes.sum_to_floats(lanes.load(x, at), lanes.load(y, at)))
        words.round_by(to_nearest)
        lanes.store(floats, (9, at), lanes.fma(a, b, c))
        lanes.store(floats, (10, at), lanes.chosen(i, j, a, b))
    for at in range(0, len(x), 32):
        four = lanes.load_fours(x, at)
        lanes.store(fours, (0, at // 4), four[0])
        lanes.store(fours, (1, at // 4), four[1])
        lanes.store(fours, (2, at // 4), four[2])
        lanes.store(fours, (3, at // 4), four[3])


def toward_zero(exact: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
    """Integers below 2^33 in size as fp32, by clearing what fp32 does not hold."""
    lost = np.maximum(0, np.frexp(exact.astype(np.float64))[1] - 24)
    kept: npt.NDArray[np.int64] = np.sign(exact) * (np.abs(exact) >> lost << lost)
    return kept.astype(np.float32)


def test_every_operation() -> None:
    """Bits compared; a name is told where one differs."""
    draw = np.random.default_rng(7)
    x, y = (draw.integers(-(2**31), 2**31, COUNT).astype(np.int32) for _ in range(2))
    x[:8], y[8:16] = -(2**31), 2**31 - 1
    f, g, h = (
        (draw.standard_normal(COUNT) * 2.0 ** draw.integers(-30, 25, COUNT)).astype(np.float32)
        for _ in range(3)
    )
    ints = np.empty((15, COUNT), dtype=np.int32)
    floats = np.empty((11, COUNT), dtype=np.float32)
    fours = np.empty((4, COUNT // 4), dtype=np.int32)
    everything(x, y, f, g, h, ints, floats, fours)

    first = np.arange(COUNT) // 8 * 8
    unsigned, wide = x.view(np.uint32), x.astype(np.int64) + y
    low = (x.view(np.int8), y.view(np.int8))
    with np.errstate(over="ignore"):
        want_ints: dict[str, npt.NDArray[Any]] = {
            "+": x + y,
            "-": x - y,
            "&": x & y,
            "|": x | y,
            "<<": unsigned << np.uint32(7),
            ">>": unsigned >> np.uint32(7),
            "spread": x[first],
            "bytes": np.repeat(x.view(np.int8)[4 * first], 4),
            "as_ints": f,
            "cut": f.astype(np.int32),
            "larger": np.maximum(x, y),
            "add_bytes": low[0] + low[1],
            "larger_bytes": np.maximum(*low),
            "halves": (x & 0xFFFF) | (y & -(1 << 16)),
            "bytes_in_turn": (x & 0x00FF_00FF) | (y & np.int32(-0x00FF_0100)),
        }
    exact = f.astype(np.float64) * g + h  # rounded twice in all: where that could show, it is left out
    halfway = (exact.view(np.int64) & 0x1FFF_FFFF) == 0x1000_0000
    want_floats: dict[str, npt.NDArray[Any]] = {
        "+": f + g,
        "-": f - g,
        "*": f * g,
        "spread": f[first],
        "as_floats": x,
        "to_floats": x.astype(np.float32),
        "to_floats, RZ": toward_zero(x.astype(np.int64)),
        "sum_to_floats": wide.astype(np.float32),
        "sum_to_floats, RZ": toward_zero(wide),
        "fma": np.where(halfway, floats[9], exact.astype(np.float32)),
        "chosen": np.where(x < y, f, g),
    }
    for rows, want in ((ints, want_ints), (floats, want_floats)):
        for got, (name, expected) in zip(rows, want.items(), strict=True):
            assert got.tobytes() == expected.tobytes(), (name, rows.dtype)
    assert halfway.sum() < 8
    assert fours.tobytes() == x.reshape(-1, 4).T.tobytes()
