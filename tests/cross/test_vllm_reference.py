"""Packing, values and Marlin's layout beside vLLM 0.22.0's CPU reference code, bit for bit; see with_oracles.sh."""

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the oracles' environment, see with_oracles.sh")
pytest.importorskip("vllm", reason="needs the oracles' environment, see with_oracles.sh")

from vllm.model_executor.layers.quantization.utils import marlin_utils_test, quant_utils  # noqa: E402
from vllm.scalar_type import scalar_types  # noqa: E402

from mechanism.engine import vllm_repack  # noqa: E402
from mechanism.fixture import packing  # noqa: E402
from mechanism.kernel.dequantize import Weights, dequantize  # noqa: E402

pytestmark = pytest.mark.cross

SIZES = [(256, 384), (512, 128), (768, 256)]
GROUPS = [32, 64, 128, -1]
DTYPES = ["float16", "bfloat16"]


def drawn(k: int, n: int, dtype: str) -> Any:
    """Weights whose groups hold both signs, in the type that a model has."""
    values = np.random.default_rng(k + n).standard_normal((k, n)) * 0.05
    return torch.from_numpy(values).to(getattr(torch, dtype))


def stored(tensor: Any) -> Any:
    """A tensor as the simulation keeps it: float16, or the bits of bfloat16."""
    return (
        tensor.numpy() if tensor.dtype == torch.float16 else tensor.view(torch.int16).numpy().view(np.uint16)
    )


def codes_of(tensor: Any) -> Any:
    return tensor.numpy().astype(np.uint8)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize(("k", "n"), SIZES)
def test_awq_weights(k: int, n: int, group: int, dtype: str) -> None:
    """`quantize_weights` with zero points: its packing, its reference values, and `awq_marlin_quantize`'s layout."""
    w = drawn(k, n, dtype)
    w_ref, q_w, s, zp = quant_utils.quantize_weights(w, scalar_types.uint4, group, zero_points=True)
    qweight, qzeros = packing.pack(codes_of(q_w)), packing.pack(codes_of(zp))
    assert qweight.tobytes() == quant_utils.awq_pack(q_w, 4, k, n).numpy().tobytes()
    assert qzeros.tobytes() == quant_utils.awq_pack(zp, 4, len(zp), n).numpy().tobytes()
    scales = stored(s.reshape(-1, n).contiguous())
    if group != -1:  # channelwise operands are integers, and the scale comes last: another rounding
        ours = dequantize(Weights(qweight=qweight[None], scales=scales[None], qzeros=qzeros[None]), 0)
        assert ours.tobytes() == stored(w_ref.contiguous()).tobytes()
    _, marlin, marlin_s, marlin_zp = marlin_utils_test.awq_marlin_quantize(w, scalar_types.uint4, group)
    words, permuted, zeros = vllm_repack.repacked(
        qweight[None], scales[None], qzeros[None], intermediate=k, group=group
    )
    assert words[0].tobytes() == marlin.numpy().tobytes()
    assert permuted[0].tobytes() == stored(marlin_s.contiguous()).tobytes()
    assert zeros[0].tobytes() == marlin_zp.numpy().tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize(("k", "n"), SIZES)
def test_symmetric_weights(k: int, n: int, group: int, dtype: str) -> None:
    """uint4b8, zero point 8 and none stored: `marlin_quantize`'s reference values, words and scales."""
    w = drawn(k, n, dtype)
    w_ref, marlin, marlin_s, *_ = marlin_utils_test.marlin_quantize(
        w, scalar_types.uint4b8, group, act_order=False
    )
    _, q_w, s, *_ = quant_utils.gptq_quantize_weights(w, scalar_types.uint4b8, group, act_order=False)
    qweight, scales = packing.pack(codes_of(q_w)), stored(s.reshape(-1, n).contiguous())
    assert vllm_repack.repack_weights(qweight).tobytes() == marlin.numpy().tobytes()
    permuted = vllm_repack.permute_scales(scales[None], intermediate=k, group=group)
    assert permuted[0].tobytes() == stored(marlin_s.contiguous()).tobytes()
    if group != -1:
        ours = dequantize(Weights(qweight=qweight[None], scales=scales[None]), 0)
        assert ours.tobytes() == stored(w_ref.contiguous()).tobytes()
