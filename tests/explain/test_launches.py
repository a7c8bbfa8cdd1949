"""The specification's tables, asked through `explain`: tiles, grids, boundaries (marlin-moe 4.5, 5.5; S1 to S4)."""

from typing import Any

import pytest

from mechanism.explain.answer import Answer, Question, explain
from mechanism.explain.gemms import schedule_of
from mechanism.explain.models import Model, awq, named
from mechanism.explain.routing import Given, distribution
from mechanism.kernel.devices import DEVICES

TOKENS = {8: 100, 16: 200, 32: 400, 48: 600, 64: 1000}  # of a layer with 128 experts, top-8 (2.2)
TABLE = [  # device, dtype, then (tile, grid) for 8, 16, 32, 48, 64 rows
    (
        "rtx-3090",
        "float16",
        [((64, 128), 246), ((64, 128), 246), ((64, 128), 164), ((64, 128), 164), ((64, 256), 82)],
    ),
    (
        "rtx-4090",
        "float16",
        [((64, 128), 384), ((64, 128), 384), ((64, 128), 256), ((64, 128), 256), ((64, 256), 128)],
    ),
    (
        "a100",
        "float16",
        [((64, 128), 432), ((64, 128), 324), ((64, 128), 216), ((64, 128), 216), ((64, 128), 216)],
    ),
    (
        "h100",
        "float16",
        [((128, 64), 528), ((64, 128), 396), ((64, 128), 264), ((64, 128), 264), ((64, 128), 264)],
    ),
    (
        "h200",
        "bfloat16",
        [((64, 128), 528), ((64, 128), 396), ((64, 128), 264), ((64, 128), 264), ((64, 128), 264)],
    ),
]


def ask(model: Model, gpu: str, tokens: int, **more: object) -> Answer:
    asked = {
        "kernel": "vllm==0.22.0",
        "dtype": "float16",
        "tp": 1,
        "routing": distribution("uniform", seed=0),
        **more,
    }
    return explain(Question(model=model, device=DEVICES[gpu], tokens=tokens, **asked))  # type: ignore[arg-type]


def small(**sizes: int) -> Model:
    given: dict[str, Any] = {"experts": 128, "top_k": 8, "hidden": 2048, "intermediate": 768, **sizes}
    return Model(name="small", dtype="float16", quantisation=awq(128, source="test"), source="test", **given)


@pytest.mark.parametrize(("gpu", "dtype", "row"), TABLE, ids=[f"{row[0]}-{row[1]}" for row in TABLE])
def test_table_of_tiles_and_grids(gpu: str, dtype: str, row: list[tuple[tuple[int, int], int]]) -> None:
    """Section 4.5: W13 and W2 of the published layer get the same tile."""
    for (block, tokens), (tile, grid) in zip(TOKENS.items(), row, strict=True):
        layer = ask(named("qwen3-coder-30b-a3b"), gpu, tokens, dtype=dtype).layer
        assert layer is not None
        assert layer.block_size_m == block
        for gemm in layer.gemms:
            assert gemm.launch is not None
            assert ((gemm.launch.tile_k, gemm.launch.tile_n), gemm.launch.grid) == (tile, grid)


def test_published_geometry() -> None:
    """Case S2 by its routes: 50 padded blocks, block 41 the first split at W13, expert 106 exposed there only."""
    hot = [5, 22, 28, 35, 51, 62, 75, 86, 93]
    others = iter([*range(40), *range(107, 115)] * 2)
    flat = [106 if route in hot else next(others) for route in range(96)]
    ids = tuple(tuple(flat[token * 8 : token * 8 + 8]) for token in range(12))
    answer = ask(
        named("qwen3-coder-30b-a3b"), "rtx-3090", 12, routing=Given(topk_ids=ids, source="published")
    )
    assert answer.verdict == "yes"
    layer = answer.layer
    assert layer is not None
    assert (layer.block_size_m, layer.variant, layer.padded_blocks) == (8, "large", 50)
    w13, w2 = (gemm.split for gemm in layer.gemms)
    assert w13 is not None
    assert w2 is not None
    assert (w13.direct_tiles, w13.split_tiles, w13.first_split_block) == (492, 108, 41)
    assert (w2.direct_tiles, w2.split_tiles, w2.first_split_block) == (646, 154, 30)
    (expert,) = layer.exposed
    assert (expert.expert, expert.blocks, expert.routes) == (106, (40, 41), tuple(hot))
    assert [(at.gemm, at.classes, at.differ) for at in expert.at] == [
        ("w13", ("direct", "split"), True),
        ("w2", ("mixed", "mixed"), False),
    ]
    forced = next(remedy for remedy in layer.remedies if remedy.name.startswith("forced grid"))
    assert (forced.name, dict(forced.grids), forced.launchable) == (
        "forced grid, patched launch",
        {"w13": 204, "w2": 267},
        False,
    )
    for gemm, (_, grid) in zip(layer.gemms, forced.grids, strict=True):
        assert gemm.launch is not None
        tiles = schedule_of(gemm.shape, gemm.launch, 50, "vllm==0.22.0", grid)
        assert {len(tile.slices) for tile in tiles} == {1}


