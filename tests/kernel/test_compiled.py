"""The compiled GEMM against the numpy one: equal bits, the same slices."""

import hashlib
import importlib
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mechanism.kernel.gemm import marlin_gemm
from mechanism.kernel.rounding import bits16, multiply, widen
from tests.kernel.kernel_setup import SHAPED, Problem, launch, problem

compiled = pytest.importorskip(
    "mechanism.kernel.compiled", reason="numba is the extra `fast`", exc_type=ImportError
)

pytestmark = pytest.mark.slow  # compiling alone takes some ten seconds in a fresh environment

ROOT = Path(__file__).parents[2]
TILES = ((64, 128), (128, 128), (128, 64), (64, 256))


def compare(given_: Problem, tile: tuple[int, int], grid: int, **options: Any) -> int:
    """Elements compared; fails where any bit, slice or unwritten row differs."""
    arguments = (given_.a, given_.weights, given_.alignment, launch(*tile, grid))
    want = marlin_gemm(*arguments, top_k=given_.top_k, **options)
    got = compiled.marlin_gemm(*arguments, top_k=given_.top_k, **options)
    assert np.flatnonzero(bits16(got.output) != bits16(want.output)).tolist() == []
    assert (got.executed, got.unwritten) == (want.executed, want.unwritten)
    return want.output.size


def drawn(seed: int, shaped: Callable[..., Any], **sizes: Any) -> Problem:
    """A problem with activations of some kind; scales from subnormal to large by ``spread``."""
    made = problem(seed, **sizes)
    rng = np.random.default_rng([seed, 1])
    values = shaped(rng, rng.standard_normal(made.a.shape))
    with np.errstate(over="ignore"):
        return replace(made, a=values.astype(np.float16))


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1),
    shaped=st.sampled_from(SHAPED),
    tile=st.sampled_from(TILES),
    grid=st.integers(1, 40),
    group=st.sampled_from((-1, 32, 64, 128)),
    arch=st.sampled_from(("sm_75", "sm_80", "sm_90")),
    spread=st.sampled_from((0, 4, 12)),
    kernel=st.sampled_from(("vllm==0.22.0", "vllm==0.11.0")),
    tokens=st.integers(1, 30),
    n=st.sampled_from((256, 768)),
)
def test_equal_bits(  # noqa: PLR0917 - drawn, by name
    seed: int,
    shaped: Callable[..., Any],
    tile: tuple[int, int],
    grid: int,
    group: int,
    arch: str,
    spread: int,
    kernel: str,
    tokens: int,
    n: int,
) -> None:
    """Any tile, grid, group, rules and build; activations of every kind; pieces that are full and not.

    With routing weights where the seed is odd.
    """
    made = drawn(seed, shaped, tokens=tokens, k=256, n=n, group=group, spread=spread)
    weights = made.topk_weights if seed % 2 else None
    compare(made, tile, grid, arch=arch, kernel=kernel, topk_weights=weights)


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("shaped", SHAPED, ids=lambda shaped: shaped.__name__)
def test_a_million_elements(shaped: Callable[..., Any], arch: str) -> None:
    """Of every kind and both steps."""
    made = drawn(5, shaped, tokens=512, top_k=2, experts=8, k=256, n=1024, spread=4)
    assert compare(made, (64, 128), 82, arch=arch) >= 1_000_000


#: Where code is kept by numba, and which files go into it besides.
KEPT = {"ends": ("words",), "loops": ("ends", "lanes", "steps", "weights", "words")}


def digest_of_parts(kernel: Path, name: str) -> str:
    parts = [kernel / f"compiled_{part}.py" for part in KEPT[name]]
    return hashlib.sha256(b"".join(part.read_bytes() for part in parts)).hexdigest()


@pytest.mark.parametrize("name", KEPT)
def test_machine_code_names_what_went_into_it(name: str) -> None:
    """Numba looks at the file of a function alone; what else went into it is named there by its digest."""
    kernel = Path(compiled.__file__).parent
    named = re.search(r'INLINED = "([0-9a-f]{64})"', (kernel / f"compiled_{name}.py").read_text())
    assert named is not None
    assert named[1] == (found := digest_of_parts(kernel, name)), (
        f"a part of it has changed: write INLINED = {found!r} in compiled_{name}.py"
    )


