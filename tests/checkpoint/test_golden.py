"""Checkpoints that AutoAWQ and compressed-tensors wrote themselves; see golden/README.md."""

from pathlib import Path

import pytest

from mechanism.checkpoint.layer import import_layer, weights_digest
from mechanism.checkpoint.values import require_values
from mechanism.fixture import packing

GOLDEN = Path(__file__).with_name("golden")
PROMPT = "w1 w2 w3 w9 w11"


@pytest.mark.parametrize("layer", [0, 1])
def test_autoawqs_own_checkpoint_and_compressed_tensors_own_packing_are_one_layer(layer: int) -> None:
    awq, packed = (import_layer(GOLDEN / name, layer) for name in ("autoawq", "pack-quantized"))
    assert awq.digest == packed.digest
    assert awq.settings.format != packed.settings.format
    assert awq.gate is not None


def test_symmetric_packing_differs_in_zero_points_alone() -> None:
    awq, symmetric = (import_layer(GOLDEN / name, 1) for name in ("autoawq", "pack-quantized-symmetric"))
    eight = {
        name: packing.pack(0 * packing.unpack(array) + 8) if name.endswith("qzeros") else array
        for name, array in awq.weights.items()
    }
    assert symmetric.digest == weights_digest(eight) != awq.digest


def test_values_are_those_of_autoawqs_own_rule() -> None:
    """Nibble order, zero points and the one rounding: dequantised there, compared here, bit for bit."""
    require_values(
        import_layer(GOLDEN / "autoawq", 1).weights, (GOLDEN / "values.sha256").read_text().strip()
    )


def test_hidden_states_of_a_prompt_do_not_depend_on_the_format(tmp_path: Path) -> None:
    """Layer 0 of both is run by transformers; needs the extra hf."""
    pytest.importorskip("torch", reason="needs the extra hf")
    pytest.importorskip("transformers", reason="needs the extra hf")
    from mechanism.checkpoint.prompt import hidden_from_prompt  # noqa: PLC0415

    found = []
    for name in ("autoawq", "pack-quantized"):
        folder = tmp_path / name
        folder.mkdir()
        for path in [*(GOLDEN / "autoawq").iterdir(), *(GOLDEN / name).iterdir()]:
            (folder / path.name).write_bytes(path.read_bytes())  # the tokenizer, then the format's own files
        found.append(hidden_from_prompt(folder, 1, PROMPT))
    assert found[0].shape == (5, 128)
    assert found[0].tobytes() == found[1].tobytes()
