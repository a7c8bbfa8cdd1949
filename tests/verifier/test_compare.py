"""Two bundles compared: where their bits part, and in whose block; said so where raw objects are absent."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.verifier import edits, forge
from tests.verifier.forge import Parts
from verifier.__main__ import cli


def diff(one: Path, other: Path) -> Result:
    return CliRunner().invoke(cli, ["diff", str(one), str(other)], standalone_mode=False)


@pytest.fixture
def bent(parts: Parts) -> Parts:
    """One bit of W13 at row 5, column 200, in the first native process."""
    tensors = edits.tensors_of(parts, edits.H0)
    at = 2 * (5 * 384 + 200)
    data = bytearray(tensors["w13"])
    data[at] ^= 1
    forge.recapture(parts, edits.H0, {**tensors, "w13": bytes(data)})
    return parts


def test_equal_bundles(good_folder: Path) -> None:
    done = diff(good_folder, good_folder)
    assert (done.return_value, done.output) == (0, "equal bits on every surface of 70 processes\n")


def test_the_first_difference(good_folder: Path, bent: Parts, tmp_path: Path) -> None:
    """Surface, row, column, bits; padded block and column tile from the alignment and the launch."""
    done = diff(good_folder, forge.write(forge.seal(bent), tmp_path / "bundle"))
    first, name, bits, block = done.output.splitlines()
    assert done.return_value == 1
    assert first == "bits differ in 1 of 70 processes; the first one:"
    assert name == f"{edits.H0}: w13"
    assert bits.startswith("row 5, column 200: 0x")
    alignment = edits.slots_of(bent, edits.H0)
    place = alignment["sorted_token_ids"].index(5) // alignment["block_size_m"]
    assert block == f"route 5: padded block {place}, column tile 1 of w13"


def test_without_raw_objects(good_folder: Path, bent: Parts, tmp_path: Path) -> None:
    bent.objects, bent.raw = {}, "left-out"
    done = diff(good_folder, forge.write(forge.seal(bent), tmp_path / "bundle"))
    assert done.return_value == 1
    last = done.output.splitlines()[-1]
    assert last == "row, column and bits cannot be told: the second bundle is without raw objects"


def test_nothing_to_compare(good_folder: Path, tmp_path: Path) -> None:
    assert diff(good_folder, tmp_path).return_value == 3
