"""Route alignment: construction, exchange, membership and legality (marlin-moe 2.3, 2.4).

The value is the ledger's own AlignmentFile: the active prefix, whose canonical bytes are its identity.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from ledger.record import AlignmentFile

#: Per padded block, its expert and the set of its valid routes; order inside a block does not count.
Membership = tuple[tuple[int, frozenset[int]], ...]

SMALL_ROUTES, SMALL_EXPERTS = 1024, 64


def is_small_batch(routes: int, experts: int) -> bool:
    """Whether the kernel uses no atomics, so that one order is the only one (marlin-moe 2.4, S4)."""
    return routes < SMALL_ROUTES and experts <= SMALL_EXPERTS


def construct(ids: Sequence[int], *, experts: int, block: int, arrival: Sequence[int]) -> AlignmentFile:
    """The alignment that the kernel builds when the atomics are served in the order of `arrival`.

    `ids`: the expert of every route. The small-batch variant has an order of its own and ignores `arrival`.
    """
    if is_small_batch(len(ids), experts):
        workers = max(experts, 32)
        arrival = sorted(range(len(ids)), key=lambda route: (route % workers, route // workers))
    return _pack(ids, arrival, block=block)


def stable(ids: Sequence[int], *, block: int) -> AlignmentFile:
    """The routes of every expert ascending."""
    return _pack(ids, range(len(ids)), block=block)


def exchange(alignment: AlignmentFile, a: int, b: int) -> AlignmentFile:
    """The same alignment with the slots of routes `a` and `b` exchanged."""
    other = {a: b, b: a}
    slots = tuple(other.get(slot, slot) for slot in alignment.sorted_token_ids)
    return alignment.model_copy(update={"sorted_token_ids": slots})


def blocks_of(alignment: AlignmentFile, route: int) -> tuple[int, ...]:
    """The padded blocks whose slots hold `route`; one, if the alignment is legal and has the route."""
    size = alignment.block_size_m
    return tuple(place // size for place, slot in enumerate(alignment.sorted_token_ids) if slot == route)


def membership(alignment: AlignmentFile) -> Membership:
    """Who sits in which block."""
    size, slots = alignment.block_size_m, alignment.sorted_token_ids
    return tuple(
        (expert, frozenset(slots[block * size : (block + 1) * size]) - {alignment.routes})
        for block, expert in enumerate(alignment.expert_ids)
    )


def illegalities(alignment: AlignmentFile, ids: Sequence[int], *, block: int) -> Iterator[str]:
    """What keeps an alignment from being an outcome of this routing under any order of the atomics.

    Steps: 1 counts and blocks, 2 sentinels, 3 every route in one slot, 4 in a block of its expert.
    """
    want = stable(ids, block=block)
    for name in ("block_size_m", "routes", "num_tokens_post_padded", "expert_ids"):
        if (wanted := getattr(want, name)) != (got := getattr(alignment, name)):
            yield f"{name}: expected {wanted}, got {got}"
    if len(alignment.sorted_token_ids) != want.num_tokens_post_padded:
        yield (
            f"sorted_token_ids: expected {want.num_tokens_post_padded} active slots,"
            f" got {len(alignment.sorted_token_ids)}"
        )
    if alignment.expert_ids != want.expert_ids or len(alignment.sorted_token_ids) != len(
        want.sorted_token_ids
    ):
        return  # slots cannot be read against blocks of another count
    yield from _slot_faults(alignment, want, ids)


def _slot_faults(alignment: AlignmentFile, want: AlignmentFile, ids: Sequence[int]) -> Iterator[str]:
    """Steps 2 to 4: with the legal layout beside it, a slot is a sentinel exactly where that has one."""
    sentinel, size = want.routes, want.block_size_m
    held = Counter(alignment.sorted_token_ids)
    for place, (slot, wanted) in enumerate(
        zip(alignment.sorted_token_ids, want.sorted_token_ids, strict=True)
    ):
        if (slot == sentinel) != (wanted == sentinel):
            yield f"slot {place}: expected {'the sentinel' if wanted == sentinel else 'a route'}, got {slot}"
        elif slot > sentinel:
            yield f"slot {place}: expected routes 0..{sentinel - 1}, got {slot}"
        elif slot != sentinel and ids[slot] != want.expert_ids[place // size]:
            yield (
                f"block {place // size}: expected routes of expert {want.expert_ids[place // size]},"
                f" got {slot}, which belongs to expert {ids[slot]}"
            )
    for route in range(sentinel):
        if held[route] != 1:
            yield f"route {route}: expected in one slot, got {held[route]}"


def _pack(ids: Sequence[int], order: Sequence[int], *, block: int) -> AlignmentFile:
    by_expert: dict[int, list[int]] = {}
    for route in order:
        by_expert.setdefault(ids[route], []).append(route)
    slots: list[int] = []
    experts: list[int] = []
    for expert in sorted(by_expert):
        held = by_expert[expert]
        count = -(-len(held) // block)
        slots += held + [len(ids)] * (count * block - len(held))
        experts += [expert] * count
    return AlignmentFile(
        schema_version=1,
        block_size_m=block,
        routes=len(ids),
        sorted_token_ids=tuple(slots),
        expert_ids=tuple(experts),
        num_tokens_post_padded=len(slots),
    )
