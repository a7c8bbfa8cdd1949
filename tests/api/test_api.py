"""The notebook functions: their examples run, they agree with the kernel rooms, and change nothing given."""

import doctest
import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mechanism
from mechanism import api
from mechanism.api_results import Aligned, AlignmentDifference, BitDifference, RunDifference, Simulated
from mechanism.fixture import recipe
from mechanism.fixture.routing import topk_ids, topk_weights
from mechanism.kernel import alignment as aligning
from mechanism.kernel.devices import Device
from mechanism.kernel.errors import AlignmentError, ConfigurationError, KernelError, ShapeError
from mechanism.plan import geometry
from mechanism.plan.document import load_plan

QUICK = Path(__file__).parents[2] / "plans" / "quick.yaml"
TOY = Device(name="toy-8sm", arch="sm_86", sms=8, shared_memory=101_376)


def test_examples_of_the_docstrings() -> None:
    done = doctest.testmod(api)
    assert done.attempted >= 15
    assert done.failed == 0


def test_every_function_says_what_it_takes_and_gives() -> None:
    assert mechanism.__all__ == ["align", "compare", "membership", "schedule", "simulate"]
    for name in mechanism.__all__:
        function = getattr(mechanism, name)
        assert function is getattr(api, name)
        assert "Args:" in (function.__doc__ or "") or name == "membership"
        signature = inspect.signature(function)
        assert signature.return_annotation
        assert all(parameter.annotation for parameter in signature.parameters.values())
    assert set(mechanism.__all__) <= set(dir(mechanism))


def test_importing_mechanism_loads_no_numpy() -> None:
    code = "import sys, mechanism; assert 'numpy' not in sys.modules; mechanism.align; assert 'numpy' in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_names_it_has_not() -> None:
    with pytest.raises(AttributeError, match=r"^module 'mechanism' has no attribute 'aline'$"):
        mechanism.aline  # noqa: B018


@given(seed=st.integers(0, 2**32 - 1), tokens=st.integers(1, 40), top_k=st.integers(1, 4))
def test_align_and_membership_agree_with_the_kernel_rooms(seed: int, tokens: int, top_k: int) -> None:
    chance = np.random.default_rng(seed)
    rows = [chance.permutation(70)[:top_k].tolist() for _ in range(tokens)]
    order = chance.permutation(tokens * top_k).tolist()
    found = mechanism.align(np.array(rows), experts=70, block_size_m=8, arrival=order)
    want = aligning.align(rows, experts=70, block_size_m=8, arrival=order)
    assert tuple(found.sorted_token_ids.tolist()) == want.sorted_token_ids
    assert found.kernel_alignment == want
    blocks = mechanism.membership(found)
    for route in range(tokens * top_k):
        assert blocks[route] == aligning.block_of(want, route)
    native = mechanism.align(np.array(rows), experts=70, block_size_m=8)
    assert native.kernel_alignment == aligning.stable(rows, experts=70, block_size_m=8)
    difference = mechanism.compare(native, found)
    assert isinstance(difference, AlignmentDifference)
    assert difference.same_routes
    assert difference.blocks == aligning.compare(native.kernel_alignment, want).blocks
    assert set(difference.moved.tolist()) == {
        route for route in range(tokens * top_k) if blocks[route] != mechanism.membership(native)[route]
    }


