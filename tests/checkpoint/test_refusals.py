"""Every way in which a checkpoint is not what it says, by its message."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from mechanism.checkpoint.errors import LayoutError, NamesError, SettingsError, ShardError
from mechanism.checkpoint.layer import import_layer
from mechanism.checkpoint.values import require_values, values_digest
from mechanism.fixture import packing
from tests.checkpoint import writing

Array = npt.NDArray[Any]
Tensors = dict[str, Array]
ONE = f"{writing.PREFIX}experts.2.up_proj"


def refused(folder: Path, error: type[Exception]) -> str:
    with pytest.raises(error) as caught:
        import_layer(folder, 1)
    return str(caught.value)


@pytest.fixture
def awq(layer: Mapping[str, Array], tmp_path: Path) -> tuple[Path, Tensors]:
    """A folder with its config.json, and the tensors to damage and save."""
    writing.config(tmp_path, writing.AWQ)
    return tmp_path, writing.autoawq(layer)


def test_unpacked_zero_points_are_named(awq: tuple[Path, Tensors]) -> None:
    """P4."""
    folder, tensors = awq
    tensors[f"{ONE}.qzeros"] = np.zeros(tensors[f"{ONE}.scales"].shape, dtype=np.int32)
    writing.save(folder, tensors)
    assert refused(folder, LayoutError) == (
        f"{ONE}: qzeros: expected 8 zero points packed in each int32 word, shape [4, 8], got [4, 64], the shape"
        " of the scales: they are not packed; pack them first"
    )


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_scales_of_another_type_are_named(awq: tuple[Path, Tensors], dtype: str) -> None:
    folder, tensors = awq
    scales = tensors[f"{ONE}.scales"].astype(np.float32)
    tensors[f"{ONE}.scales"] = scales
    writing.save(folder, tensors)
    if dtype == "bfloat16":  # numpy cannot write it: rename the type in the header, and keep the size
        data = (folder / "model.safetensors").read_bytes()
        rows, columns = scales.shape
        old = f'"{ONE}.scales":{{"dtype":"F32","shape":[{rows},{columns}]'.encode()
        new = f'"{ONE}.scales":{{"dtype":"BF16","shape":[{rows},{2 * columns}]'.encode()
        head = int.from_bytes(data[:8], "little")
        text = data[8 : 8 + head].replace(old, new)
        (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data[8 + head :])
    assert refused(folder, LayoutError) == (
        f"{ONE}.scales: expected scales of dtype float16, got {dtype}: rounding them would change weights, so"
        " nothing is converted; save the checkpoint in float16"
    )


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ((16, 64), "packed along K, the GPTQ way, whose zero points are stored minus one"),
        ((64, 16), "one row per output column, the way of compressed-tensors"),
        ((128, 64), "not packed"),
    ],
)
def test_another_packing_is_named_by_its_shape(
    awq: tuple[Path, Tensors], shape: tuple[int, int], words: str
) -> None:
    folder, tensors = awq
    tensors[f"{ONE}.qweight"] = np.zeros(shape, dtype=np.int32)
    writing.save(folder, tensors)
    assert refused(folder, LayoutError) == (
        f"{ONE}.qweight: expected shape [128, 8], 8 columns in a word, got {list(shape)}: {words}"
    )


def linear(words: Array) -> Array:
    """The same values, packed in linear order: P1's wrong word."""
    return writing.pack_linear(packing.unpack(np.ascontiguousarray(words)))


def minus_one(words: Array) -> Array:
    """The same zero points, stored minus one."""
    zeros = packing.unpack(np.ascontiguousarray(words))
    return packing.pack((zeros.astype(np.int8) - 1).view(np.uint8) & np.uint8(15))


def both(words: Array) -> Array:
    return linear(minus_one(words))


@pytest.mark.parametrize(
    ("weights", "zeros", "words"),
    [
        (linear, linear, "nibbles in linear order, where AutoAWQ has 0, 2, 4, 6, 1, 3, 5, 7"),
        (lambda words: words, minus_one, "zero points stored minus one, the GPTQ way"),
        (linear, both, "nibbles in linear order and zero points stored minus one, as GPTQ has both"),
    ],
    ids=["nibble-order", "gptq-zeros", "both"],
)
def test_bytes_that_mean_something_else_are_caught_by_values(
    layer: Mapping[str, Array],
    weights: Callable[[Array], Array],
    zeros: Callable[[Array], Array],
    words: str,
) -> None:
    """P3: shapes and round trips are the same; the digest of the dequantised values is not."""
    raised = {  # no zero point of 0, which minus one would turn into 15
        name: packing.pack(np.maximum(packing.unpack(array), 1)) if name.endswith("qzeros") else array
        for name, array in layer.items()
    }
    right = values_digest(raised)
    require_values(raised, right)
    wrong = {
        name: weights(array)
        if name.endswith("qweight")
        else zeros(array)
        if name.endswith("qzeros")
        else array
        for name, array in raised.items()
    }
    with pytest.raises(LayoutError) as caught:
        require_values(wrong, right)
    assert str(caught.value) == (
        f"dequantised values: expected sha256 {right}, got {values_digest(wrong)}: the bytes hold {words}; pack"
        " them as quant_method says, or correct quant_method"
    )


