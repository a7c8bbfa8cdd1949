"""`mechanism fixture import`, from the command line to a frozen plan."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from click.testing import CliRunner, Result
from safetensors.numpy import save_file

from ledger.canonical import parse_canonical
from ledger.lock import Lock
from mechanism.__main__ import cli
from mechanism.fixture.build import build
from mechanism.fixture.store import load
from mechanism.plan.document import load_plan
from tests.checkpoint import writing

Array = npt.NDArray[Any]
PLANS = Path(__file__).parents[2] / "plans"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MECHANISM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def mechanism(*arguments: object) -> Result:
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


@pytest.fixture
def checkpoint(layer: Mapping[str, Array], tmp_path: Path) -> Path:
    folder = tmp_path / "checkpoint"
    gate = np.linspace(-1, 1, 4 * 128, dtype=np.float16).reshape(4, 128)
    writing.config(folder, writing.AWQ)
    writing.save(folder, {**writing.autoawq(layer), f"{writing.PREFIX}gate.weight": gate})
    return folder


@pytest.fixture
def states(hidden: npt.NDArray[np.float16], tmp_path: Path) -> Path:
    path = tmp_path / "hidden.npy"
    np.save(path, hidden)
    return path


def test_the_same_layer_from_two_formats_is_one_fixture(
    layer: Mapping[str, Array], checkpoint: Path, states: Path, tmp_path: Path, cache: Path
) -> None:
    """Weights, values and inputs by digest; nothing of names or format is left."""
    other = tmp_path / "other"
    writing.config(other, writing.compressed(symmetric=False))
    gate = np.linspace(-1, 1, 4 * 128, dtype=np.float16).reshape(4, 128)
    tensors = writing.pack_quantized(layer, symmetric=False)
    writing.save(other, {**tensors, f"{writing.PREFIX}gate.weight": gate})
    told = [
        mechanism("fixture", "import", "--checkpoint", folder, "--layer", 1, "--hidden", states)
        for folder in (checkpoint, other)
    ]
    assert [result.exit_code for result in told] == [0, 0], told[0].output
    assert told[0].output == told[1].output
    assert len(list((cache / "fixtures").iterdir())) == 1


def test_the_router_of_the_layer_is_asked(checkpoint: Path, states: Path, cache: Path) -> None:
    result = mechanism("fixture", "import", "--checkpoint", checkpoint, "--layer", 1, "--hidden", states)
    (folder,) = (cache / "fixtures").iterdir()
    tensors = load(folder)
    gate = np.linspace(-1, 1, 4 * 128, dtype=np.float16).reshape(4, 128).astype(np.float32)
    logits = np.load(states).astype(np.float32) @ gate.T
    assert tensors["topk_ids"].tolist() == np.argsort(-logits, axis=1, kind="stable")[:, :2].tolist()
    assert np.allclose(tensors["topk_weights"].sum(axis=1), 1)
    assert "left out" not in result.output


def test_private_keeps_digests_only(checkpoint: Path, states: Path, cache: Path) -> None:
    argv = ["fixture", "import", "--checkpoint", checkpoint, "--layer", 1, "--hidden", states]
    result = mechanism(*argv, "--private")
    assert result.exit_code == 0, result.output
    (folder,) = (cache / "fixtures").iterdir()
    origin = parse_canonical((folder / "import.json").read_bytes())
    assert origin["private"] is True
    assert origin["inputs"].keys() == {"kind", "sha256"}
    assert str(checkpoint) not in json.dumps(origin)
    assert folder.stat().st_mode & 0o077 == 0
    assert "private: true" in result.output


def test_values_that_are_expected_are_checked(checkpoint: Path, states: Path, cache: Path) -> None:
    argv = ["fixture", "import", "--checkpoint", checkpoint, "--layer", 1, "--hidden", states]
    told = mechanism(*argv).output
    values = re.findall(r"^values +([0-9a-f]{64})$", told, re.MULTILINE)[0]
    assert mechanism(*argv, "--expect-values", values).exit_code == 0
    refused = mechanism(*argv, "--expect-values", "0" * 64)
    assert refused.exit_code == 4
    assert "dequantised values: expected sha256 000" in refused.output
    assert len(list((cache / "fixtures").iterdir())) == 1


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.zeros((3, 64), np.float16), "expected shape [tokens, 128] with one token or more, got [3, 64]"),
        (np.zeros((3, 128), np.float32), "hidden: expected dtype float16, got float32"),
        (np.full((3, 128), np.inf, np.float16), "expected finite values"),
        (np.zeros((0, 128), np.float16), "with one token or more, got [0, 128]"),
    ],
    ids=["width", "dtype", "infinite", "empty"],
)
@pytest.mark.usefixtures("cache")
def test_hidden_states_that_cannot_be_used(
    array: Array, words: str, checkpoint: Path, tmp_path: Path
) -> None:
    np.save(tmp_path / "bad.npy", array)
    argv = ["--checkpoint", checkpoint, "--layer", 1, "--hidden", tmp_path / "bad.npy"]
    refused = mechanism("fixture", "import", *argv)
    assert refused.exit_code == 4
    assert words in refused.output


@pytest.mark.usefixtures("cache")
def test_a_prompt_needs_the_extra(checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    (tmp_path / "prompt.txt").write_text("hello")
    argv = ["--checkpoint", checkpoint, "--layer", 1, "--prompt-file", tmp_path / "prompt.txt"]
    refused = mechanism("fixture", "import", *argv)
    assert refused.exit_code == 4
    assert (
        "install the extra `hf` (in the project's folder: pip install -e '.[hf]'), or give hidden states by --hidden"
        in refused.output
    )


@pytest.mark.usefixtures("cache")
def test_one_kind_of_input_is_needed(checkpoint: Path, states: Path) -> None:
    none = mechanism("fixture", "import", "--checkpoint", checkpoint, "--layer", 1)
    both = mechanism(
        "fixture",
        "import",
        "--checkpoint",
        checkpoint,
        "--layer",
        1,
        "--hidden",
        states,
        "--prompt-file",
        states,
    )
    assert (none.exit_code, both.exit_code) == (4, 4)
    assert (
        "expected one of --hidden FILE and --prompt-file FILE, got both or none; give one of them"
        in none.output
    )


def test_an_imported_layer_takes_the_place_of_a_recipe_in_a_plan(tmp_path: Path, cache: Path) -> None:
    """The small plan's own layer, written as a checkpoint, imported, frozen: the same tensors by digest."""
    plan = load_plan(PLANS / "quick.yaml")
    built = build(plan.plan.fixture, cache)
    tensors = load(cache / "fixtures" / built.recipe)
    sizes = {"hidden_size": 512, "moe_intermediate_size": 192, "num_experts": 72, "num_experts_per_tok": 4}
    folder = tmp_path / "checkpoint"
    writing.config(folder, {**writing.AWQ, "group_size": 64}, **sizes)
    writing.save(folder, writing.joined(tensors))
    inputs = {name: np.array(tensors[name]) for name in ("hidden", "topk_ids", "topk_weights")}
    save_file(inputs, tmp_path / "inputs.safetensors")
    argv = ["--checkpoint", folder, "--layer", 1, "--hidden", tmp_path / "inputs.safetensors"]
    told = mechanism("fixture", "import", *argv)
    assert told.exit_code == 0, told.output
    section = told.output[told.output.index("\nfixture:\n") + 1 :]
    text = (PLANS / "quick.yaml").read_text()
    start, end = text.index("fixture:\n"), text.index("selected_from:")
    mine = tmp_path / "imported.yaml"
    mine.write_text(text[:start] + section + "\n" + text[end:])
    frozen = mechanism("freeze", mine)
    assert frozen.exit_code == 0, frozen.output
    lock = Lock.model_validate_json((tmp_path / "imported.lock").read_bytes())
    assert lock.fixture.tensors == built.tensors
    assert lock.fixture.routing == built.routing
    again = mechanism("fixture", "build", mine)
    assert again.exit_code == 0


def test_an_imported_fixture_that_is_not_there_cannot_be_built(tmp_path: Path, cache: Path) -> None:
    text = (PLANS / "quick.yaml").read_text()
    start, end = text.index("fixture:\n"), text.index("selected_from:")
    section = (
        f'fixture:\n  recipe: imported-awq/1\n  weights: "{"0" * 64}"\n  inputs: "{"1" * 64}"\n  private: false\n'
        "  tokens: 12\n  experts: 72\n  top_k: 4\n  hidden: 512\n  intermediate: 192\n  group_size: 64\n"
        "  dtype: float16\n"
    )
    mine = tmp_path / "mine.yaml"
    mine.write_text(text[:start] + section + text[end:])
    refused = mechanism("freeze", mine)
    assert refused.exit_code == 4
    assert "only `mechanism fixture import` can make it again" in refused.output
    assert not (tmp_path / "mine.lock").exists()
    assert cache
