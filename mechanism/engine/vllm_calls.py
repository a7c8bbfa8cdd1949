"""The operator calls that the engine makes, as data: name, and every argument by its name in the schema.

Pure, so that each call can be bound against the registered schemas of the real build where no GPU is. The
flags are those of `fused_marlin_moe` (marlin-moe 3); nothing is left to a default.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from mechanism.engine.vllm_pins import LOCKS_PER_SM, UINT4
from mechanism.kernel.errors import ShapeError

AUTO = -1


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """One operator call: `operator` as `namespace::name`, and its arguments in the schema's order."""

    operator: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Explicit:
    """The launch that the operator is told: thread_k, thread_n and blocks_per_sm, or AUTO for all three."""

    thread_k: int = AUTO
    thread_n: int = AUTO
    blocks_per_sm: int = AUTO


def align(topk_ids: Any, *, experts: int, block_size_m: int, outputs: tuple[Any, Any, Any]) -> Call:
    """Sort routes into padded blocks; `outputs` are slots, blocks and the padded count, written in place."""
    slots, blocks, padded = outputs
    return Call(
        operator="_moe_C::moe_align_block_size",
        arguments={
            "topk_ids": topk_ids,
            "num_experts": experts,
            "block_size": block_size_m,
            "sorted_token_ids": slots,
            "experts_ids": blocks,
            "num_tokens_post_pad": padded,
            "maybe_expert_map": None,
        },
    )


def gemm(  # noqa: PLR0913 - the operator's own arguments
    which: Literal["w13", "w2"],
    *,
    a: Any,
    c: Any,
    weights: tuple[Any, Any, Any],
    workspace: Any,
    alignment: tuple[Any, Any, Any],
    topk_weights: Any,
    block_size_m: int,
    top_k: int,
    sizes: tuple[int, int, int],
    launch: Explicit,
) -> Call:
    """One grouped GEMM of the layer.

    Args:
        which: w13 reads hidden states and does not weight; w2 reads the activation and multiplies by the
            routing weight (marlin-moe 3).
        a: Activations (size_m, K).
        c: Output (size_m * top_k, N), written in place.
        weights: Repacked weights, permuted scales, permuted zero points.
        workspace: int32 zeros, the locks.
        alignment: Slots, blocks and the padded count.
        topk_weights: fp32, one per route.
        block_size_m: Slots per padded block.
        top_k: Routes per row of `a`: the layer's for w13, 1 for w2.
        sizes: (size_m, size_n, size_k).
        launch: What the operator is told of the launch.
    """
    qweight, scales, zeros = weights
    slots, blocks, padded = alignment
    return Call(
        operator="_moe_C::moe_wna16_marlin_gemm",
        arguments={
            "a": a,
            "c_or_none": c,
            "b_q_weight": qweight,
            "b_bias_or_none": None,
            "b_scales": scales,
            "a_scales": None,
            "global_scale": None,
            "b_zeros_or_none": zeros,
            "g_idx_or_none": None,
            "perm_or_none": None,
            "workspace": workspace,
            "sorted_token_ids": slots,
            "expert_ids": blocks,
            "num_tokens_past_padded": padded,
            "topk_weights": topk_weights,
            "moe_block_size": block_size_m,
            "top_k": top_k,
            "mul_topk_weights": which == "w2",
            "b_type_id": UINT4,
            "size_m": sizes[0],
            "size_n": sizes[1],
            "size_k": sizes[2],
            "is_full_k": True,
            "use_atomic_add": False,
            "use_fp32_reduce": True,
            "is_zp_float": False,
            "thread_k": launch.thread_k,
            "thread_n": launch.thread_n,
            "blocks_per_sm": launch.blocks_per_sm,
        },
    )


def silu_and_mul(result: Any, gate_and_up: Any) -> Call:
    """The activation: `result` (rows, I) from (rows, 2 I)."""
    return Call(operator="_C::silu_and_mul", arguments={"result": result, "input": gate_and_up})


def moe_sum(routed: Any, output: Any) -> Call:
    """The final sum: `output` (tokens, H) from (tokens, top_k, H)."""
    return Call(operator="_moe_C::moe_sum", arguments={"input": routed, "output": output})


def repack(qweight: Any, *, size_k: int, size_n: int) -> Call:
    """One expert's weights from AutoAWQ's layout to Marlin's."""
    return Call(
        operator="_C::awq_marlin_repack",
        arguments={
            "b_q_weight": qweight,
            "size_k": size_k,
            "size_n": size_n,
            "num_bits": 4,
            "is_a_8bit": False,
        },
    )


def locks(*, sms: int, size_n: int, slots: int, block_size_m: int) -> int:
    """Length of the lock workspace: what the fused operator allocates for `sms` multiprocessors.

    Raises ShapeError if that is less than the operator demands (marlin-moe 9.3, 17); it never is.
    """
    length = LOCKS_PER_SM * sms
    needed = min((size_n // 64) * (slots // block_size_m), LOCKS_PER_SM * sms)
    if length < needed:
        raise ShapeError(f"workspace: expected {needed} lock words or more, got {length}")
    return length