def test_other_weights_are_not_called_a_packing_mistake(layer: Mapping[str, Array]) -> None:
    with pytest.raises(LayoutError, match=r"other weights$"):
        require_values(layer, "0" * 64)


def test_the_word_of_eight_columns() -> None:
    """P1: columns 0..7 hold 0..7; linear order is another word."""
    word = packing.pack(np.arange(8, dtype=np.uint8)).view(np.uint32)
    assert [hex(value) for value in word.tolist()] == ["0x75316420"]
    assert [hex(v) for v in writing.pack_linear(np.arange(8)).view(np.uint32).tolist()] == ["0x76543210"]


def test_missing_tensors_are_all_listed(awq: tuple[Path, Tensors]) -> None:
    folder, tensors = awq
    del tensors[f"{ONE}.qzeros"], tensors[f"{writing.PREFIX}experts.0.down_proj.scales"]
    writing.save(folder, tensors)
    assert refused(folder, NamesError) == (
        "expected 36 tensors, qweight, qzeros, scales for 3 projections of 4 experts; 2 missing: qzeros of up of"
        " expert 2, scales of down of expert 0"
    )


def test_unknown_tensors_are_all_listed(awq: tuple[Path, Tensors]) -> None:
    folder, tensors = awq
    strange = [f"{writing.PREFIX}experts.2.up_proj.lora_a", f"{writing.PREFIX}latent.weight"]
    writing.save(folder, {**tensors, **{name: np.zeros(1, dtype=np.float16) for name in strange}})
    assert refused(folder, NamesError) == f"2 tensors of layer 1 not recognised: {', '.join(strange)}"


def test_parts_that_the_format_does_not_have_are_listed(awq: tuple[Path, Tensors]) -> None:
    folder, tensors = awq
    writing.save(folder, {**tensors, f"{ONE}.g_idx": np.zeros(128, dtype=np.int32)})
    assert refused(folder, NamesError).endswith(f"1 that this format does not have: {ONE}.g_idx")


def test_an_expert_too_many_is_listed(awq: tuple[Path, Tensors]) -> None:
    folder, tensors = awq
    extra = f"{writing.PREFIX}experts.4.up_proj.qweight"
    writing.save(folder, {**tensors, extra: tensors[f"{ONE}.qweight"]})
    assert refused(folder, NamesError).endswith(f"1 that this format does not have: {extra}")


def test_two_prefixes_are_not_chosen_between(awq: tuple[Path, Tensors], layer: Mapping[str, Array]) -> None:
    folder, tensors = awq
    writing.save(folder, {**tensors, **writing.autoawq(layer, prefix="draft.layers.1.mlp.")})
    assert refused(folder, NamesError) == (
        "layer 1: expected experts under one prefix, got 2: draft.layers.1.mlp, model.layers.1.mlp"
    )


def test_a_dense_layer_is_refused(awq: tuple[Path, Tensors]) -> None:
    folder, tensors = awq
    dense = {name.replace("experts.0.", ""): array for name, array in tensors.items() if "experts.0." in name}
    writing.save(folder, dense)
    assert refused(folder, NamesError) == (
        "layer 1: expected tensors of experts, found none; the layer has model.…mlp; choose another layer: some"
        " models have dense layers among them"
    )


def test_a_missing_shard_is_named(awq: tuple[Path, Tensors]) -> None:
    folder, tensors = awq
    writing.shards(folder, tensors)
    (folder / "model-00002-of-00003.safetensors").unlink()
    assert refused(folder, ShardError) == (
        f"{folder}: expected 3 shards, 1 missing: model-00002-of-00003.safetensors, which holds 12 tensors;"
        " download the checkpoint again"
    )


def test_a_truncated_file_is_named(awq: tuple[Path, Tensors]) -> None:
    folder, tensors = awq
    writing.save(folder, tensors)
    path = folder / "model.safetensors"
    data = path.read_bytes()
    path.write_bytes(data[:-1])
    assert refused(folder, ShardError) == (
        f"{path}: expected {len(data)} bytes, got {len(data) - 1}; it is truncated: download it again"
    )


