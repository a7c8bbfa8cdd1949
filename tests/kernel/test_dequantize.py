"""Packed words to operands (marlin-moe 1, 6.2)."""

from dataclasses import fields

import numpy as np
import pytest

from mechanism.kernel import plain
from mechanism.kernel.dequantize import (
    Weights,
    as_loaded,
    defective_scale_columns,
    dequantize,
    from_planes,
    nibble_planes,
    to_planes,
)
from mechanism.kernel.errors import ShapeError
from mechanism.kernel.panel import Panel, exponent_fields, k_view
from mechanism.kernel.rounding import bits16, narrow, widen
from tests.kernel.kernel_setup import pack, problem


def test_nibble_order() -> None:
    """Values 0..7 along 8 columns are the word 0x75316420 (case P1)."""
    words = pack(np.arange(8, dtype=np.uint8)[np.newaxis])
    assert hex(int(words.view(np.uint32)[0, 0])) == "0x75316420"
    assert from_planes(nibble_planes(words)).tolist() == [list(range(8))]


def test_planes_are_a_permutation_of_columns() -> None:
    """There and back."""
    natural = np.arange(3 * 64).reshape(3, 64)
    assert np.array_equal(from_planes(to_planes(natural)), natural)


def test_zero_points_have_no_plus_one() -> None:
    """Zero points 0, 7, 8, 15, codes 0..15, scale 0.5: (q - z) / 2 (case P2)."""
    codes = np.repeat(np.arange(16, dtype=np.uint8)[:, np.newaxis], 8, axis=1)[np.newaxis]
    zeros = np.array([[[0, 7, 8, 15, 0, 7, 8, 15]]], dtype=np.uint8)
    # two scale rows: one would be channelwise
    weights = Weights(
        qweight=pack(np.concatenate([codes, codes], axis=1)),
        scales=np.full((1, 2, 8), 0.5, dtype=np.float16),
        qzeros=pack(np.repeat(zeros, 2, axis=1)),
    )
    want = (codes[0].astype(int) - zeros[0].astype(int)) / 2
    assert np.array_equal(widen(dequantize(weights, 0))[:16], want)


def test_every_operand_of_every_scale() -> None:
    """31 differences times all 63,488 finite fp16 scales: one rounding, by integers; and three operations.

    Products that are subnormal or overflow take the general path, so the short one is held to the rest.
    """
    scales = np.concatenate([np.arange(0x7C00), np.arange(0x8000, 0xFC00)]).astype(np.uint16).view(np.float16)
    s = widen(scales)
    for centred in range(-15, 16):
        want = narrow(np.float64(centred) * s.astype(np.float64), "float16")
        with np.errstate(over="ignore", invalid="ignore"):
            large, small = s * np.float32(8193), s * np.float32(8192)
            short = np.float32(centred) * large - np.float32(centred) * small
        inside = (np.abs(s) >= 2.0**-14) & (np.abs(s) * 15 < 65520)
        assert np.array_equal(short[inside], widen(want)[inside])
        for index in range(0, len(scales), 4099):
            bits = plain.operand(
                max(centred, 0),
                max(-centred, 0),
                int(bits16(scales)[index]),
                fmt=plain.FORMATS["float16"],
                channelwise=False,
            )
            assert bits & 0x7FFF == int(bits16(want)[index]) & 0x7FFF or centred == 0
            assert bits == int(bits16(want)[index]) or bits & 0x7FFF == 0


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("group", [-1, 32, 64, 128])
@pytest.mark.parametrize("tile_k", [64, 128])
@pytest.mark.parametrize("spread", [0, 12], ids=["short", "general"])
def test_units_hold_the_operands(tile_k: int, group: int, spread: int, *, interleaved: bool) -> None:
    """Unit by unit, the same operands and exponents as the whole matrix."""
    given = problem(group + tile_k, group=group, spread=spread)
    weights = given.weights
    panel = Panel(weights, [2, 0], slice(16, 48), tile_k=tile_k, interleaved=interleaved, length=8)
    values = np.empty(panel.shape, dtype=np.float32)
    wide, fields = np.empty_like(values), np.empty(panel.shape, dtype=np.uint8)
    for index, expert in enumerate([2, 0]):
        planes = to_planes(widen(dequantize(weights, expert)))[:, :, 16:48].reshape(weights.k, -1)
        want = k_view(planes, tile_k, interleaved=interleaved)
        for tile in range(want.shape[0]):
            for half in (0, 1):
                panel.unit(tile, half, slice(8, 16), values, fields, wide)
                assert np.array_equal(values[:, index], want[tile, half, 8:16])
                assert np.array_equal(
                    fields[:, index], exponent_fields(np.ascontiguousarray(want[tile, half, 8:16]))
                )


def test_uint4b8_has_zero_point_8() -> None:
    """Weights without zero points."""
    given = problem(1)
    eight = pack(np.full_like(given.zeros, 8))
    bare = Weights(qweight=given.weights.qweight, scales=given.weights.scales)
    full = Weights(qweight=given.weights.qweight, scales=given.weights.scales, qzeros=eight)
    assert np.array_equal(bits16(dequantize(bare, 1)), bits16(dequantize(full, 1)))


def test_defect_of_the_scale_permutation() -> None:
    """marlin-moe 1.4's formula; and nothing changes where the permutation is right."""
    n = np.arange(256)
    i, j = n % 8, n % 64 // 8
    want = 64 * (n // 64) + 32 * (i // 4) + 2 * (i % 4) + np.array([0, 1, 8, 9, 16, 17, 24, 25])[j]
    assert np.array_equal(defective_scale_columns(256, stored="single", read="grouped"), want)
    for kind in ("single", "grouped"):
        assert np.array_equal(defective_scale_columns(256, stored=kind, read=kind), n)
    weights = problem(2).weights
    assert as_loaded(weights, group_size=128, intermediate=256) is weights
    changed = as_loaded(weights, group_size=128, intermediate=128)
    assert np.array_equal(changed.scales, weights.scales[:, :, want[:128]])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"qweight": np.zeros((3, 256), np.int32)},
            r"^qweight: expected int32 \(E, K, N/8\), got int32 \(3, 256\)$",
        ),
        (
            {"scales": np.zeros((3, 2, 128), np.float32)},
            "^scales: expected float16, or uint16 bf16 bits, got float32$",
        ),
        (
            {"scales": np.zeros((3, 2, 64), np.float16)},
            r"^scales: expected \(3, K/group, 128\), got \(3, 2, 64\)$",
        ),
        (
            {"scales": np.zeros((3, 7, 128), np.float16)},
            "^scales: K % rows must be 0: K=256, 7 rows; store one row per group$",
        ),
        (
            {"qzeros": np.zeros((3, 2, 128), np.int32)},
            r"^qzeros: expected int32 \(3, 2, 16\), packed 8 to a word like qweight, got int32 \(3, 2, 128\)$",
        ),
    ],
)
def test_shapes_are_checked(change: dict[str, object], message: str) -> None:
    """Zero points with the shape of scales are not packed (case P4)."""
    weights = problem(3).weights
    given = {field.name: getattr(weights, field.name) for field in fields(Weights)}
    with pytest.raises(ShapeError, match=message):
        Weights(**(given | change))
