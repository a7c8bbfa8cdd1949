"""Route alignment: routes sorted by expert into padded blocks (marlin-moe 2.2 to 2.4).

Pure Python on purpose: whoever starts processes must not pay for numpy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from mechanism.kernel import versions
from mechanism.kernel.arrival import explicit
from mechanism.kernel.errors import AlignmentError
from mechanism.values import frozen

BLOCK_SIZES = (8, 16, 32, 48, 64)  # rows of a padded block that the kernel is compiled for


@frozen
class Alignment:
    """Who sits where: the active prefix of the alignment's three outputs.

    Attributes:
        block_size_m: Slots per padded block.
        routes: tokens * top_k; also the sentinel that marks a padding slot.
        sorted_token_ids: Route id or sentinel of every active slot, ``num_tokens_post_padded`` of them.
        expert_ids: Expert of every active block (local id if an expert map was applied).
        num_tokens_post_padded: Active slots, a multiple of ``block_size_m``.
        sorted_length: Length of the kernel's slot buffer (marlin-moe 2.3); the rest holds sentinels.
        expert_length: Length of the kernel's block buffer; the rest holds -1 (0 in vllm 0.11.0).
    """

    block_size_m: int
    routes: int
    sorted_token_ids: tuple[int, ...]
    expert_ids: tuple[int, ...]
    num_tokens_post_padded: int
    sorted_length: int
    expert_length: int


def block_size_m(tokens: int, top_k: int, experts: int) -> int:
    """Slots per padded block that the fused operator chooses, evaluated in doubles (marlin-moe 2.2)."""
    if min(tokens, top_k, experts) < 1:
        raise AlignmentError(
            f"tokens, top_k, experts: expected 1 or more each, got {tokens}, {top_k}, {experts}"
        )
    for size in BLOCK_SIZES:
        if tokens * top_k / experts / size < 0.9:
            return size
    return BLOCK_SIZES[-1]


def variant(routes: int, experts: int) -> str:
    """``small-batch``: no atomics, one order. ``large``: the order is decided by atomics (marlin-moe 2.4)."""
    return "small-batch" if routes < 1024 and experts <= 64 else "large"


def buffer_lengths(
    routes: int, experts: int, block: int, *, kernel: str = versions.DEFAULT
) -> tuple[int, int]:
    """Lengths of sorted_token_ids and expert_ids as allocated (marlin-moe 2.3)."""
    length = routes + experts * (block - 1)
    if routes < experts and not versions.version(kernel).keeps_invalid_tail:
        length = min(routes * block, length)
    return length, -(-length // block)


@frozen
class Comparison:
    """How alignment b differs from alignment a, in five numbers; 0 and True mean equal.

    Attributes:
        ids: Slots whose content differs; slots that only one side has count.
        expert_ids: Blocks whose expert differs, counted likewise.
        padded: Difference of the padded counts, b minus a.
        multiset_equal: Both hold the same routes, each as often.
        blocks: Padded blocks whose membership (expert or set of routes) differs.
    """

    ids: int
    expert_ids: int
    padded: int
    multiset_equal: bool
    blocks: int


def align(
    topk_ids: Sequence[Sequence[int]],
    *,
    experts: int,
    block_size_m: int,
    arrival: Sequence[int] | None = None,
    expert_map: Sequence[int] | None = None,
    kernel: str = versions.DEFAULT,
) -> Alignment:
    """The alignment that the kernel constructs, in the variant that the sizes select.

    Args:
        topk_ids: Expert of every (token, slot), shape (tokens, top_k).
        experts: Number of experts passed to the operator (global count).
        block_size_m: Slots per padded block.
        arrival: Order in which the routes' atomics are served: needed by the large variant, refused by
            the small-batch variant, which has none.
        expert_map: Local id of every expert, or -1 to drop its routes.
        kernel: Build, as in ``versions``.

    Raises:
        AlignmentError: Sizes or ids the kernel does not define, or an arrival order where none
            (or none where one) belongs.
    """
    served = _served_experts(topk_ids, experts=experts, expert_map=expert_map, kernel=kernel)
    routes = len(served)
    if variant(routes, experts) == "small-batch":
        if arrival is not None:
            raise AlignmentError(
                f"arrival order given, but {routes} routes to {experts} experts take the small-batch variant,"
                " which uses no atomics; leave it out, or use 1024 routes or more, or more than 64 experts"
            )
        workers = max(experts, 32)
        order: Sequence[int] = sorted(range(routes), key=lambda route: (route % workers, route // workers))
    elif arrival is None:
        raise AlignmentError(
            f"arrival order missing: {routes} routes to {experts} experts take the large variant,"
            " whose slot order is decided by atomics; give one"
        )
    else:
        order = explicit(routes, arrival)
    return _pack(served, order, experts=experts, block=block_size_m, kernel=kernel)


def stable(
    topk_ids: Sequence[Sequence[int]],
    *,
    experts: int,
    block_size_m: int,
    expert_map: Sequence[int] | None = None,
    kernel: str = versions.DEFAULT,
) -> Alignment:
    """The canonical alignment: valid routes by (expert, route id). Arguments as for ``align``."""
    served = _served_experts(topk_ids, experts=experts, expert_map=expert_map, kernel=kernel)
    return _pack(served, range(len(served)), experts=experts, block=block_size_m, kernel=kernel)


def exchange(alignment: Alignment, a: int, b: int) -> Alignment:
    """The same alignment with the slots of routes ``a`` and ``b`` exchanged.

    Raises:
        AlignmentError: A route has no slot, or the two have different experts.
    """
    block_a, block_b = block_of(alignment, a), block_of(alignment, b)
    expert_a, expert_b = alignment.expert_ids[block_a], alignment.expert_ids[block_b]
    if expert_a != expert_b:
        raise AlignmentError(
            f"exchange of routes {a} and {b}: expected one expert, got {expert_a} and {expert_b}"
        )
    other = {a: b, b: a}
    slots = tuple(other.get(slot, slot) for slot in alignment.sorted_token_ids)
    return replace(alignment, sorted_token_ids=slots)


def block_of(alignment: Alignment, route: int) -> int:
    """Padded block whose slots hold ``route``.

    Raises:
        AlignmentError: No slot holds it: out of range, or dropped.
    """
    if not 0 <= route < alignment.routes:
        raise AlignmentError(f"route {route}: expected 0..{alignment.routes - 1}")
    if route not in alignment.sorted_token_ids:
        raise AlignmentError(f"route {route}: no slot holds it; it was dropped")
    return alignment.sorted_token_ids.index(route) // alignment.block_size_m


def membership(alignment: Alignment) -> tuple[tuple[int, frozenset[int]], ...]:
    """Per padded block, its expert and the set of its valid routes; order inside does not count."""
    return tuple(
        (expert, frozenset(block_routes(alignment, block)))
        for block, expert in enumerate(alignment.expert_ids)
    )


def block_routes(alignment: Alignment, block: int) -> tuple[int, ...]:
    """Valid routes of one padded block, in slot order."""
    size = alignment.block_size_m
    slots = alignment.sorted_token_ids[block * size : (block + 1) * size]
    return tuple(slot for slot in slots if slot < alignment.routes)


def compare(a: Alignment, b: Alignment) -> Comparison:
    """The five numbers that tell two alignments apart."""
    return Comparison(
        ids=_differing(a.sorted_token_ids, b.sorted_token_ids),
        expert_ids=_differing(a.expert_ids, b.expert_ids),
        padded=b.num_tokens_post_padded - a.num_tokens_post_padded,
        multiset_equal=_held(a) == _held(b),
        blocks=_differing(membership(a), membership(b)),
    )


def faults(
    alignment: Alignment,
    topk_ids: Sequence[Sequence[int]],
    *,
    experts: int,
    expert_map: Sequence[int] | None = None,
    kernel: str = versions.DEFAULT,
) -> tuple[str, ...]:
    """Everything that keeps ``alignment`` from being a legal outcome for this routing.

    Empty means legal: its counts, its blocks, its sentinels and the set of routes of every expert are
    those that any order of the atomics gives. Arguments as for ``alignment.align``.
    """
    want = stable(
        topk_ids, experts=experts, block_size_m=alignment.block_size_m, expert_map=expert_map, kernel=kernel
    )
    found = list(_count_faults(alignment, want, experts=experts, kernel=kernel))
    if found:
        return tuple(found)  # slots cannot be read against blocks of another count
    found += _slot_faults(alignment)
    wanted_expert = {route: expert for expert, held in membership(want) for route in held}
    for block, (expert, held) in enumerate(membership(alignment)):
        for route in sorted(held):
            right = wanted_expert.get(route)
            if right != expert:
                belongs = "is dropped" if right is None else f"belongs to expert {right}"
                found.append(
                    f"block {block}: expected routes of expert {expert}, got {route}, which {belongs}"
                )
    counts = _held(alignment)
    for route in sorted(wanted_expert):
        if counts[route] != 1:
            found.append(f"route {route}: expected in one slot, got {counts[route]}")
    return tuple(found)


def _served_experts(
    topk_ids: Sequence[Sequence[int]], *, experts: int, expert_map: Sequence[int] | None, kernel: str
) -> tuple[int, ...]:
    """Expert of every route after the map; -1 for a dropped route."""
    if len({len(row) for row in topk_ids}) > 1:
        raise AlignmentError("topk_ids: expected rows of one length")
    if -(-experts // 32) * 32 >= 1024 or experts < 1:
        raise AlignmentError(f"experts: expected 1..992, got {experts}")
    if expert_map is not None and len(expert_map) != experts:
        raise AlignmentError(
            f"expert_map: expected one entry for each of {experts} experts, got {len(expert_map)}"
        )
    flat = [expert for row in topk_ids for expert in row]
    small = variant(len(flat), experts) == "small-batch"
    served = []
    for route, expert in enumerate(flat):
        if expert < 0 and not versions.version(kernel).drops_negative_ids:
            raise AlignmentError(f"route {route}: expert {expert} is out of bounds memory in {kernel}")
        if expert >= experts and small:
            raise AlignmentError(
                f"route {route}: expert {expert} of {experts} is out of bounds memory in the small-batch"
                " variant; only the large variant drops it"
            )
        valid = 0 <= expert < experts
        served.append((expert if expert_map is None else expert_map[expert]) if valid else -1)
    return tuple(served)


def _pack(served: Sequence[int], order: Sequence[int], *, experts: int, block: int, kernel: str) -> Alignment:
    if block not in BLOCK_SIZES:
        raise AlignmentError(f"block_size_m: expected one of {BLOCK_SIZES}, got {block}")
    routes = len(served)
    by_expert: dict[int, list[int]] = {}
    for route in order:
        if served[route] >= 0:
            by_expert.setdefault(served[route], []).append(route)
    slots: list[int] = []
    blocks: list[int] = []
    for expert in sorted(by_expert):
        held = by_expert[expert]
        padded = -(-len(held) // block) * block
        slots += held + [routes] * (padded - len(held))
        blocks += [expert] * (padded // block)
    sorted_length, expert_length = buffer_lengths(routes, experts, block, kernel=kernel)
    return Alignment(
        block_size_m=block,
        routes=routes,
        sorted_token_ids=tuple(slots),
        expert_ids=tuple(blocks),
        num_tokens_post_padded=len(slots),
        sorted_length=sorted_length,
        expert_length=expert_length,
    )


def _count_faults(alignment: Alignment, want: Alignment, *, experts: int, kernel: str) -> tuple[str, ...]:
    lengths = buffer_lengths(want.routes, experts, want.block_size_m, kernel=kernel)
    pairs = (
        ("routes", want.routes, alignment.routes),
        ("num_tokens_post_padded", want.num_tokens_post_padded, alignment.num_tokens_post_padded),
        ("sorted_token_ids: active slots", want.num_tokens_post_padded, len(alignment.sorted_token_ids)),
        ("expert_ids", want.expert_ids, alignment.expert_ids),
        ("sorted_length", lengths[0], alignment.sorted_length),
        ("expert_length", lengths[1], alignment.expert_length),
    )
    return tuple(f"{name}: expected {wanted}, got {got}" for name, wanted, got in pairs if wanted != got)


def _slot_faults(alignment: Alignment) -> list[str]:
    """Slots out of range, sentinels before routes, a block left before it was full."""
    found = []
    size, sentinel = alignment.block_size_m, alignment.routes
    for block, expert in enumerate(alignment.expert_ids):
        slots = alignment.sorted_token_ids[block * size : (block + 1) * size]
        found += [
            f"block {block}: expected slots 0..{sentinel}, got {slot}"
            for slot in slots
            if not 0 <= slot <= sentinel
        ]
        valid = sum(slot != sentinel for slot in slots)
        if sentinel in slots[:valid]:
            found.append(f"block {block}: expected sentinels as a suffix, got one before a route")
        last = block + 1 == len(alignment.expert_ids) or alignment.expert_ids[block + 1] != expert
        if valid < size and not last:
            found.append(
                f"block {block}: expected {size} routes before another block of its expert, got {valid}"
            )
    return found


def _held(alignment: Alignment) -> Counter[int]:
    return Counter(slot for slot in alignment.sorted_token_ids if slot != alignment.routes)


def _differing(a: Sequence[object], b: Sequence[object]) -> int:
    common = sum(left != right for left, right in zip(a, b, strict=False))
    return common + abs(len(a) - len(b))
