"""Packing and dequantisation beside AutoAWQ 0.2.9's own functions, bit for bit; see with_oracles.sh."""

import numpy as np
import numpy.typing as npt
import pytest

torch = pytest.importorskip("torch", reason="needs the oracles' environment, see with_oracles.sh")
pytest.importorskip("awq", reason="needs the oracles' environment, see with_oracles.sh")

from awq.modules.linear.gemm import WQLinear_GEMM  # noqa: E402
from awq.quantize.quantizer import AwqQuantizer  # noqa: E402
from awq.utils import packing_utils  # noqa: E402

from mechanism.fixture import packing, quantise  # noqa: E402
from mechanism.kernel.dequantize import Weights, dequantize  # noqa: E402

pytestmark = pytest.mark.cross

K, N = 256, 192
U8 = npt.NDArray[np.uint8]
I32 = npt.NDArray[np.int32]


def drawn(seed: int, rows: int) -> U8:
    """Codes or zero points, every value and place."""
    return np.random.default_rng(seed).integers(0, 16, (rows, N), dtype=np.uint8)


def unpacked(words: I32) -> U8:
    """By AutoAWQ: shifts, order, mask."""
    codes, zeros = packing_utils.unpack_awq(torch.from_numpy(words), torch.from_numpy(words), 4)
    codes, _ = packing_utils.reverse_awq_order(codes, zeros, 4)
    found: U8 = torch.bitwise_and(codes, 15).to(torch.uint8).numpy()
    return found


@pytest.mark.parametrize("seed", range(5))
def test_what_is_packed_here_is_unpacked_there(seed: int) -> None:
    values = drawn(seed, K)
    words = packing.pack(values)
    assert (unpacked(words) == values).all()
    assert (packing.unpack(words) == values).all()


@pytest.mark.parametrize("seed", range(5))
def test_any_words_mean_the_same(seed: int) -> None:
    """Random words, the sign bit among them, not only what `pack` makes."""
    words = (
        np.random.default_rng(seed).integers(-(2**31), 2**31, (K, N // 8), dtype=np.int64).astype(np.int32)
    )
    assert (packing.unpack(words) == unpacked(words)).all()
    assert packing.pack(unpacked(words)).tobytes() == words.tobytes()


@pytest.mark.parametrize("group", [32, 64, 128])
def test_autoawqs_own_layer_holds_our_words(group: int) -> None:
    """`WQLinear_GEMM.from_linear` on the exact values of our codes: qweight, qzeros and scales as stored here."""
    codes, zeros = drawn(group, K), drawn(group + 1, K // group)
    scales = np.random.default_rng(group).uniform(0.001, 0.1, (K // group, N)).astype(np.float16)
    steps = codes.astype(np.float32) - np.repeat(zeros, group, axis=0)
    exact = steps * np.repeat(scales.astype(np.float32), group, axis=0)  # 4 + 11 bits
    linear = torch.nn.Linear(K, N, bias=False)
    linear.weight.data = torch.from_numpy(np.ascontiguousarray(exact.T))
    made = WQLinear_GEMM.from_linear(
        linear,
        4,
        group,
        scales=torch.from_numpy(scales.astype(np.float32)),
        zeros=torch.from_numpy(zeros.astype(np.float32)),
    )
    assert made.qweight.numpy().tobytes() == packing.pack(codes).tobytes()
    assert made.qzeros.numpy().tobytes() == packing.pack(zeros).tobytes()
    assert made.scales.numpy().tobytes() == scales.tobytes()


def test_every_code_zero_point_and_scale_is_dequantised_alike() -> None:
    """All 16 x 16 x 63,488 of them, subnormal and negative scales included: nothing is left to sampling."""
    bits = np.arange(65536, dtype=np.uint16)
    scales = bits.view(np.float16)[np.isfinite(bits.view(np.float16))]
    columns = len(scales)
    codes = np.broadcast_to(np.tile(np.arange(16, dtype=np.uint8), 16)[:, None], (256, columns))
    zeros = np.broadcast_to(np.arange(16, dtype=np.uint8)[:, None], (16, columns))
    every = np.broadcast_to(scales, (16, columns))
    qweight, qzeros = packing.pack(np.ascontiguousarray(codes)), packing.pack(np.ascontiguousarray(zeros))
    theirs = packing_utils.dequantize_gemm(
        torch.from_numpy(qweight), torch.from_numpy(qzeros), torch.from_numpy(every.copy()), 4, 16
    ).numpy()
    ours = dequantize(
        Weights(qweight=qweight[None], scales=np.ascontiguousarray(every)[None], qzeros=qzeros[None]), 0
    )
    # (q - z) = 0 times a negative scale: the kernel's order of operations is in both, and so is its -0
    assert ours.tobytes() == theirs.tobytes()
    fixture = quantise.dequantise(quantise.Quantised(codes=codes, zeros=zeros, scales=every), group=16)
    assert fixture.tobytes() == theirs.tobytes()


@pytest.mark.parametrize("seed", range(10))
def test_the_quantisation_rule_is_autoawqs(seed: int) -> None:
    """Groups whose scale is an fp16 number: there AutoAWQ's float32 scale is the stored one, and all must agree."""
    draw, group = np.random.default_rng(seed), 64
    scale = (draw.integers(1, 2048, (K // group, N)) * 2.0 ** draw.integers(-14, -6, (K // group, N))).astype(
        np.float16
    )
    low = draw.integers(-15, 1, (K // group, N))
    place = draw.uniform(0, 15, (K // group, group, N))
    place[:, 0], place[:, 1] = 0, 15  # both ends are met: the span is 15 scales, exactly
    grouped = (place + low[:, None]).astype(np.float32) * scale[:, None].astype(np.float32)
    weights = grouped.reshape(K, N).astype(np.float32)
    asked = AwqQuantizer.__new__(AwqQuantizer)
    asked.group_size, asked.zero_point, asked.w_bit = group, True, 4
    theirs, scales, zeros = asked.pseudo_quantize_tensor(torch.from_numpy(weights.T.copy()))
    ours = quantise.quantise(weights, group=group)
    assert ours.scales.astype(np.float32).tobytes() == scales.numpy().T.tobytes()
    assert (ours.zeros == zeros.numpy().T).all()
    steps = ours.codes.astype(np.float32) - np.repeat(ours.zeros, group, axis=0)
    assert (steps * np.repeat(ours.scales.astype(np.float32), group, axis=0) == theirs.numpy().T).all()
