"""Matrix instructions beside MMA-Sim 2.1.1 (tensor-core 9, [XIE26]), bit for bit; see with_oracles.sh.

Its authors compared it bitwise with GPUs of every architecture here. Earlier versions gave a zero operand an
exponent, which hardware does not (tensor-core 8): the categories `zeros` and `floor` tell them apart.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

torch = pytest.importorskip("torch", reason="needs the oracles' environment, see with_oracles.sh")
sim = pytest.importorskip("mmasim.nv_ptx.sim", reason="needs the oracles' environment, see with_oracles.sh")

from mechanism.kernel.tensor_core import RULES, mma  # noqa: E402

pytestmark = pytest.mark.cross

U16 = npt.NDArray[np.uint16]
U32 = npt.NDArray[np.uint32]
Tile = tuple[U16, U16, U32]
Draw = np.random.Generator

TILES = 24  # of each category and instruction: some 3,000 outputs

NAMES = {
    "sm_70": "Volta",
    "sm_75": "Turing",
    "sm_80": "Ampere",
    "sm_86": "Ampere",
    "sm_89": "Ada Lovelace",
    "sm_90": "Hopper",
    "sm_100": "Blackwell",
    "sm_120": "RTX Blackwell",
}
#: Exponent fields and mantissa bits of a format: sign, then exponent, then mantissa.
MANTISSA = {"float16": 10, "bfloat16": 7}
FIELDS = {"float16": 31, "bfloat16": 255}


def patterns(draw: Draw, shape: tuple[int, ...], dtype: str, fields: tuple[int, int]) -> U16:
    """Any sign, any mantissa, exponent fields of a range, both ends included."""
    sign = draw.integers(0, 2, shape) << 15
    field = draw.integers(fields[0], fields[1] + 1, shape) << MANTISSA[dtype]
    return (sign | field | draw.integers(0, 1 << MANTISSA[dtype], shape)).astype(np.uint16)


def accumulators(draw: Draw, shape: tuple[int, ...], fields: tuple[int, int]) -> U32:
    sign = draw.integers(0, 2, shape) << 31
    return (
        sign | draw.integers(fields[0], fields[1] + 1, shape) << 23 | draw.integers(0, 1 << 23, shape)
    ).astype(np.uint32)


def ordinary(draw: Draw, m: int, n: int, k: int, dtype: str) -> Tile:
    """Neighbouring exponents around 1."""
    middle = FIELDS[dtype] // 2
    near = (middle - 4, middle + 4)
    return (
        patterns(draw, (m, k), dtype, near),
        patterns(draw, (k, n), dtype, near),
        accumulators(draw, (m, n), (120, 134)),
    )


def any_bits(draw: Draw, m: int, n: int, k: int, _dtype: str) -> Tile:
    """Every pattern, Inf and NaN of any payload included."""
    return (
        draw.integers(0, 1 << 16, (m, k)).astype(np.uint16),
        draw.integers(0, 1 << 16, (k, n)).astype(np.uint16),
        draw.integers(0, 1 << 32, (m, n)).astype(np.uint32),
    )


def finite(draw: Draw, m: int, n: int, k: int, dtype: str) -> Tile:
    """All finite exponents: most products are cut away, bfloat16 overflows now and then."""
    every = (0, FIELDS[dtype] - 1)
    return (
        patterns(draw, (m, k), dtype, every),
        patterns(draw, (k, n), dtype, every),
        accumulators(draw, (m, n), (0, 254)),
    )


def subnormal(draw: Draw, m: int, n: int, k: int, dtype: str) -> Tile:
    """Operands and accumulators below and just above the normal range."""
    return (
        patterns(draw, (m, k), dtype, (0, 2)),
        patterns(draw, (k, n), dtype, (0, FIELDS[dtype] // 2)),
        accumulators(draw, (m, n), (0, 90)),
    )


def zeros(draw: Draw, m: int, n: int, k: int, dtype: str) -> Tile:
    """Mostly zeros of both signs beside huge partners and little accumulators: whose exponent counts?"""
    a, b, c = finite(draw, m, n, k, dtype)
    a[draw.random(a.shape) < 0.8] &= 0x8000
    b[draw.random(b.shape) < 0.3] &= 0x8000
    c = accumulators(draw, (m, n), (0, 40))
    c[draw.random(c.shape) < 0.3] &= 0x8000_0000
    return a, b, c


def floor(draw: Draw, m: int, n: int, k: int, dtype: str) -> Tile:
    """No accumulator, and bfloat16 products around the lower limit E0 of the largest exponent: 2^-158 to 2^-122."""
    scale = (FIELDS[dtype] + 1) // 32  # float16 cannot go so low; there the same places of its range
    a = patterns(draw, (m, k), dtype, (5 * scale, 8 * scale))
    a[draw.random(a.shape) < 0.7] &= 0x8000
    b = patterns(draw, (k, n), dtype, (7 * scale, 8 * scale + scale // 2))
    return a, b, (draw.integers(0, 2, (m, n)) << 31).astype(np.uint32)


def cancelling(draw: Draw, m: int, n: int, k: int, dtype: str) -> Tile:
    """Pairs of opposite products that leave what lies below them, and an accumulator near the rest."""
    a, b, c = ordinary(draw, m, n, k, dtype)
    half = k // 2
    order = draw.permutation(k)
    a[:, order[half : 2 * half]] = a[:, order[:half]] ^ 0x8000
    b[order[half : 2 * half]] = b[order[:half]]
    low = draw.random(b.shape) < 0.1
    b[low] ^= 1
    c[draw.random(c.shape) < 0.5] &= 0x8000_0000
    return a, b, c


def extreme(draw: Draw, m: int, n: int, k: int, dtype: str) -> Tile:
    """The largest numbers, so that sums leave fp32 (bfloat16) or meet an accumulator that dwarfs them."""
    top = FIELDS[dtype] - 1
    return (
        patterns(draw, (m, k), dtype, (top - 1, top)),
        patterns(draw, (k, n), dtype, (top // 2, top)),
        accumulators(draw, (m, n), (200, 254)),
    )


CATEGORIES: list[Callable[[Draw, int, int, int, str], Tile]] = [
    ordinary,
    any_bits,
    finite,
    subnormal,
    zeros,
    floor,
    cancelling,
    extreme,
]
INSTRUCTIONS = [
    (arch, shape, dtype)
    for arch, rule in RULES.items()
    if arch in NAMES
    for shape in rule.instructions
    for dtype in ("float16", "bfloat16")
    if dtype == "float16" or (rule.bfloat16 and arch != "sm_75")  # Turing's instructions have no bfloat16
]


def simulated(operation: Any, tile: Tile, dtype: str) -> U32:
    """MMA-Sim's answer, bits in, bits out."""
    kind = getattr(torch, dtype)
    a, b = (torch.from_numpy(part.view(np.int16)).view(kind) for part in tile[:2])
    c = torch.from_numpy(tile[2].view(np.float32))
    found: U32 = operation(a, b, c).numpy().view(np.uint32)
    return found


