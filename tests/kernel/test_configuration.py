"""What the host code chooses, and what it refuses (marlin-moe 3, 4, 9.2, 9.3)."""

from functools import partial

import pytest

from mechanism.kernel.configuration import Launch, candidates, choose, explicit, forced, shared_memory
from mechanism.kernel.devices import DEVICES, Device, registers, rests_on_driver_counts
from mechanism.kernel.errors import ConfigurationError, KernelError, ShapeError
from mechanism.kernel.shapes import gemm_faults, layer_faults
from mechanism.kernel.versions import version

TOKENS = {8: 12, 16: 200, 32: 300, 48: 500, 64: 1000}  # of 128 experts, top 8


def chosen(device: str, block: int, *, tokens: int | None = None, dtype: str = "float16") -> tuple[int, ...]:
    """(tile_k, tile_n, CTAs per SM, grid) of the default fixture's W13."""
    got = choose(
        DEVICES[device],
        n=1536,
        k=2048,
        group=128,
        block_size_m=block,
        routes=8 * (TOKENS[block] if tokens is None else tokens),
        dtype=dtype,
    )
    assert got.threads == got.tile_k * got.tile_n // 64
    return got.tile_k, got.tile_n, got.ctas_per_sm, got.grid


@pytest.mark.parametrize(
    ("device", "choices"),
    [
        (
            "rtx-3090",
            ((64, 128, 3, 246), (64, 128, 3, 246), (64, 128, 2, 164), (64, 128, 2, 164), (64, 256, 1, 82)),
        ),
        (
            "rtx-4090",
            ((64, 128, 3, 384), (64, 128, 3, 384), (64, 128, 2, 256), (64, 128, 2, 256), (64, 256, 1, 128)),
        ),
        (
            "a100",
            ((64, 128, 4, 432), (64, 128, 3, 324), (64, 128, 2, 216), (64, 128, 2, 216), (64, 128, 2, 216)),
        ),
        (
            "h100",
            ((128, 64, 4, 528), (64, 128, 3, 396), (64, 128, 2, 264), (64, 128, 2, 264), (64, 128, 2, 264)),
        ),
        (
            "h200",
            ((128, 64, 4, 528), (64, 128, 3, 396), (64, 128, 2, 264), (64, 128, 2, 264), (64, 128, 2, 264)),
        ),
    ],
)
def test_worked_example(device: str, choices: tuple[tuple[int, ...], ...]) -> None:
    """marlin-moe 4.5, per block size."""
    assert tuple(chosen(device, block) for block in TOKENS) == choices


def test_exceptions_of_the_worked_example() -> None:
    """A100 with one token; H100 in bf16."""
    assert chosen("a100", 8, tokens=1) == (128, 64, 4, 432)
    assert chosen("h100", 8, dtype="bfloat16") == (64, 128, 4, 528)
    assert chosen("h100", 8, tokens=1, dtype="bfloat16") == (128, 64, 4, 528)


@pytest.mark.parametrize(
    ("block", "tile", "group", "size"),
    [
        (8, (64, 128), 128, 26112),
        (8, (64, 128), 32, 27392),
        (16, (128, 128), 32, 54528),
        (32, (128, 64), 64, 50944),
        (48, (64, 256), -1, 60672),
        (64, (128, 64), 32, 85504),
    ],
)
def test_shared_memory(block: int, tile: tuple[int, int], group: int, size: int) -> None:
    """marlin-moe 4.2's table."""
    assert shared_memory(block_size_m=block, tile_k=tile[0], tile_n=tile[1], group=group) == size


