"""`mechanism vectors check` says which file differs and where, and is not satisfied with nothing."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from mechanism.__main__ import cli

VECTORS = Path(__file__).parents[1] / "kernel" / "vectors"
GEMM = "g32_b8_t128x64_ampere.npz"
MMA = "sm80_f16_m16n8k16.npz"


def check(*folders: Path) -> Result:
    return CliRunner().invoke(cli, ["vectors", "check", *map(str, folders)])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A GEMM, an instruction outside its usual folder, a schedule; and what is no vector."""
    (tmp_path / "deep").mkdir()
    shutil.copy(VECTORS / GEMM, tmp_path / "deep")
    shutil.copy(VECTORS / "mma" / MMA, tmp_path)
    shutil.copy(VECTORS / "schedule_1.json", tmp_path)
    (tmp_path / "README.md").write_text("not a vector")
    (tmp_path / "LICENCE-BSD.txt").write_text("not a vector")
    return tmp_path


def test_files_are_found_below_and_compared(folder: Path) -> None:
    done = check(folder)
    assert (done.exit_code, done.output) == (0, "3 of 3 files bit-identical\n")


def test_two_folders_are_counted_together(folder: Path) -> None:
    assert check(folder, folder / "deep").output == "4 of 4 files bit-identical\n"


def test_a_flipped_bit_is_named_with_its_place(folder: Path) -> None:
    path = folder / "deep" / GEMM
    with np.load(path) as file:
        arrays = {key: file[key] for key in file.files}
    bits = arrays["c"].view(np.uint16)
    right = int(bits[2, 5])
    bits[2, 5] ^= 1
    np.savez(path, **arrays)
    done = check(folder)
    assert done.exit_code == 1
    said = f"{path}: 1 of {bits.size} differ; first: deep/{GEMM} [2, 5]: expected 0x{right ^ 1:04x}, got 0x{right:04x}"
    assert done.output.splitlines() == [said, "2 of 3 files bit-identical"]


def test_a_wrong_schedule_is_named_with_its_tile(folder: Path) -> None:
    path = folder / "schedule_1.json"
    document = json.loads(path.read_text())
    document["tiles"][3]["slices"][0]["cta"] += 1
    path.write_text(json.dumps(document))
    done = check(folder)
    assert done.exit_code == 1
    assert done.output.startswith(f"{path}: 1 of 8 differ; first: tile (1, 1): slices: expected [")


def test_a_paper_twin_does_not_count_and_a_lonely_json_does(tmp_path: Path) -> None:
    for name in ("paper_w2_m1_sm86_ampere.npz", "launch_configs.json"):
        shutil.copy(VECTORS / name, tmp_path)
    (tmp_path / "paper_w2_m1_sm86_ampere.json").write_text("{}")
    assert check(tmp_path).output == "2 of 2 files bit-identical\n"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("odd.json", b"{}", "odd.json: expected a schedule or launch configurations, got the keys []"),
        (
            "torn.npz",
            b"PK\x03\x04 torn",
            "expected a vector file, cannot read it: BadZipFile: File is not a zip file\n",
        ),
        ("torn.json", b"{", "expected a vector file, cannot read it: JSONDecodeError: Expecting"),
        ("notes.txt", b"x", "expected a kind of vector file that is known (.npz, .json), got another"),
    ],
)
def test_what_is_no_vector_is_an_error(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    done = check(tmp_path)
    assert done.exit_code == 4
    assert message in done.output


def test_one_bad_file_does_not_hide_the_others(tmp_path: Path) -> None:
    shutil.copy(VECTORS / "launch_configs.json", tmp_path)
    (tmp_path / "a.json").write_bytes(b"{}")
    done = check(tmp_path)
    assert done.exit_code == 4
    assert done.output == (
        f"{tmp_path / 'a.json'}: expected a schedule or launch configurations, got the keys []\n"
        "1 of 2 files bit-identical\n"
        "mechanism: refused: 1 of 2 files are no vector files that could be checked; see above\n"
    )


def test_arrays_of_no_known_kind_are_an_error(tmp_path: Path) -> None:
    np.savez(tmp_path / "odd.npz", x=np.zeros(3))
    done = check(tmp_path)
    assert done.exit_code == 4
    assert "odd.npz: expected a kind of vector file that is known, got the arrays ['x']" in done.output


def test_an_empty_folder_is_an_error(tmp_path: Path) -> None:
    done = check(tmp_path)
    assert done.exit_code == 4
    assert (
        done.output
        == f"mechanism: refused: {tmp_path}: expected vector files in it or below, found none; check the path\n"
    )