def test_machine_code_is_kept_in_those_files_alone() -> None:
    """What another file kept would outlive a change of what went into it."""
    kernel = Path(compiled.__file__).parent
    keeping = {path.stem for path in kernel.glob("*.py") if "\n@compiled\n" in path.read_text()}
    assert keeping == {f"compiled_{name}" for name in KEPT}


ONE_GEMM = """
from tests.kernel.kernel_setup import launch, problem
from mechanism.kernel.compiled import marlin_gemm
import hashlib
p = problem(3, n=256, k=256)
made = marlin_gemm(p.a, p.weights, p.alignment, launch(64, 128, 7), top_k=p.top_k, arch="sm_86")
print(hashlib.sha256(made.output.tobytes()).hexdigest())
"""


def test_machine_code_is_thrown_away_with_what_went_into_it(tmp_path: Path) -> None:
    """An operation changes, and with it the digest: the code that was kept is not used again."""
    for package in ("mechanism", "ledger", "tests"):
        shutil.copytree(
            ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__", "*.npz")
        )
    kernel = tmp_path / "mechanism" / "kernel"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "NUMBA_CACHE_DIR": str(tmp_path / "kept")}

    def computed() -> str:
        argv = [sys.executable, "-c", ONE_GEMM]
        return subprocess.run(
            argv, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True
        ).stdout

    first = computed()
    assert computed() == first
    lanes, loops = kernel / "compiled_lanes.py", kernel / "compiled_loops.py"
    lanes.write_text(lanes.read_text().replace('(operator.sub, "fsub")', '(operator.sub, "fadd")'))
    text = re.sub(r'INLINED = ".*"', f'INLINED = "{digest_of_parts(kernel, "loops")}"', loops.read_text())
    loops.write_text(text)
    assert computed() != first