def test_a_made_up_device_is_a_device() -> None:
    """A plan may pin eight SMs of sm_86."""
    toy = Device(name="toy", arch="sm_86", sms=8, shared_memory=101_376)
    got = choose(toy, n=256, k=256, group=64, block_size_m=8, routes=24)
    assert (got.grid % 8, got.ctas_per_sm) == (0, got.grid // 8)
    with pytest.raises(
        ConfigurationError, match=r"^device bad: expected sms and shared_memory of 1 or more, got 0"
    ):
        Device(name="bad", arch="sm_86", sms=0, shared_memory=1)


def test_unknown_register_counts_are_an_error() -> None:
    """Guessing would guess bits."""
    with pytest.raises(
        ConfigurationError, match=r"^register counts for sm_100 are not known, and they decide"
    ):
        choose(DEVICES["b200"], n=1536, k=2048, group=128, block_size_m=8, routes=96)
    with pytest.raises(ConfigurationError, match=r"^register counts of vllm==0.11.0 are not known"):
        choose(DEVICES["a100"], n=1536, k=2048, group=128, block_size_m=8, routes=96, kernel="vllm==0.11.0")
    assert registers(arch="sm_86", dtype="float16", block_size_m=8, tile_k=64, tile_n=256, group=128) is None
    assert [arch for arch in ("sm_80", "sm_89", "sm_90", "sm_120") if rests_on_driver_counts(arch)] == [
        "sm_90",
        "sm_120",
    ]


def test_explicit_tile() -> None:
    """Threads follow from the tile, the grid from the device; what cannot run is refused."""
    ask = partial(explicit, DEVICES["rtx-3090"], n=1536, k=2048, group=128, block_size_m=8)
    got = ask(tile_k=64, tile_n=128, ctas_per_sm=2)
    assert got == Launch(tile_k=64, tile_n=128, threads=128, ctas_per_sm=2, grid=164)
    with pytest.raises(
        ConfigurationError,
        match=r"^tile 64x256: no kernel was compiled for block 8; use one of 128x128, 64x128, 128x64$",
    ):
        ask(tile_k=64, tile_n=256)
    with pytest.raises(
        ConfigurationError, match=r"needs 50688 bytes of shared memory, 49152 are left with 2 CTAs"
    ):
        ask(tile_k=128, tile_n=128, ctas_per_sm=2)
    assert candidates(8, kernel="vllm==0.11.0") == ((128, 128, 256), (64, 128, 128))


def test_forced_grid() -> None:
    """200 CTAs on 82 SMs take a patched launch; 50 SMs do not."""
    launch = Launch(tile_k=64, tile_n=128, threads=128, ctas_per_sm=3, grid=246)
    assert forced(launch, 200, sms=82) == Launch(tile_k=64, tile_n=128, threads=128, ctas_per_sm=0, grid=200)
    assert forced(launch, 200, sms=50).ctas_per_sm == 4
    with pytest.raises(ConfigurationError, match=r"^grid: expected 1 CTA or more, got 0$"):
        forced(launch, 0, sms=82)


@pytest.mark.parametrize(
    ("sizes", "fault"),
    [
        ({"n": 704, "k": 2048}, None),
        ({"n": 1856, "k": 2048}, None),
        ({"n": 1536, "k": 10944}, "K % group must be 0: K=10944 leaves 64 over group 128; pad K to 11008"),
        ({"n": 1536, "k": 320}, "K % group must be 0: K=320 leaves 64 over group 128; pad K to 384"),
        ({"n": 72, "k": 2048}, "N % 64 must be 0: N=72 leaves 8; pad N to 128"),
        ({"n": 128, "k": 264, "group": -1}, "K % 64 must be 0: K=264 leaves 8; pad K to 320"),
        (
            {"n": 1856, "k": 320, "group": 64},
            "K % 128 or N % 128 must be 0 (tiles are 64x128 and 128x64): K=320 leaves 64, N=1856 leaves 64;"
            " pad K to 384 or N to 1920",
        ),
        (
            {"n": 128, "k": 256, "group": 96},
            "group must be one of (-1, 32, 64, 128): got 96; no kernel was compiled for it",
        ),
        (
            {"n": 128, "k": 256, "block_size_m": 24},
            "block_size_m must be 8 or a multiple of 16 up to 64: got 24",
        ),
        ({"n": 128, "k": 0}, "sizes must be positive: N=128, K=0"),
    ],
)
def test_gemm_rules(sizes: dict[str, int], fault: str | None) -> None:
    """Case P5: rule, both numbers, the way out."""
    found = gemm_faults(**({"group": 128, "block_size_m": 8} | sizes))
    assert found == (() if fault is None else (fault,))


@pytest.mark.parametrize(
    ("sizes", "fault"),
    [
        ((2048, 768, 128), None),
        ((4096, 128, 128), None),
        ((2048, 704, 128), "intermediate % max(64, group) must be 0: 704 leaves 64 over 128; use a group"),
        ((2112, 768, 128), "hidden % 128 must be 0: 2112 leaves 64; pad hidden to 2176"),
        ((2048, 768, -1), "group -1 cannot be loaded for a MoE layer; use 32, 64 or 128"),
        ((2048, 768, 256), "group must be one of (32, 64, 128): got 256; requantise with one of them"),
    ],
)
def test_layer_rules(sizes: tuple[int, int, int], fault: str | None) -> None:
    """marlin-moe 3, end."""
    hidden, intermediate, group = sizes
    found = layer_faults(hidden=hidden, intermediate=intermediate, group=group)
    assert len(found) == (fault is not None)
    assert fault is None or found[0].startswith(fault)


def test_no_tile_fits() -> None:
    """Named with the device and its memory."""
    small = Device(name="small", arch="sm_86", sms=1, shared_memory=20_000)
    with pytest.raises(
        ConfigurationError, match=r"^no tile fits N=1536, K=2048, group 128, block 8 in 20000 bytes"
    ):
        choose(small, n=1536, k=2048, group=128, block_size_m=8, routes=96)
    with pytest.raises(ShapeError, match=r"^N % 64 must be 0"):
        choose(small, n=72, k=2048, group=128, block_size_m=8, routes=96)


def test_unknown_build() -> None:
    """Its arithmetic is not guessed."""
    with pytest.raises(
        KernelError, match=r"^kernel 'vllm==0.12.0': its arithmetic is not known; pin one of vllm==0.11.0,"
    ):
        version("vllm==0.12.0")
