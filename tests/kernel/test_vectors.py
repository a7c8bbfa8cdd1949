"""Every published vector, bit for bit."""

import json

import pytest

from mechanism.kernel import vectors
from mechanism.kernel.errors import KernelError
from tests.kernel.kernel_setup import COMMITTED, arrays, folder

FILES = sorted(
    path.relative_to(folder()).as_posix()
    for path in folder().rglob("*.npz")
    if path.parent.name != "hardware" and not path.name.startswith("paper_")
)
PAPER = sorted(path.name for path in folder().glob("paper_*.npz"))
HARDWARE = sorted((folder() / "hardware").glob("*.npz"))


@pytest.mark.parametrize("name", FILES)
def test_vector_has_equal_bits(name: str) -> None:
    """All elements of the file are recomputed without a difference."""
    check = vectors.recompute(name, arrays(folder() / name))
    assert check.elements > 0
    assert check.differing == 0, check


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow) for name in PAPER])
def test_full_size_gemm_has_the_published_digests(name: str) -> None:
    """Every row and the whole output, by sha256, with weights drawn from the recipe."""
    check = vectors.recompute(name, arrays(folder() / name))
    assert check.differing == 0, check


@pytest.mark.parametrize("name", sorted(path.name for path in COMMITTED.glob("schedule_*.json")))
def test_schedule_is_what_the_running_kernel_did(name: str) -> None:
    """Slices, part and lock of every tile."""
    check = vectors.schedule(name, json.loads((COMMITTED / name).read_text()))
    assert (check.elements > 0, check.differing) == (True, 0)


def test_launch_configurations_are_what_the_host_code_chose() -> None:
    """Register counts, tile, CTAs per SM, grid and shared memory of every recorded choice."""
    document = json.loads((COMMITTED / "launch_configs.json").read_text())
    check = vectors.launch_configurations("launch_configs.json", document)
    assert (check.elements, check.differing) == (204, 0)


@pytest.mark.skipif(not HARDWARE, reason="hardware vectors absent: set MECHANISM_VECTORS to the whole set")
def test_dot_products_measured_on_gpus_have_equal_bits() -> None:
    """The only vectors that came from hardware."""
    for path in HARDWARE:
        check = vectors.recompute(f"hardware/{path.name}", arrays(path))
        assert (check.elements, check.differing) == (5000, 0), check


def test_a_changed_vector_is_noticed() -> None:
    """One flipped bit in an expected output is one differing element."""
    name = "other_paths/fp16sum_w2mul_g64_b16_t64x128_hopper.npz"
    held = arrays(COMMITTED / name)
    held["c"].view("u2")[3, 5] ^= 1
    assert vectors.recompute(name, held).differing == 1


def test_unknown_kind_of_file_is_refused() -> None:
    """A file without meta data is not silently counted as equal."""
    with pytest.raises(
        KernelError, match=r"^expected a kind of vector file that is known, got the arrays \[\]"
    ):
        vectors.recompute("odd.npz", {})
