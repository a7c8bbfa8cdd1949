"""Which alignment a cell is to receive, as bytes."""

from collections.abc import Sequence

import pytest

from ledger.canonical import canonical, parse_canonical
from ledger.lock import LockedCell
from ledger.plan import Swap
from ledger.record import RoutingFile
from mechanism.campaign.injection import from_bytes, injected, to_bytes
from mechanism.errors import CampaignError
from mechanism.kernel import alignment
from mechanism.kernel.alignment import Alignment, align, exchange, stable
from mechanism.kernel.errors import AlignmentError

EXPERTS, BLOCK, KERNEL = 72, 8, "vllm==0.22.0"
#: 6 tokens, 2 slots: expert 5 has nine routes, hence two padded blocks.
IDS = ((5, 1), (5, 2), (5, 5), (5, 5), (5, 3), (5, 5))
ROUTING = RoutingFile(
    schema_version=1,
    tokens=6,
    top_k=2,
    experts=EXPERTS,
    topk_ids=IDS,
    topk_weights_bits=((0, 0),) * 6,
)


def native(order: Sequence[int]) -> Alignment:
    return align(IDS, experts=EXPERTS, block_size_m=BLOCK, arrival=order)


H0 = native((0, 1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 7))
H1 = native((1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 0))


def cell(kind: str, donor: str | None, swap: Swap | None = None) -> LockedCell:
    return LockedCell.model_validate(
        {
            "phase": "p",
            "cell": "c",
            "history": "H0",
            "replicate": 1,
            "alignment": kind,
            "donor": donor,
            "swap": swap,
            "grids": (24, 24),
        }
    )


def receive(asked: LockedCell, donor: Alignment | None) -> Alignment:
    data = injected(
        asked,
        donor=None if donor is None else to_bytes(donor),
        routing=ROUTING,
        block_size_m=BLOCK,
        kernel=KERNEL,
    )
    assert canonical(parse_canonical(data)) == data
    return from_bytes(data, experts=EXPERTS, kernel=KERNEL)


@pytest.mark.parametrize("value", [H0, H1, stable(IDS, experts=EXPERTS, block_size_m=BLOCK)])
def test_bytes_give_the_alignment_back(value: Alignment) -> None:
    assert from_bytes(to_bytes(value), experts=EXPERTS, kernel=KERNEL) == value


def test_own_and_opposite_are_the_donors_bytes() -> None:
    assert receive(cell("own", "H0"), H0) == H0
    assert receive(cell("opposite", "H1"), H1) == H1


def test_stable_needs_no_donor() -> None:
    assert receive(cell("stable", None), None) == stable(IDS, experts=EXPERTS, block_size_m=BLOCK)


def test_swap_exchanges_two_routes_and_nothing_else() -> None:
    swap = Swap(kind="block-boundary", routes=(0, 7))
    got = receive(cell("own", "H0", swap), H0)
    assert got == exchange(H0, 0, 7)
    assert alignment.compare(H0, got).ids == 2


def test_swap_of_routes_of_two_experts_is_refused() -> None:
    with pytest.raises(AlignmentError, match="exchange of routes 0 and 1: expected one expert, got 5 and 1"):
        receive(cell("own", "H0", Swap(kind="within-block", routes=(0, 1))), H0)


@pytest.mark.parametrize(("kind", "named", "given"), [("own", "H0", None), ("stable", None, H0)])
def test_donor_where_it_belongs(kind: str, named: str | None, given: Alignment | None) -> None:
    with pytest.raises(CampaignError, match="c under H0: expected an injected alignment with its donor"):
        receive(cell(kind, named), given)


def test_constructed_cells_inject_nothing() -> None:
    with pytest.raises(CampaignError, match="got constructed with donor None"):
        receive(cell("constructed", None), None)


def test_donor_of_another_routing_is_refused() -> None:
    other = align(tuple((1, 2) for _ in range(6)), experts=EXPERTS, block_size_m=BLOCK, arrival=range(12))
    with pytest.raises(CampaignError, match="c under H0: not an alignment of the routing: "):
        receive(cell("own", "H0"), other)