@pytest.mark.parametrize("n", [64, 256, 448, 512, 576, 704, 1088])
@pytest.mark.parametrize("threads", ["1", "2"])
def test_pieces_of_every_width(n: int, threads: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Narrower than what the loops take at a time, just as wide, and a last one that overlaps the one before."""
    monkeypatch.setenv("NUMBA_NUM_THREADS", threads)
    compare(problem(11, n=n, tokens=70, experts=2), (128, 64), 13, arch="sm_86")
    compare(problem(12, n=n, tokens=9, spread=4), (128, 64), 5, arch="sm_90")


def test_rounding_to_half_of_every_neighbour() -> None:
    """Every fp16 value, the fp32 values around it and half way to the next, and a sample of all fp32 ones."""
    ends = importlib.import_module("mechanism.kernel.compiled_ends")
    halves = np.arange(65536, dtype=np.uint16).view(np.float16).astype(np.float32).view(np.uint32)
    near = halves.astype(np.int64)[:, np.newaxis] + np.array([-4096, -1, 0, 1, 2048, 4095, 4096, 4097])
    bits = np.concatenate([near.ravel() % 2**32, np.arange(0, 2**32, 65_521)]).astype(np.uint32)
    values = bits.view(np.float32)
    values = values[np.isfinite(values)]
    got = np.array([ends.half(value) for value in values], dtype=np.uint16)
    with np.errstate(over="ignore"):
        want = values.astype(np.float16).view(np.uint16)
    assert np.flatnonzero(got != want).tolist() == []


@pytest.mark.parametrize("factor", ["0", "-0.0", "6e-8", "-3e-6", "0.3333", "1", "-2", "65504", "inf", "nan"])
def test_every_half_times_a_routing_weight(factor: str) -> None:
    """One rounding; 0 times Inf and everything times NaN are the one NaN."""
    ends = importlib.import_module("mechanism.kernel.compiled_ends")
    halves = np.arange(65536, dtype=np.uint16)
    halves = halves[~np.isnan(halves.view(np.float16))]
    weight = np.float32(np.float16(factor))
    got = np.array([ends.scaled(half, weight) for half in halves], dtype=np.uint16)
    want = bits16(multiply(widen(halves.view(np.float16)), np.full(len(halves), weight), "float16"))
    assert np.flatnonzero(got != want).tolist() == []


@pytest.mark.parametrize("fp32_reduce", [True, False])
@pytest.mark.parametrize("group", [-1, 64])
@pytest.mark.parametrize("large", [1, 1e4])
def test_routing_weights(group: int, large: float, fp32_reduce: bool) -> None:  # noqa: FBT001 - named at the call
    """Of every kind, on sums that are finite and on sums that are not."""
    made = problem(15, n=256, group=group)
    with np.errstate(over="ignore"):
        made = replace(made, a=np.clip(made.a * np.float16(large), -65504, 65504).astype(np.float16))
    weights = np.random.default_rng(15).standard_normal(made.alignment.routes).astype(np.float32)
    weights[:7] = [0, -0.0, 1e-8, 3e-7, np.inf, np.nan, 7e4]
    compare(made, (64, 128), 7, arch="sm_86", topk_weights=weights, fp32_reduce=fp32_reduce)


@pytest.mark.parametrize("where", ["here", "in the other thread"])
def test_a_fault_leaves_no_turns(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Ctrl-C in one thread ends the other one after the item that it has."""
    sweep, turns = compiled.sweep, []
    met, main = threading.Event(), threading.main_thread()

    def interrupted(*arguments: Any) -> int:
        if (threading.current_thread() is main) == (where == "here"):
            met.set()
            raise KeyboardInterrupt
        met.wait()
        turns.append(arguments)
        time.sleep(0.01)  # so that there is time to notice
        done: int = sweep(*arguments)
        return done

    monkeypatch.setenv("NUMBA_NUM_THREADS", "2")
    monkeypatch.setattr(compiled, "AT_A_TIME", 1)
    monkeypatch.setattr(compiled, "sweep", interrupted)
    made = problem(16, tokens=400, n=1024)
    with pytest.raises(KeyboardInterrupt):
        compiled.marlin_gemm(
            made.a, made.weights, made.alignment, launch(64, 128, 9), top_k=made.top_k, arch="sm_86"
        )
    assert len(turns) < 6  # of 32 and more


def test_a_little_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that come back for every item, to see whether they were interrupted."""
    monkeypatch.setattr(compiled, "AT_A_TIME", 1)
    compare(problem(16, tokens=40, n=512), (64, 128), 9, arch="sm_86")
    compare(problem(16, tokens=40, n=512), (64, 128), 9, arch="sm_86", fp32_reduce=False)


@pytest.mark.parametrize("fp32_reduce", [True, False])
def test_reductions(fp32_reduce: bool) -> None:  # noqa: FBT001 - named at the call
    """In fp32 the compiled code adds up slices itself, otherwise it hands them over."""
    compare(problem(13, n=512, k=512), (64, 128), 23, arch="sm_86", fp32_reduce=fp32_reduce)


def test_rounding_is_as_before_afterwards() -> None:
    """The loops round toward zero; nothing else in the process may."""
    compare(problem(14, n=512), (64, 128), 7, arch="sm_86")
    assert np.float32(1) + np.float32(2.0**-24 * 1.5) == np.float32(1 + 2.0**-23)


@pytest.mark.parametrize(
    "changes",
    [
        {"dtype": "bfloat16"},
        {"block": 48, "tokens": 60},
        {"n": 192 + 64 * 3, "tokens": 9},
        {"spread": 20},
    ],
)
def test_what_is_left_to_numpy_and_odd_sizes(changes: dict[str, Any]) -> None:
    """bf16, large blocks, a last piece that is narrower, scales that are Inf."""
    with np.errstate(over="ignore"):
        compare(problem(3, **changes), (64, 128), 7, arch="sm_86")


def test_weights_without_zero_points() -> None:
    """uint4b8: zero point 8."""
    made = problem(4, n=256)
    compare(replace(made, weights=replace(made.weights, qzeros=None)), (64, 128), 7, arch="sm_86")


@pytest.mark.parametrize("count", ["1", "3"])
def test_threads_change_no_bit(count: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as NUMBA_NUM_THREADS says."""
    monkeypatch.setenv("NUMBA_NUM_THREADS", count)
    assert compiled.compiled_threads() == int(count)
    compare(problem(6, tokens=40, n=512), (64, 128), 9, arch="sm_86")


def test_a_block_of_padding_alone_and_weights_by_columns() -> None:
    """Both ways take what the other one takes."""
    given_ = problem(5)
    lone = replace(
        given_.alignment,
        expert_ids=(*given_.alignment.expert_ids, 0),
        sorted_token_ids=(*given_.alignment.sorted_token_ids, *[given_.alignment.routes] * 8),
    )
    weights = given_.weights
    assert weights.qzeros is not None
    by_columns = replace(
        weights,
        qweight=np.asfortranarray(weights.qweight),
        scales=np.asfortranarray(weights.scales),
        qzeros=np.asfortranarray(weights.qzeros),
    )
    compare(replace(given_, alignment=lone, weights=by_columns), (64, 128), 5, arch="sm_86")
