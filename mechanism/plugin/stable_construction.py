"""Stable construction: a vLLM plugin that builds the alignment of AWQ-Marlin MoE layers in one order.

The operator hands out slots with atomics, so which padded block a route lands in may change from run to run.
Here valid routes are ordered by (expert, route id) instead, for every batch: padding slots hold the
sentinel, and only the active prefix is used; blocks, padded count and buffer lengths are the operator's.
This is an implementation patch, not a fix of vLLM: what it computes is a cohort of its own.

Off by default. `MARLIN_STABLE_CONSTRUCTION=1` switches it on when vLLM loads its general plugins. It reaches
`fused_marlin_moe` calls with unsigned 4-bit weights and zero points, and nothing else.

Cost, for R routes and E experts: a stable sort, O(R log R) on the device, and about twenty small kernels
where the operator needs two; O(R + E) extra memory; no host synchronisation, so it can be captured into a
CUDA graph.
"""

import functools
import os
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

SWITCH = "MARLIN_STABLE_CONSTRUCTION"
_MODULE = "vllm.model_executor.layers.fused_moe.experts.marlin_moe"
_inside_awq: ContextVar[bool] = ContextVar("inside_awq", default=False)


def enabled() -> bool:
    """Whether the switch is on: exactly `1`. Raises ValueError for anything but 0, 1 and nothing."""
    value = os.environ.get(SWITCH, "0")
    if value not in ("", "0", "1"):
        raise ValueError(f"{SWITCH}: expected 0 or 1, got {value!r}")
    return value == "1"


def register() -> None:
    """Called by vLLM when it loads general plugins, once or more; patches once, if switched on."""
    if not enabled():
        return
    import importlib  # noqa: PLC0415 - vLLM is there when this is called

    patch(importlib.import_module(_MODULE))


def patch(module: Any) -> None:
    """Replace two names of vLLM's Marlin experts module. Raises RuntimeError if it is not as expected."""
    for name in ("fused_marlin_moe", "moe_align_block_size"):
        if not callable(getattr(module, name, None)):
            raise RuntimeError(  # noqa: TRY004 - it is the version that is wrong
                f"{_MODULE}: expected a function {name}, found none: another vLLM than 0.22.0?"
            )
    if getattr(module.fused_marlin_moe, "stable_construction", False):
        return
    module.fused_marlin_moe = _scoped(module.fused_marlin_moe)
    module.moe_align_block_size = _aligned(module.moe_align_block_size)


def _scoped(original: Callable[..., Any]) -> Callable[..., Any]:
    """Marks calls that are AWQ: unsigned 4-bit weights with zero points for both GEMMs."""

    @functools.wraps(original)
    def fused_marlin_moe(*args: Any, **kwargs: Any) -> Any:
        bound = _signature(original).bind(*args, **kwargs).arguments
        awq = (
            bound["quant_type_id"] == _uint4()
            and bound.get("w1_zeros") is not None
            and bound.get("w2_zeros") is not None
        )
        token = _inside_awq.set(awq)
        try:
            return original(*args, **kwargs)
        finally:
            _inside_awq.reset(token)

    fused_marlin_moe.stable_construction = True  # type: ignore[attr-defined]
    return fused_marlin_moe


def _aligned(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def moe_align_block_size(
        topk_ids: Any,
        block_size: int,
        num_experts: int,
        expert_map: Any = None,
        pad_sorted_ids: bool = False,  # noqa: FBT001, FBT002 - vLLM's signature
        ignore_invalid_experts: bool = False,  # noqa: FBT001, FBT002
    ) -> Any:
        if not _inside_awq.get() or pad_sorted_ids or (expert_map is not None and not ignore_invalid_experts):
            return original(
                topk_ids, block_size, num_experts, expert_map, pad_sorted_ids, ignore_invalid_experts
            )
        return stable_alignment(topk_ids, block_size, num_experts, expert_map)

    return moe_align_block_size


@functools.cache
def _signature(original: Callable[..., Any]) -> Any:
    import inspect  # noqa: PLC0415

    return inspect.signature(original)


@functools.cache
def _uint4() -> int:
    from vllm.scalar_type import scalar_types  # noqa: PLC0415

    return int(scalar_types.uint4.id)


def stable_alignment(
    topk_ids: Any, block_size: int, num_experts: int, expert_map: Any = None
) -> tuple[Any, Any, Any]:
    """sorted_token_ids, expert_ids and num_tokens_post_padded, int32, on the device of `topk_ids`.

    Args:
        topk_ids: Expert of every route, integers [tokens, top_k]; out of range is dropped.
        block_size: Slots per padded block.
        num_experts: Experts that ids count over.
        expert_map: Local id of every expert, -1 to drop its routes; None for none.
    """
    import torch  # noqa: PLC0415

    device, routes = topk_ids.device, topk_ids.numel()
    ids = topk_ids.reshape(-1).to(torch.int64)
    valid = (ids >= 0) & (ids < num_experts)
    if expert_map is not None:
        local = expert_map.to(torch.int64)[ids.clamp(0, num_experts - 1)]
        valid &= local >= 0
        ids = local
    key = torch.where(valid, ids, num_experts)  # dropped routes sort last
    order = torch.sort(key, stable=True).indices
    counts = torch.zeros(num_experts + 1, dtype=torch.int64, device=device)
    counts.scatter_add_(0, key, torch.ones_like(key))
    padded = (counts[:num_experts] + block_size - 1) // block_size * block_size
    ends = torch.cumsum(padded, 0)
    # of the expert in sorted order: its first route, and its first slot; the dropped ones share a slot behind
    first_route = torch.cumsum(counts, 0) - counts
    length = _buffer_length(routes, num_experts, block_size)
    first_slot = torch.cat([ends - padded, torch.full((1,), length, dtype=torch.int64, device=device)])
    sorted_key = key[order]
    rank = torch.arange(routes, device=device) - first_route[sorted_key]
    slot = torch.where(sorted_key < num_experts, first_slot[sorted_key] + rank, length)
    slots = torch.full((length + 1,), routes, dtype=torch.int32, device=device)
    slots.scatter_(0, slot, order.to(torch.int32))
    starts = torch.arange(-(-length // block_size), device=device) * block_size
    owner = torch.searchsorted(ends, starts, right=True)
    blocks = torch.where(starts < ends[-1], owner, -1).to(torch.int32)
    return slots[:length], blocks, ends[-1:].to(torch.int32)


def _buffer_length(routes: int, experts: int, block: int) -> int:
    """Length of sorted_token_ids as the build allocates it (marlin-moe 2.3)."""
    length = routes + experts * (block - 1)
    return min(routes * block, length) if routes < experts else length