@pytest.mark.parametrize("category", CATEGORIES, ids=lambda category: category.__name__)
@pytest.mark.parametrize(("arch", "shape", "dtype"), INSTRUCTIONS)
def test_every_instruction_of_every_architecture(
    arch: str, shape: tuple[int, int, int], dtype: str, category: Callable[..., Tile]
) -> None:
    m, n, k = shape
    name = f"m{m}n{n}k{k}.f32.{'f16.f16' if dtype == 'float16' else 'bf16.bf16'}.f32"
    operation = sim.MMA(NAMES[arch], name)
    draw = np.random.default_rng([m, k, *category.__name__.encode()])
    for _ in range(TILES):
        tile = category(draw, m, n, k, dtype)
        want = simulated(operation, tile, dtype)
        got = mma(*tile, arch=arch, dtype=dtype, k=k)
        for row, column in np.argwhere(got != want)[:1]:
            pytest.fail(
                f"{arch} {name} [{row}, {column}]: expected 0x{want[row, column]:08x}, got 0x{got[row, column]:08x}\n"
                f"a {[hex(bits) for bits in tile[0][row]]}\nb {[hex(bits) for bits in tile[1][:, column]]}\n"
                f"c {hex(tile[2][row, column])}"
            )


@pytest.mark.parametrize(
    ("constant", "value", "dtype"),
    [
        ("F", 23, "float16"),
        ("F", 25, "float16"),
        ("L_max", 4, "float16"),
        ("L_max", 16, "float16"),
        ("e_zero", -131, "bfloat16"),
        ("e_zero", -126, "bfloat16"),
    ],
)
def test_a_model_with_one_wrong_constant_is_told_apart(constant: str, value: int, dtype: str) -> None:
    """The tiles above would notice each fact of tensor-core 1 that is off by one."""
    operation = sim.MMA("Ampere", f"m16n8k16.f32.{'f16.f16' if dtype == 'float16' else 'bf16.bf16'}.f32")
    setattr(operation.arithmetic_op, constant, value)
    differing = 0
    for category in CATEGORIES:
        draw = np.random.default_rng([16, 16, *category.__name__.encode()])
        for _ in range(TILES):
            tile = category(draw, 16, 8, 16, dtype)
            differing += int(
                (simulated(operation, tile, dtype) != mma(*tile, arch="sm_80", dtype=dtype)).sum()
            )
    assert differing > 0


def test_the_categories_reach_what_they_are_for() -> None:
    """Infinities, NaNs, subnormal results, exact zeros and cut crumbs all occur; nothing above is idle."""
    draw = np.random.default_rng(1)
    seen = set()
    for category in CATEGORIES:
        for dtype in MANTISSA:
            for _ in range(8):
                bits = mma(*category(draw, 16, 8, 16, dtype), arch="sm_80", dtype=dtype)
                values = bits.view(np.float32)
                seen |= {"NaN"} if np.isnan(values).any() else set()
                seen |= {"Inf"} if np.isinf(values).any() else set()
                seen |= {"zero"} if (bits == 0).any() else set()
                seen |= {"subnormal"} if ((values != 0) & (np.abs(values) < 2.0**-126)).any() else set()
    assert seen == {"NaN", "Inf", "zero", "subnormal"}