def test_a_launch_given_by_the_caller_settles_unknown_register_counts() -> None:
    from mechanism.kernel.configuration import explicit  # noqa: PLC0415

    unknown = ask(named("qwen3-coder-30b-a3b"), "b200", 100)
    assert unknown.verdict == "unknown"
    assert unknown.layer is not None
    assert all(gemm.launch is None and len(gemm.alternatives) == 12 for gemm in unknown.layer.gemms)
    assert {gemm.why_unknown for gemm in unknown.layer.gemms} == {"register counts for sm_100 are not known"}
    launches = {
        name: explicit(
            DEVICES["b200"], n=n, k=k, group=128, block_size_m=8, tile_k=64, tile_n=128, ctas_per_sm=3
        )
        for name, n, k in (("w13", 1536, 2048), ("w2", 2048, 768))
    }
    settled = ask(named("qwen3-coder-30b-a3b"), "b200", 100, launches=launches)
    assert settled.verdict in {"yes", "no"}
    assert settled.layer is not None
    assert {gemm.chosen_by for gemm in settled.layer.gemms} == {"caller"}


def test_padding_moves_the_boundary() -> None:
    """Case S3: N=1856 has only tiles of 64 columns; padded to 1920 it has others, and another boundary."""
    plain = ask(small(intermediate=928, experts=128), "h100", 100, kernel="vllm==0.22.0")
    assert [item.says for item in plain.path.obstacles] == [
        "intermediate % max(64, group) must be 0: 928 leaves 32 over 128; use a group that divides it, or pad"
        " intermediate to 1024"
    ]
    padded = ask(small(intermediate=928, experts=128), "h100", 100, kernel="vllm==0.29.0")
    assert padded.path.kind == "marlin"
    assert padded.path.intermediate == 1024
    assert padded.path.notes[0].says.startswith(
        "this build may pad the intermediate size from 928 to 1024 with zeros at load"
    )


@pytest.mark.parametrize(
    ("tokens", "top_k", "experts", "variant"),
    [(127, 8, 64, "small-batch"), (128, 8, 64, "large"), (12, 8, 65, "large")],
)
def test_alignment_variant(tokens: int, top_k: int, experts: int, variant: str) -> None:
    """Case S4: 1,016 routes to 64 experts need no atomics; 1,024 do, and so does anything with 65 experts."""
    answer = ask(small(experts=experts, top_k=top_k), "rtx-3090", tokens)
    assert answer.layer is not None
    assert answer.layer.variant == variant
    if variant == "small-batch":
        assert answer.verdict == "no"
        assert answer.layer.expected is None


def test_earlier_build_with_large_blocks_needs_no_register_counts() -> None:
    """A.1: from 32 rows on the first tile that fits, with 1 CTA per SM."""
    answer = ask(named("qwen3-coder-30b-a3b"), "rtx-3090", 400, kernel="vllm==0.11.0")
    assert answer.layer is not None
    assert [(g.launch.tile_k, g.launch.tile_n, g.launch.grid) for g in answer.layer.gemms if g.launch] == [
        (64, 256, 82),
        (64, 256, 82),
    ]
    assert [item.id for item in answer.layer.defects] == ["atomic-reduction"]
    small_blocks = ask(named("qwen3-coder-30b-a3b"), "rtx-3090", 12, kernel="vllm==0.11.0").layer
    assert small_blocks is not None
    assert {gemm.why_unknown for gemm in small_blocks.gemms} == {
        "register counts of vllm==0.11.0 are not known"
    }
