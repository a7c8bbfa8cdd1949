"""`mechanism trace` of a bundle: what was recorded, held against the captures."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from click.testing import CliRunner, Result
from safetensors.numpy import load_file, save_file

from mechanism.__main__ import cli

Copied = Callable[[], Path]


def run(cell: str, *args: str) -> Result:
    return CliRunner().invoke(cli, ["trace", cell, "--row", "20", "--column", "1", *args])


def test_the_trace_has_the_captured_bits(bundle: Path) -> None:
    done = run(f"{bundle}/native.H0")
    assert done.exit_code == 0
    assert done.stdout.splitlines()[-2:] == [
        "captured under H0: 0xB7B4, the same bits",
        "captured under H1: 0xB7B5, the same bits",
    ]
    assert run("transfer.cross-order.H0.1", "--bundle", str(bundle), "--surface", "w2").exit_code == 0
    assert run(f"{bundle}/records/ablation.forced-grid.H1.1.json").exit_code == 0


def test_captures_left_out_leave_the_trace(copied: Copied) -> None:
    folder = copied()
    for path in (folder / "objects").iterdir():
        path.unlink()
    done = run(f"{folder}/native.H0")
    assert done.exit_code == 0
    assert "captured" not in done.stdout


def test_a_capture_with_other_bits_is_told(copied: Copied) -> None:
    folder = copied()
    for path in (folder / "objects").iterdir():
        tensors = {name: array.copy() for name, array in load_file(path).items()}
        tensors["w13"].view(np.uint16)[20, 1] ^= 1
        save_file(tensors, path)
    done = run(f"{folder}/native.H0")
    assert done.exit_code == 1
    assert done.stdout.splitlines()[-1] == "captured under H1: 0xB7B4, OTHER BITS"


def test_a_record_that_is_not_there(copied: Copied) -> None:
    folder = copied()
    (folder / "records" / "qualification.native.H1.1.json").unlink()
    done = run(f"{folder}/native.H0")
    assert (done.exit_code, done.stderr) == (
        4,
        f"mechanism: refused: {folder}/records/qualification.native.H1.1.json: cannot be read: No such file or"
        " directory; is the bundle complete?\n",
    )