def test_alignments_differ_in_five_numbers() -> None:
    """Case S6, and its kin: ids, experts of blocks, padded count, the routes themselves, memberships."""
    ids = np.stack([np.full(9, 70), np.arange(9)], axis=1)
    first = mechanism.align(ids, experts=72)

    def told(rows: Any, **more: Any) -> tuple[tuple[int, ...], bool, str]:
        found = mechanism.compare(first, mechanism.align(rows, experts=72, **more))
        assert isinstance(found, AlignmentDifference)
        numbers = (found.slots, found.experts, found.padded, found.same_routes, found.blocks)
        return numbers, bool(found), repr(found)

    assert told(ids) == ((0, 0, 0, True, 0), False, "AlignmentDifference(none)")
    late = [route for route in range(18) if route != 4] + [4]
    assert told(ids, arrival=late) == (
        (7, 0, 0, True, 2),
        True,
        "AlignmentDifference(7 slots, membership of 2 padded blocks; moved routes: 4, 16)",
    )
    others = ids.copy()
    others[:, 0] = 69  # the same routes in the same slots, of another expert
    assert told(others) == (
        (0, 2, 0, True, 2),
        True,
        "AlignmentDifference(0 slots, membership of 2 padded blocks, experts of 2; moved routes: none)",
    )
    fewer = ids.copy()
    fewer[8, 0] = 8  # expert 70 fills one block, expert 8 has two routes in its own
    assert told(fewer)[0][2:] == (-8, True, 2)
    assert told(fewer)[2].endswith(", experts of 1, -8 padded slots; moved routes: 16)")


def test_small_batches_take_no_arrival() -> None:
    found = mechanism.align([[0], [0], [0], [0]], experts=1, block_size_m=16)
    assert found.variant == "small-batch"
    assert found.sorted_token_ids.tolist() == [0, 1, 2, 3] + [4] * 12
    assert repr(found) == "Aligned(4 routes in 1 padded blocks of 16)"


@pytest.fixture(scope="module")
def layer() -> dict[str, Any]:
    fixture = load_plan(QUICK).plan.fixture
    assert fixture.recipe == "packed-awq/1"
    packed = {}
    for gemm in ("w13", "w2"):
        made = [recipe.projection(fixture, gemm, expert) for expert in range(fixture.experts)]
        packed[gemm] = tuple(
            np.stack([getattr(one, part) for one in made]) for part in ("qweight", "qzeros", "scales")
        )
    return {
        "hidden": recipe.hidden_states(fixture),
        **packed,
        "topk_ids": topk_ids(fixture),
        "topk_weights": topk_weights(fixture),
    }


def orders() -> tuple[tuple[int, ...], tuple[int, ...]]:
    plan = load_plan(QUICK).plan
    first, second = (
        geometry.arrival_order(history.arrival, plan.fixture.routes) for history in plan.histories.values()
    )
    return first, second


def test_the_quick_plan_in_a_notebook(layer: dict[str, Any]) -> None:
    """Two histories: routes 20 and 37 change sides, and with them the bits of all four surfaces; not at 12 CTAs."""
    before = {
        name: [array.copy() for array in np.atleast_1d(value)]
        for name, value in layer.items()
        if name == "hidden"
    }
    a, b = (mechanism.align(layer["topk_ids"], experts=72, arrival=order) for order in orders())
    assert repr(mechanism.compare(a, b)) == (
        "AlignmentDifference(4 slots, membership of 2 padded blocks; moved routes: 20, 37)"
    )
    first, second = (mechanism.simulate(**layer, device=TOY, aligned=aligned) for aligned in (a, b))
    assert repr(first) == (
        "Simulated(w13 (48, 384), activation (48, 192), w2 (48, 512), output (12, 512); rests on U2, U3, U10)"
    )
    assert repr(first.schedules[0]) == (
        "Scheduled(tile 64 x 128 on 24 CTAs: 24 direct tiles, 12 split, the first in padded block 8)"
    )
    found = mechanism.compare(first, second)
    assert isinstance(found, RunDifference)
    assert repr(found) == "RunDifference(differing elements: w13 90, activation 66, w2 245, output 102)"
    assert set(found.w13.indices[:, 0].tolist()) == {20, 37}
    forced = [mechanism.simulate(**layer, device=TOY, aligned=aligned, grid=12) for aligned in (a, b)]
    assert (
        repr(mechanism.compare(*forced))
        == "RunDifference(differing elements: w13 0, activation 0, w2 0, output 0)"
    )
    assert all((kept == array).all() for kept, array in zip(before["hidden"], layer["hidden"], strict=True))