def test_a_pointer_in_place_of_a_file_is_named(awq: tuple[Path, Tensors]) -> None:
    folder, _ = awq
    (folder / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\n")
    assert "a pointer to a file that was not downloaded" in refused(folder, ShardError)


def test_pickles_are_not_opened(awq: tuple[Path, Tensors]) -> None:
    folder, _ = awq
    (folder / "pytorch_model.bin").write_bytes(b"")
    assert refused(folder, ShardError) == (
        f"{folder}: expected model.safetensors or model.safetensors.index.json, got pytorch_model.bin; pickles are"
        " not opened here: save the checkpoint again as safetensors"
    )


@pytest.mark.parametrize(
    ("quantisation", "message"),
    [
        (
            {"quant_method": "gptq", "bits": 4},
            "quant_method: expected awq or compressed-tensors, got gptq: its zero points are stored minus one and its"
            " weights packed along K, with another kernel path; use an AWQ checkpoint",
        ),
        ({"quant_method": "fp8"}, "quant_method: expected awq or compressed-tensors, got 'fp8'"),
        (
            {**writing.AWQ, "version": "gemv"},
            "version: expected gemm, got 'gemv': its packing is another one",
        ),
        ({**writing.AWQ, "bits": 8}, "bits: expected 4, got 8: kernels for 4 bits only"),
        ({**writing.AWQ, "w_bit": 3}, "w_bit and bits: expected one value, got 3 and 4"),
        (
            {**writing.AWQ, "zero_point": False},
            "zero_point: expected True, got False: AWQ without zero points is packed otherwise",
        ),
        (
            {**writing.AWQ, "group_size": 16},
            "group_size: expected 32, 64 or 128, got 16: no kernel takes a layer with another one; quantise again",
        ),
        (
            {**writing.compressed(symmetric=True), "format": "int-quantized"},
            "format: expected pack-quantized, got 'int-quantized': 4-bit weights in int32 words are needed",
        ),
    ],
    ids=["gptq", "fp8", "gemv", "bits", "two-values", "no-zero-point", "group", "format"],
)
def test_other_quantisations_are_refused_by_name(
    quantisation: dict[str, Any], message: str, tmp_path: Path
) -> None:
    writing.config(tmp_path, quantisation)
    assert refused(tmp_path, SettingsError) == message


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"hidden_size": 320}, "hidden % 128 must be 0: 320 leaves 64; pad hidden to 384"),
        (
            {"moe_intermediate_size": 704, "quantization": 128},
            "intermediate % max(64, group) must be 0: 704 leaves 64 over 128",
        ),
        (
            {"moe_intermediate_size": 1856, "quantization": 128},
            "intermediate % max(64, group) must be 0: 1856 leaves 64 over 128",
        ),
        (
            {"moe_intermediate_size": 10944, "quantization": 128},
            "intermediate % max(64, group) must be 0: 10944 leaves 64 over 128",
        ),
        ({"moe_intermediate_size": 72}, "intermediate % max(64, group) must be 0: 72 leaves 8 over 64"),
        ({"hidden_size": 264}, "hidden % 128 must be 0: 264 leaves 8; pad hidden to 384"),
    ],
    ids=["320", "704", "1856", "10944", "72", "264"],
)
def test_shapes_off_the_path_are_refused_with_rule_and_numbers(
    changes: dict[str, Any], words: str, tmp_path: Path
) -> None:
    """P5: nothing is floored in silence."""
    group = changes.pop("quantization", 32)
    writing.config(tmp_path, {**writing.AWQ, "group_size": group}, **changes)
    assert words in refused(tmp_path, SettingsError)


def test_the_folder_name_does_not_matter(layer: Mapping[str, Array], tmp_path: Path) -> None:
    """Detected by quant_method: a folder named after GPTQ holds what its config says."""
    folder = tmp_path / "Model-GPTQ-Int4"
    writing.config(folder, writing.AWQ)
    writing.save(folder, writing.autoawq(layer))
    import_layer(folder, 1)


def test_unpacked_zero_points_of_compressed_tensors(layer: Mapping[str, Array], tmp_path: Path) -> None:
    tensors = writing.pack_quantized(layer, symmetric=False)
    tensors[f"{ONE}.weight_zero_point"] = np.zeros((64, 4), dtype=np.int8)
    writing.config(tmp_path, writing.compressed(symmetric=False))
    writing.save(tmp_path, tensors)
    assert refused(tmp_path, LayoutError) == (
        f"{ONE}.weight_zero_point: expected 8 zero points packed in each int32 word, shape [8, 4], got int8 [64, 4],"
        " the shape of the scales: they are not packed"
    )


def test_a_weight_shape_that_disagrees(layer: Mapping[str, Array], tmp_path: Path) -> None:
    tensors = writing.pack_quantized(layer, symmetric=False)
    tensors[f"{ONE}.weight_shape"] = np.array([64, 120], dtype=np.int64)
    writing.config(tmp_path, writing.compressed(symmetric=False))
    writing.save(tmp_path, tensors)
    assert refused(tmp_path, LayoutError) == f"{ONE}.weight_shape: expected (N, K) = (64, 128), got [64, 120]"


def test_a_layer_that_is_not_there(awq: tuple[Path, Tensors]) -> None:
    folder, tensors = awq
    writing.save(folder, tensors)
    with pytest.raises(SettingsError, match=re.escape("--layer: expected 0..1, got 2")):
        import_layer(folder, 2)
