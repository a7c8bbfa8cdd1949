"""One canonical tensor digest, whatever format and names a layer comes in."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from mechanism.checkpoint.layer import import_layer, weights_digest
from tests.checkpoint import writing

Array = npt.NDArray[Any]
MIXTRAL = {"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}

LAYOUTS: dict[str, Callable[[Mapping[str, Array]], dict[str, Array]]] = {
    "per-expert": writing.autoawq,
    "mixtral-names": lambda layer: writing.renamed(layer, MIXTRAL, prefix="model.layers.1.block_sparse_moe."),
    "doubled-prefix": lambda layer: writing.autoawq(layer, prefix="model.model.layers.1.mlp."),
    "multimodal-prefix": lambda layer: writing.autoawq(layer, prefix="model.language_model.layers.1.mlp."),
    "projection-first": writing.projection_first,
    "gate-and-up-joined": writing.joined,
    "stacked": lambda layer: writing.stacked(layer, names=("gate_up_proj", "down_proj"), joint="."),
    "stacked-w13": lambda layer: writing.stacked(layer, names=("w13", "w2"), joint="_"),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_names_do_not_change_the_digest(
    name: str, layer: Mapping[str, Array], canonical_digest: str, tmp_path: Path
) -> None:
    writing.config(tmp_path, writing.AWQ)
    writing.save(tmp_path, LAYOUTS[name](layer))
    imported = import_layer(tmp_path, 1)
    assert imported.digest == canonical_digest
    assert {key: array.tobytes() for key, array in imported.weights.items()} == {
        key: array.tobytes() for key, array in layer.items()
    }


def test_compressed_tensors_with_zero_points_is_the_same_layer(
    layer: Mapping[str, Array], canonical_digest: str, tmp_path: Path
) -> None:
    writing.config(tmp_path, writing.compressed(symmetric=False))
    writing.save(tmp_path, writing.pack_quantized(layer, symmetric=False))
    assert import_layer(tmp_path, 1).digest == canonical_digest


def test_a_symmetric_checkpoint_is_the_layer_with_every_zero_point_eight(
    symmetric: Mapping[str, Array], tmp_path: Path
) -> None:
    writing.config(tmp_path, writing.compressed(symmetric=True))
    writing.save(tmp_path, writing.pack_quantized(symmetric, symmetric=True))
    imported = import_layer(tmp_path, 1)
    assert imported.digest == weights_digest(symmetric)
    assert imported.settings.symmetric


def test_stacked_compressed_tensors(
    layer: Mapping[str, Array], canonical_digest: str, tmp_path: Path
) -> None:
    single = writing.pack_quantized(layer, symmetric=False)
    found = {}
    for projection in ("gate_proj", "up_proj", "down_proj"):
        for part in ("weight_packed", "weight_scale", "weight_zero_point", "weight_shape"):
            of_all = [single[f"{writing.PREFIX}experts.{expert}.{projection}.{part}"] for expert in range(4)]
            found[f"{writing.PREFIX}experts.{projection}.{part}"] = np.stack(of_all)
    writing.config(tmp_path, writing.compressed(symmetric=False))
    writing.save(tmp_path, found)
    assert import_layer(tmp_path, 1).digest == canonical_digest


def test_shards_are_one_checkpoint(layer: Mapping[str, Array], canonical_digest: str, tmp_path: Path) -> None:
    writing.config(tmp_path, writing.AWQ)
    writing.shards(tmp_path, writing.autoawq(layer))
    assert import_layer(tmp_path, 1).digest == canonical_digest


@pytest.mark.parametrize(
    "quantisation",
    [
        {"quant_method": "awq", "version": "GEMM", "w_bit": 4, "q_group_size": 32, "zero_point": True},
        {**writing.AWQ, "w_bit": 4, "modules_to_not_convert": ["gate"]},
        {**writing.AWQ, "backend": "autoawq", "do_fuse": False, "exllama_config": None},
    ],
    ids=["old-keys", "both-keys", "awqconfig"],
)
def test_the_keys_of_autoawq_of_all_ages(
    quantisation: dict[str, Any], layer: Mapping[str, Array], canonical_digest: str, tmp_path: Path
) -> None:
    writing.config(tmp_path, quantisation)
    writing.save(tmp_path, writing.autoawq(layer))
    assert import_layer(tmp_path, 1).digest == canonical_digest


def test_an_old_quant_config_beside_a_plain_config(
    layer: Mapping[str, Array], canonical_digest: str, tmp_path: Path
) -> None:
    writing.config(tmp_path, None)
    (tmp_path / "quant_config.json").write_text(
        '{"zero_point": true, "q_group_size": 32, "w_bit": 4, "version": "GEMM"}'
    )
    writing.save(tmp_path, writing.autoawq(layer))
    assert import_layer(tmp_path, 1).digest == canonical_digest


def test_sizes_of_a_multimodal_model_lie_one_level_down(
    layer: Mapping[str, Array], canonical_digest: str, tmp_path: Path
) -> None:
    text = {**writing.SIZES, "num_hidden_layers": 2}
    writing.config(tmp_path, writing.AWQ, hidden_size=7, text_config=text)
    writing.save(tmp_path, writing.autoawq(layer))
    assert import_layer(tmp_path, 1).digest == canonical_digest


def test_what_the_routed_experts_do_not_use_is_told(layer: Mapping[str, Array], tmp_path: Path) -> None:
    shared = f"{writing.PREFIX}shared_expert.gate_proj.qweight"
    other = "model.layers.1.self_attn.q_proj.qweight"  # not of the block
    tensors = {**writing.autoawq(layer), shared: np.zeros((2, 2), np.int32), other: np.zeros(1, np.int32)}
    writing.config(tmp_path, writing.AWQ)
    writing.save(tmp_path, tensors)
    assert import_layer(tmp_path, 1).beside == (shared,)