def test_a_known_defect_is_reported(layer: dict[str, Any]) -> None:
    """Case S9: one group of 128 in w2, whose scales are read in another permutation than they are stored in."""
    assert not mechanism.simulate(**layer, device=TOY).scale_defect
    draw = np.random.default_rng(9)

    def weights(k: int, n: int) -> tuple[Any, Any, Any]:
        shapes = (4, k, n // 8), (4, k // 128, n // 8)
        codes, zeros = (
            draw.integers(-(2**31), 2**31, shape, dtype=np.int64).astype(np.int32) for shape in shapes
        )
        return codes, zeros, (draw.uniform(0.01, 0.05, (4, k // 128, n)).astype(np.float16))

    hidden = draw.standard_normal((3, 512)).astype(np.float16)
    routing = (np.array([[0, 1], [1, 2], [3, 0]]), np.full((3, 2), 0.5, dtype=np.float32))
    found = mechanism.simulate(hidden, weights(512, 256), weights(128, 512), *routing, device="rtx-3090")
    assert found.scale_defect
    assert repr(found).endswith("; columns have each other's scales, a known defect of the build)")


def test_default_alignment_is_the_stable_one(layer: dict[str, Any]) -> None:
    run = mechanism.simulate(**layer, device=TOY)
    assert isinstance(run, Simulated)
    assert run.aligned.kernel_alignment == mechanism.align(layer["topk_ids"], experts=72).kernel_alignment


def test_results_cannot_be_written(layer: dict[str, Any]) -> None:
    aligned = mechanism.align(layer["topk_ids"], experts=72)
    for array in (aligned.sorted_token_ids, aligned.expert_ids, mechanism.membership(aligned)):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_schedule_by_device_is_the_host_codes_choice() -> None:
    ids = np.arange(96).reshape(12, 8)
    aligned = mechanism.align(ids, experts=128)
    found = mechanism.schedule(aligned, n=1536, k=2048, group=128, device="rtx-3090")
    assert (found.tile, found.grid, found.slices.shape) == ((64, 128), 246, (96, 12))
    assert found.kernel_schedule.slices(0, 0)[0].end == 32


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (
            lambda: mechanism.align(np.zeros(4), experts=4),
            "topk_ids: expected integers (tokens, top_k), got float64 (4,)",
        ),
        (
            lambda: mechanism.compare(np.zeros(2), [0, 0]),
            "compare: expected two alignments, two arrays or two simulated passes, got ndarray and list",
        ),
        (lambda: mechanism.compare(np.zeros(2), np.zeros(3)), "expected float64 (3,), got float64 (2,)"),
    ],
)
def test_shapes_that_do_not_fit(call: Any, says: str) -> None:
    with pytest.raises(ShapeError) as raised:
        call()
    assert str(raised.value) == says


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (
            lambda: mechanism.schedule(50, n=1536, k=2048, group=128, device="rtx-3090"),
            "expected tile and grid, or a device and an alignment, got neither pair whole",
        ),
        (
            lambda: mechanism.schedule(
                mechanism.align([[0]], experts=70), n=1536, k=2048, group=128, device="rtx-3070"
            ),
            "device: expected one of a100, a10, a40, rtx-3090, rtx-a6000, l4, l40s, rtx-4090, h100, h100-pcie, h200,"
            " b200, rtx-5090, or a Device, got rtx-3070",
        ),
    ],
)
def test_launches_that_are_not_known(call: Any, says: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        call()
    assert str(raised.value) == says


IDS = np.stack([np.full(9, 70), np.arange(9)], axis=1)
TILES = "(64, 128), (64, 256), (128, 64), (128, 128)"
COUNTED: dict[str, Any] = {"n": 1536, "k": 2048, "group": 128, "tile": (64, 128), "grid": 246}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"experts": 0}, "experts: expected an integer of 1 or more, got 0"),
        ({"experts": 72.0}, "experts: expected an integer of 1 or more, got 72.0"),
        ({"experts": True}, "experts: expected an integer of 1 or more, got True"),
        ({"block_size_m": 0}, "block_size_m: expected one of (8, 16, 32, 48, 64), got 0"),
        ({"block_size_m": -8}, "block_size_m: expected one of (8, 16, 32, 48, 64), got -8"),
        ({"block_size_m": 8.0}, "block_size_m: expected one of (8, 16, 32, 48, 64), got 8.0"),
        ({"arrival": [0, 1]}, "arrival: expected integers (18,), got int64 (2,)"),
        ({"arrival": 3}, "arrival: expected integers (18,), got int64 ()"),
        ({"arrival": np.arange(18.0)}, "arrival: expected integers (18,), got float64 (18,)"),
        (
            {"topk_ids": [[1], [1, 2]]},
            "topk_ids: expected integers (tokens, top_k), got rows of unequal lengths",
        ),
        (
            {"topk_ids": np.zeros((0, 2), int)},
            "topk_ids: expected integers (tokens, top_k), got int64 (0, 2)",
        ),
        (
            {"kernel": "vllm==1"},
            "kernel 'vllm==1': its arithmetic is not known; pin one of vllm==0.11.0, vllm==0.22.0, vllm==0.29.0",
        ),
    ],
)
def test_alignments_that_cannot_be_asked_for(options: dict[str, Any], says: str) -> None:
    with pytest.raises(KernelError) as raised:
        mechanism.align(**{"topk_ids": IDS, "experts": 72, **options})
    assert str(raised.value) == says


