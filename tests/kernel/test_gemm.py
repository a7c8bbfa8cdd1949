"""The grouped GEMM against the plain reading, and its laws (marlin-moe 6, 7)."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mechanism.kernel import alignment as al
from mechanism.kernel import plain, sums
from mechanism.kernel.atomic import Sampled, orders, outcomes
from mechanism.kernel.errors import KernelError, ShapeError
from mechanism.kernel.gemm import Gemm, marlin_gemm
from mechanism.kernel.rounding import bits16, differing_bits, narrow
from mechanism.kernel.schedule import Schedule
from mechanism.kernel.sums import schedule_of
from tests.kernel.kernel_setup import SHAPED, Problem, few, launch, pack, problem


def run(given: Problem, tile: tuple[int, int, int] = (64, 128, 5), **options: Any) -> Gemm:
    """The problem's first GEMM on a forced launch."""
    return marlin_gemm(
        given.a,
        given.weights,
        options.pop("alignment", given.alignment),
        launch(*tile),
        top_k=given.top_k,
        arch=options.pop("arch", "sm_86"),
        **options,
    )


@pytest.mark.parametrize("kind", [list, np.array])
def test_an_alignment_may_be_made_of_anything_that_counts(kind: Callable[[Any], Any]) -> None:
    """Not only of tuples, which is what `align` gives."""
    made = problem(3)
    other = replace(
        made.alignment,
        sorted_token_ids=kind(made.alignment.sorted_token_ids),
        expert_ids=kind(made.alignment.expert_ids),
    )
    got, want = run(made, alignment=other), run(made)
    assert bits16(got.output).tobytes() == bits16(want.output).tobytes()
    assert (got.executed, got.unwritten) == (want.executed, want.unwritten)