@pytest.mark.parametrize(
    ("options", "says"),
    [
        *(
            (
                {"group": group},
                f"group: expected one of (-1, 32, 64, 128), got {group}; no kernel was compiled for another",
            )
            for group in (96, 0, -2, 2048, 128.0)
        ),
        ({"n": 0}, "n: expected an integer of 1 or more, got 0"),
        ({"k": -2048}, "k: expected an integer of 1 or more, got -2048"),
        ({"n": 1536.0}, "n: expected an integer of 1 or more, got 1536.0"),
        (
            {"n": 1600},
            "tile_n must divide N: N=1600 leaves 64 over tile_n=128; use another",
        ),
        ({"padded_blocks": -1}, "padded_blocks: expected an integer of 0 or more, got -1"),
        ({"padded_blocks": "50"}, "padded_blocks: expected an integer of 0 or more, got '50'"),
        ({"grid": 0}, "grid: expected an integer in 1..2147483647, got 0"),
        ({"grid": 1.5}, "grid: expected an integer in 1..2147483647, got 1.5"),
        ({"tile": (32, 32)}, f"tile: expected (tile_k, tile_n), one of {TILES}, got (32, 32)"),
        ({"tile": (64,)}, f"tile: expected (tile_k, tile_n), one of {TILES}, got (64,)"),
        ({"tile": 64}, f"tile: expected (tile_k, tile_n), one of {TILES}, got 64"),
    ],
)
def test_schedules_that_cannot_be_asked_for(options: dict[str, Any], says: str) -> None:
    with pytest.raises(KernelError) as raised:
        mechanism.schedule(**{"padded_blocks": 50, **COUNTED, **options})
    assert str(raised.value) == says


@pytest.mark.parametrize("device", ["foo", 3, None, ["a100"]])
def test_a_device_is_known_also_where_it_is_not_needed(device: Any) -> None:
    told = "device: expected one of a100, a10, a40, rtx-3090, rtx-a6000, l4, l40s, rtx-4090, h100, h100-pcie, h200, b200,"
    if device is None:
        assert mechanism.schedule(50, **COUNTED, device=None).grid == 246
        return
    with pytest.raises(ConfigurationError) as raised:
        mechanism.schedule(50, **COUNTED, device=device)
    assert str(raised.value) == f"{told} rtx-5090, or a Device, got {device}"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            lambda d: {"hidden": d["hidden"].astype(np.float32)},
            "hidden: expected float16 (12, 512), got float32 (12, 512)",
        ),
        (lambda d: {"hidden": d["hidden"][0]}, "hidden: expected float16 (12, 512), got float16 (512,)"),
        (lambda d: {"hidden": d["hidden"].tolist()}, "hidden: expected float16 (12, 512), got list"),
        (
            lambda d: {"topk_weights": d["topk_weights"].astype(np.float64)},
            "topk_weights: expected float32 (12, 4), got float64 (12, 4)",
        ),
        (
            lambda d: {"topk_weights": d["topk_weights"].ravel()},
            "topk_weights: expected float32 (12, 4), got float32 (48,)",
        ),
        (lambda d: {"w13": d["w13"][:2]}, "w13: expected (qweight, qzeros, scales), got 2 parts"),
        (lambda _: {"w2": None}, "w2: expected (qweight, qzeros, scales), got NoneType"),
        (
            lambda d: {"w13": (d["w13"][0].tolist(), *d["w13"][1:])},
            "w13 qweight: expected a numpy array, got list",
        ),
        (
            lambda d: {"w13": (d["w13"][0].view(np.uint32), *d["w13"][1:])},
            "w13 qweight: expected int32 (E, K, N/8), got uint32 (72, 512, 48)",
        ),
        (
            lambda d: {"w13": d["w2"], "w2": d["w13"]},
            "w13 and w2: expected (E, H, 2 I) and (E, I, H), got (72, 192, 512) and (72, 512, 384)",
        ),
        (lambda _: {"grid": -3}, "grid: expected an integer in 1..2147483647, got -3"),
        (lambda _: {"aligned": "x"}, "aligned: expected what mechanism.align gives, got str"),
        (
            lambda d: {"aligned": mechanism.align(d["topk_ids"][:6], experts=72)},
            "aligned: not an alignment of topk_ids: routes: expected 48, got 24",
        ),
    ],
)
def test_layers_that_cannot_be_simulated(layer: dict[str, Any], change: Any, says: str) -> None:
    with pytest.raises(KernelError) as raised:
        mechanism.simulate(**{**layer, "device": TOY, **change(layer)})
    assert str(raised.value).startswith(says)
    assert str(raised.value) == says or "; " in str(raised.value)


def test_an_alignment_of_another_routing_is_not_used(layer: dict[str, Any]) -> None:
    """Same sizes, other experts: its bits would be those of no routing at all."""
    other = mechanism.align((layer["topk_ids"] + 1) % 72, experts=72)
    with pytest.raises(AlignmentError, match=r"^aligned: not an alignment of topk_ids: "):
        mechanism.simulate(**layer, device=TOY, aligned=other)


@pytest.mark.parametrize("dtype", ["complex128", "object", "U1"])
def test_arrays_without_plain_bits_are_not_compared(dtype: str) -> None:
    array = np.zeros(1, dtype=dtype)
    with pytest.raises(ShapeError) as raised:
        mechanism.compare(array, array)
    got = np.dtype(dtype)
    assert str(raised.value) == f"compare: expected arrays of integers, booleans or floats, got {got}"


def test_arrays_without_dimensions_are_compared() -> None:
    assert repr(mechanism.compare(np.array(1.0, np.float16), np.array(2.0, np.float16))) == (
        "BitDifference(1 of 1 elements, the first at (): 0x3C00 against 0x4000)"
    )


def test_membership_is_of_an_alignment() -> None:
    with pytest.raises(ShapeError) as raised:
        mechanism.membership([1, 2])  # type: ignore[arg-type]
    assert str(raised.value) == "aligned: expected what mechanism.align gives, got list"


def test_equal_means_equal_bits() -> None:
    """Cases Q1 and Q2: -0.0 is not 0.0; a NaN equals itself and no other NaN."""
    left = np.array([0x8000, 0x7E00, 0x7E00], dtype=np.uint16).view(np.float16)
    right = np.array([0x0000, 0x7E00, 0x7FFF], dtype=np.uint16).view(np.float16)
    found = mechanism.compare(left, right)
    assert isinstance(found, BitDifference)
    assert found.indices.reshape(-1).tolist() == [0, 2]
    assert bool(found)
    assert repr(mechanism.compare(left, left)) == "BitDifference(none of 3 elements)"


def test_kinds_of_results() -> None:
    assert isinstance(mechanism.align([[0]], experts=70), Aligned)