def oracle(
    given: Problem, schedule: Schedule, route: int, column: int, arch: str, *, weighted: bool = False
) -> int:
    """Bits of one output element, from unpacked numbers and integers."""
    weights = given.weights
    fmt = plain.FORMATS[weights.dtype]
    block = al.block_of(given.alignment, route)
    expert = given.alignment.expert_ids[block]
    channelwise = weights.group == -1
    scales = bits16(weights.scales)[expert, :, column].tolist()
    size = weights.k // len(scales)
    operands = [
        plain.operand(
            int(given.codes[expert, k, column]),
            int(given.zeros[expert, k // size, column]),
            scales[k // size],
            fmt=fmt,
            channelwise=channelwise,
        )
        for k in range(weights.k)
    ]
    acc = plain.element(
        bits16(given.a)[route // given.top_k].tolist(),
        operands,
        [(part.begin, part.end) for part in schedule.slices(block, column // schedule.tile_n)],
        tile_k=schedule.tile_k,
        core=plain.CORES[arch],
        fmt=fmt,
        interleaved=schedule.kernel == "vllm==0.11.0",
    )
    weight = int(given.topk_weights.view(np.uint32)[route]) if weighted else None
    return plain.finish(acc, fmt=fmt, scale=scales[0] if channelwise else None, topk_weight=weight)


@settings(deadline=None, max_examples=25)
@given(
    seed=st.integers(0, 2**32 - 1),
    tile=st.sampled_from(((64, 128), (128, 128), (128, 64), (64, 256))),
    grid=st.integers(1, 40),
    group=st.sampled_from((-1, 32, 64, 128)),
    arch=st.sampled_from(("sm_80", "sm_90")),
    dtype=st.sampled_from(("float16", "float16", "bfloat16")),
    spread=st.sampled_from((0, 3, 8)),
    kernel=st.sampled_from(("vllm==0.22.0", "vllm==0.11.0")),
    data=st.data(),
)
def test_elements_are_the_plain_reading(  # noqa: PLR0917
    seed: int,
    tile: tuple[int, int],
    grid: int,
    group: int,
    arch: str,
    dtype: str,
    spread: int,
    kernel: str,
    data: st.DataObject,
) -> None:
    """Any tile, grid, group, architecture, format, exponents and build: a few elements by integers."""
    given_ = problem(seed, k=256, n=256, group=group, dtype=dtype, spread=spread)
    forced = launch(*tile, grid)
    schedule = schedule_of(given_.weights, given_.alignment, forced, kernel=kernel)
    weighted = data.draw(st.booleans())
    got = run(
        given_,
        (*tile, grid),
        arch=arch,
        kernel=kernel,
        topk_weights=given_.topk_weights if weighted else None,
    )
    for _ in range(3):
        route = data.draw(st.integers(0, given_.alignment.routes - 1))
        column = data.draw(st.integers(0, 255))
        want = oracle(given_, schedule, route, column, arch, weighted=weighted)
        assert f"{int(bits16(got.output)[route, column]):04x}" == f"{want:04x}"


class General(sums.SliceSums):
    """All of it by the general scheme, which takes anything (tensor-core 7.2)."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self._fast = False


@pytest.mark.parametrize("arch", ["sm_70", "sm_75", "sm_80", "sm_90"])
@pytest.mark.parametrize("shaped", SHAPED, ids=lambda made: made.__name__.strip("_"))
def test_the_fast_chain_is_the_general_one(shaped: Callable[..., Any], arch: str) -> None:
    """Steps of zeros, cancelled and tiny accumulators, the widest exponents: every element of a GEMM."""
    rng = np.random.default_rng(99)
    given_ = problem(99, tokens=12, spread=6)
    a = narrow(np.asarray(shaped(rng, rng.standard_normal(given_.a.shape)), dtype=np.float64), "float16")
    codes = np.where(rng.random(given_.codes.shape) < 0.5, given_.zeros.repeat(128, axis=1), given_.codes)
    weights = replace(given_.weights, qweight=pack(codes))  # half of the operands are zero
    made = replace(given_, a=a, weights=weights)
    want, got = run(made, arch=arch, summed=General), run(made, arch=arch)
    assert differing_bits(got.output, want.output).tolist() == []
    assert got.executed == want.executed


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 2**32 - 1), grid=st.integers(1, 60), tile=st.sampled_from(((64, 128), (128, 64))))
def test_executed_slices_are_the_schedule(seed: int, grid: int, tile: tuple[int, int]) -> None:
    """What the computing loop wrote down is what the geometry says, tile by tile."""
    given_ = problem(seed, tokens=12, n=384)
    got = run(given_, (*tile, grid))
    schedule = schedule_of(given_.weights, given_.alignment, launch(*tile, grid))
    assert got.executed == tuple(
        (item.block, item.column_tile, tuple((part.cta, part.begin, part.end) for part in item.slices))
        for item in schedule
    )


def test_order_inside_a_block_changes_no_bit() -> None:
    """Slots of one block exchanged."""
    given_ = problem(7, tokens=12)
    block = al.block_routes(given_.alignment, 0)
    swapped = al.exchange(given_.alignment, block[0], block[-1])
    assert np.array_equal(bits16(run(given_).output), bits16(run(given_, alignment=swapped).output))


def test_a_route_on_the_other_side_of_the_boundary_can_change_only_its_own_row() -> None:
    """Two blocks of one expert with different slices: other rows keep every bit."""
    given_ = problem(8, tokens=24, top_k=1, experts=2, n=512, k=1024)
    weights, a = given_.weights, given_.a.copy()
    a[:, 512:] = -a[:, :512]
    a[:, ::37] = np.float16(0.01)
    halves = {name: getattr(weights, name).copy() for name in ("qweight", "qzeros", "scales")}
    for array in halves.values():  # sums that cancel show the last bits of their fp32 parts
        array[:, array.shape[1] // 2 :] = array[:, : array.shape[1] // 2]
    given_ = replace(given_, a=a, weights=replace(weights, **halves))
    ids = tuple((0,) for _ in range(20)) + tuple((1,) for _ in range(4))
    aligned = al.stable(ids, experts=2, block_size_m=8)
    swapped = al.exchange(aligned, 0, 18)
    before, after = (bits16(run(given_, (64, 128, 9), alignment=side).output) for side in (aligned, swapped))
    rows = np.flatnonzero((before != after).any(axis=1)).tolist()
    assert rows
    assert set(rows) <= {0, 18}


@pytest.mark.parametrize("chunks", [(1, 64), (2, 4096), (64, 1 << 20)])
def test_how_the_work_is_cut_changes_no_bit(chunks: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows and columns per call are for the cache only."""
    given_ = problem(9, tokens=20, n=256, spread=2)
    want = run(given_)
    for name, value in zip(("ROWS", "WIDTH"), chunks, strict=True):
        monkeypatch.setattr(sums, name, value)
    got = run(given_)
    assert np.array_equal(bits16(got.output), bits16(want.output))
    assert got.executed == want.executed


def test_specials_stay_in_their_rows_and_columns() -> None:
    """Inf and NaN activations spoil their own rows; Inf weights their own columns; NaN is canonical."""
    given_ = problem(10, tokens=6, top_k=1)
    clean = bits16(run(given_).output)
    a = given_.a.copy()
    a[1, 3], a[2, 5] = np.inf, np.nan
    dirty = bits16(run(replace(given_, a=a)).output)
    assert np.array_equal(np.flatnonzero((dirty != clean).any(axis=1)), [1, 2])
    assert set(dirty[2].tolist()) == {0x7FFF}
    assert set(dirty[1].tolist()) <= {0x7C00, 0xFC00, 0x7FFF}
    scales = given_.weights.scales.copy()
    scales[:, 0, 9] = np.float16(60000)
    scaled = bits16(run(replace(given_, weights=replace(given_.weights, scales=scales))).output)
    assert np.flatnonzero((scaled != clean).any(axis=0)).tolist() == [9]


def test_rows_without_a_slot_are_reported() -> None:
    """A dropped route's row is 0 here, and named."""
    given_ = problem(11, tokens=2, top_k=1, experts=3)
    aligned = al.align(((1,), (90,)), experts=70, block_size_m=8, arrival=(0, 1))
    got = run(given_, alignment=aligned)
    assert got.unwritten == (1,)
    assert not bits16(got.output)[1].any()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_block_of_padding_alone(dtype: str) -> None:
    """It takes its share of the schedule, and has no row."""
    given = problem(5, dtype=dtype)
    lone = replace(
        given.alignment,
        expert_ids=(*given.alignment.expert_ids, 0),
        sorted_token_ids=(*given.alignment.sorted_token_ids, *[given.alignment.routes] * 8),
    )
    padded = replace(given, alignment=lone)
    got = run(padded)
    schedule = schedule_of(given.weights, lone, launch(64, 128, 5))
    assert [tile[:2] for tile in got.executed] == [
        (tile // schedule.n_tiles, tile % schedule.n_tiles) for tile in range(len(list(schedule)))
    ]
    for route, column in ((0, 0), (3, 77), (9, 127)):
        assert bits16(got.output)[route, column] == oracle(padded, schedule, route, column, "sm_86")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_how_weights_lie_in_memory_changes_no_bit(dtype: str) -> None:
    """Of all their arrays columns may follow each other, or be every second of wider ones."""
    given = problem(6, dtype=dtype)
    weights = given.weights
    assert weights.qzeros is not None
    arrays = {"qweight": weights.qweight, "scales": weights.scales, "qzeros": weights.qzeros}
    by_columns = {name: np.asfortranarray(array) for name, array in arrays.items()}
    spaced = {name: np.repeat(array, 2, axis=-1)[..., ::2] for name, array in arrays.items()}
    want = run(given).output
    for lying in (by_columns, spaced):
        got = run(replace(given, weights=replace(weights, **lying))).output
        assert differing_bits(got, want).tolist() == []


def test_no_blocks_do_nothing() -> None:
    """P_blk = 0 (9.1)."""
    given_ = problem(12, tokens=2, top_k=1)
    aligned = al.align(((90,), (90,)), experts=70, block_size_m=8, arrival=(0, 1))
    got = run(given_, alignment=aligned)
    assert (got.executed, got.unwritten) == ((), (0, 1))


def test_running_sum_in_16_bits_is_another_sum() -> None:
    """use_fp32_reduce=False rounds between slices; with one slice it is the same."""
    given_ = problem(13, tokens=10, k=1024, spread=2)
    assert not np.array_equal(
        bits16(run(given_, (64, 128, 40), fp32_reduce=False).output),
        bits16(run(given_, (64, 128, 40)).output),
    )
    assert np.array_equal(
        bits16(run(given_, (64, 128, 1), fp32_reduce=False).output), bits16(run(given_, (64, 128, 1)).output)
    )


def test_atomic_outcomes_hold_every_order() -> None:
    """One slice has one outcome, that of a plain store; three slices have up to three."""
    given_ = problem(14, tokens=4, k=384, spread=2)
    common: dict[str, Any] = {"top_k": given_.top_k, "arch": "sm_86"}
    single = outcomes(given_.a, given_.weights, given_.alignment, launch(128, 128, 1), **common)
    assert single.count.max() == 1
    assert np.array_equal(single.bits[0], bits16(run(given_, (128, 128, 1)).output))
    blocks = len(given_.alignment.expert_ids)
    three = outcomes(given_.a, given_.weights, given_.alignment, launch(128, 128, 3 * blocks), **common)
    assert 2 <= three.count.max() <= 3
    assert np.array_equal(np.sort(three.bits, axis=0), three.bits)


def outcome_sets(found: Any) -> list[set[int]]:
    """One set of bit patterns for each element."""
    columns = found.bits.reshape(len(found.bits), -1).T
    return [set(column.tolist()) for column in columns]


@few
@given(seed=st.integers(0, 2**32), spread=st.integers(0, 8), sample=st.integers(1, 23))
def test_a_sample_of_the_orders_reaches_a_part_of_the_outcomes(seed: int, spread: int, sample: int) -> None:
    """Four slices, 24 orders: a subset, never another pattern, and a longer sample holds the shorter one's."""
    given_ = problem(seed, tokens=2, experts=2, k=512, n=128, spread=spread)
    blocks = len(given_.alignment.expert_ids)
    where = launch(128, 128, 4 * blocks)

    def tried(most: int | None) -> Any:
        return outcomes(
            given_.a, given_.weights, given_.alignment, where, top_k=2, arch="sm_86", sample=most, seed=seed
        )

    every, some, more, all_of_them = (tried(most) for most in (None, sample, sample + 1, 24))
    assert some.sampled == (Sampled(slices=4, orders=sample, of=24, seed=seed),)
    assert every.sampled == all_of_them.sampled == ()
    assert np.array_equal(every.bits, all_of_them.bits)
    sets = zip(*(outcome_sets(found) for found in (some, more, every)), strict=True)
    assert all(few_ <= larger <= whole for few_, larger, whole in sets)


@pytest.mark.parametrize(("slices", "sample"), [(1, 1), (3, 5), (4, 24), (5, 119), (9, 200), (40, 50)])
def test_orders_are_distinct_and_whole(slices: int, sample: int) -> None:
    found = orders(slices, sample=sample, seed=7)
    assert len(found) == len(set(found)) == sample
    assert all(sorted(order) == list(range(slices)) for order in found)
    assert found == orders(slices, sample=sample, seed=7)
    assert slices < 5 or found != orders(slices, sample=sample, seed=8)


def test_many_slices_are_sampled_if_that_is_asked_for() -> None:
    """Eight slices have 40,320 orders; how many were tried is said, and one slice needs no sample."""
    given_ = problem(14, tokens=4, k=1024, spread=2)
    common: dict[str, Any] = {"top_k": given_.top_k, "arch": "sm_86"}
    where = launch(128, 128, 8 * len(given_.alignment.expert_ids))
    with pytest.raises(KernelError) as refused:
        outcomes(given_.a, given_.weights, given_.alignment, where, **common)
    assert str(refused.value) == (
        "atomic sum of 8 slices: at most 6 are enumerated; use a smaller grid, or sample= so many of the orders"
    )
    found = outcomes(given_.a, given_.weights, given_.alignment, where, sample=30, seed=3, **common)
    assert found.sampled == (Sampled(slices=8, orders=30, of=40320, seed=3),)
    assert 2 <= found.count.max() <= 30
    single = outcomes(given_.a, given_.weights, given_.alignment, launch(128, 128, 1), sample=1, **common)
    assert single.sampled == ()
    with pytest.raises(KernelError) as refused:
        outcomes(given_.a, given_.weights, given_.alignment, where, sample=0, **common)
    assert str(refused.value) == "sample: expected at least 1 order of the slices, got 0"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"top_k": 3},
            r"^a: expected \(routes / top_k, K\) = \(10 / 3, 256\), got \(5, 256\); is the alignment",
        ),
        (
            {"a": np.zeros((5, 256), np.float32)},
            r"^a: expected float16 \(size_m, 256\), got float32 \(5, 256\)$",
        ),
        (
            {"topk_weights": np.zeros(4, np.float32)},
            r"^topk_weights: expected float32 \(10,\), got float32 \(4,\)$",
        ),
        (
            {"launch": launch(64, 256, 4)},
            "^tile_n must divide N: N=128 leaves 128 over tile_n=256; use another$",
        ),
    ],
)
def test_sizes_are_checked(change: dict[str, Any], message: str) -> None:
    """An alignment injected into a layer of another shape is refused (case S7)."""
    given_ = problem(15)
    call: dict[str, Any] = {
        "a": given_.a,
        "weights": given_.weights,
        "alignment": given_.alignment,
        "launch": launch(64, 128, 4),
        "top_k": 2,
        "arch": "sm_86",
    }
    with pytest.raises(ShapeError, match=message):
        marlin_gemm(**(call | change))


def test_ids_are_checked() -> None:
    """The operator does not check them; a simulator must not read elsewhere."""
    given_ = problem(16)
    bad = replace(given_.alignment, expert_ids=(0, 1, 9))
    with pytest.raises(ShapeError, match=r"^expert_ids\[2\]: expected 0..2, got 9$"):
        run(given_, alignment=bad)
    bad = replace(given_.alignment, sorted_token_ids=given_.alignment.sorted_token_ids[:-1])
    with pytest.raises(ShapeError, match=r"^sorted_token_ids: expected 3 blocks of 8, got 23 slots$"):
        run(given_, alignment=bad)
