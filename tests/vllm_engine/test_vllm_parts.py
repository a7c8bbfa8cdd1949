"""The engine's parts that need no GPU: interposer, device facts, profiler's trace, calls, grids, refusals."""

import ctypes
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from mechanism.engine import gpu_identity, vllm_calls, vllm_grid, vllm_interpose, vllm_profile, vllm_ready
from mechanism.engine.names import require_machine
from mechanism.errors import EngineError
from mechanism.kernel.devices import DEVICES
from mechanism.kernel.schedule import Schedule

ROOT = Path(__file__).parents[2]
H200 = DEVICES["h200"]
needs_compiler = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc to make stub libraries")

RUNTIME = """
int cudaDeviceGetAttribute(int *value, int attribute, int device) {
  *value = attribute == 16 ? 132 : 1000 + attribute; return 0;
}
"""
LIBRARY = """
int cudaDeviceGetAttribute(int *, int, int);
int read(int attribute) { int value = -1; cudaDeviceGetAttribute(&value, attribute, 0); return value; }
"""
DRIVER = """
#include <string.h>
int cuInit(unsigned flags) { return INIT; }
int cuDeviceGetCount(int *count) { *count = 1; return 0; }
int cuDeviceGet(int *device, int place) { *device = 0; return 0; }
int cuDriverGetVersion(int *version) { *version = 13000; return 0; }
int cuDeviceGetName(char *name, int length, int device) { strcpy(name, "NVIDIA Made Up"); return 0; }
int cuDeviceGetUuid(char *uuid, int device) { memset(uuid, 7, 16); return 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
  switch (attribute) {
    case 16: *value = 132; return 0;
    case 75: *value = 9; return 0;
    case 76: *value = 0; return 0;
    case 97: *value = 232448; return 0;
    case 13: *value = 1980000; return 0;
    case 36: *value = 3201000; return 0;
  }
  return 1;
}
"""


def shared(folder: Path, name: str, source: str, *options: str) -> Path:
    path = folder / name
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-o", str(path), "-xc", "-", *options], input=source.encode(), check=True
    )
    return path


@pytest.fixture
def libraries(tmp_path: Path) -> tuple[Path, Path]:
    """A runtime, and a library that imports a function of it, as the operator's does."""
    runtime = shared(tmp_path, "libruntime.so", RUNTIME)
    library = shared(
        tmp_path, "liboperator.so", LIBRARY, "-L", str(tmp_path), "-lruntime", "-Wl,-z,lazy,-rpath,$ORIGIN"
    )
    return runtime, library


IN_A_PROCESS = """
import ctypes, sys
from pathlib import Path
from mechanism.engine.vllm_interpose import multiprocessors
runtime = ctypes.CDLL(sys.argv[1], ctypes.RTLD_GLOBAL)
library = ctypes.CDLL(sys.argv[2])
found = [library.read(16)] if sys.argv[3] == "bound" else []
with multiprocessors(Path(sys.argv[2]), 100, runtime.cudaDeviceGetAttribute):
    found += [library.read(16), library.read(97)]
    value = ctypes.c_int()
    runtime.cudaDeviceGetAttribute(ctypes.byref(value), 16, 0)
    found.append(value.value)
found.append(library.read(16))
sys.stdout.write(repr(found))
"""


@needs_compiler
@pytest.mark.parametrize(("when", "before"), [("bound", [132]), ("lazy", [])])
def test_one_library_reads_another_count_inside_the_block_only(
    when: str, before: list[int], libraries: tuple[Path, Path]
) -> None:
    """Also where the slot was not bound yet; other attributes and other callers read what is there."""
    argv = [sys.executable, "-c", IN_A_PROCESS, *map(str, libraries), when]
    done = subprocess.run(argv, check=False, capture_output=True, text=True, cwd=ROOT)
    assert done.stdout == repr([*before, 100, 1097, 132, 132]), done.stderr


@needs_compiler
def test_a_library_that_does_not_import_the_function(libraries: tuple[Path, Path]) -> None:
    runtime, _ = libraries
    loaded = ctypes.CDLL(str(runtime))
    with (
        pytest.raises(EngineError, match=r"libruntime\.so: expected it to import cudaDeviceGetAttribute"),
        vllm_interpose.multiprocessors(runtime, 1, loaded.cudaDeviceGetAttribute),
    ):
        pass


@needs_compiler
def test_a_library_that_is_not_loaded(tmp_path: Path) -> None:
    path = shared(tmp_path, "libother.so", RUNTIME)
    with pytest.raises(EngineError, match="expected it loaded in this process, found no mapping of it"):
        vllm_interpose.slots_of(path, "cudaDeviceGetAttribute")


@needs_compiler
def test_the_device_as_the_driver_describes_it(tmp_path: Path) -> None:
    driver = ctypes.CDLL(str(shared(tmp_path, "libdriver.so", DRIVER, "-DINIT=0")))
    found = gpu_identity.describe(driver)
    assert (found.name, found.arch, found.sms, found.shared_memory) == (
        "NVIDIA Made Up",
        "sm_90",
        132,
        232448,
    )
    assert (found.driver, found.clock_khz, found.memory_clock_khz) == ("13.0", 1980000, 3201000)
    assert len(found.uuid_sha256) == 64
    pinned: dict[str, str | int] = {"name": "h200", "arch": "sm_90", "sms": 132, "shared_memory": 232448}
    gpu_identity.require_device(pinned, found)
    with pytest.raises(EngineError) as refusal:
        gpu_identity.require_device({**pinned, "arch": "sm_86", "sms": 82, "name": "rtx-3090"}, found)
    assert str(refusal.value) == (
        "wrong GPU: the plan is pinned to rtx-3090, this is NVIDIA Made Up; arch: expected sm_86, got sm_90; sms:"
        " expected 82, got 132; make a plan for this device with `mechanism gpu plan`, or run on that one"
    )


@needs_compiler
def test_a_driver_without_a_device(tmp_path: Path) -> None:
    driver = ctypes.CDLL(str(shared(tmp_path, "libbroken.so", DRIVER, "-DINIT=100")))
    with pytest.raises(
        EngineError, match=r"no GPU: expected a CUDA device, the driver reports 0 \(error 100\)"
    ):
        gpu_identity.describe(driver)


def event(name: str, **changes: Any) -> dict[str, Any]:
    args = {"grid": [528, 1, 1], "block": [128, 1, 1], "registers per thread": 127, "shared memory": 57088}
    return {"cat": "kernel", "name": name, "ts": 1.5, "args": {**args, **changes}}


NAME = (
    "void marlin_moe_wna16::Marlin<1125899906910725l, 1125899906843648l, 1125899906910725l, 1125899906910725l,"
    " 128, 1, 4, 8, true, 4, 8, false>(int4 const*, int4 const*)"
)


@pytest.mark.parametrize(
    "name", [NAME, NAME.replace("128, 1", "(int)128, (int)1").replace("true", "(bool)1")]
)
def test_what_was_launched_is_read_from_the_trace(name: str) -> None:
    trace = {"traceEvents": [event("void at::native::fill()"), {"cat": "cpu_op"}, event(name)]}
    (found,) = vllm_profile.launches(trace)
    assert (found.tile_k, found.tile_n, found.threads, found.grid) == (128, 64, 128, 528)
    assert (found.eights, found.group, found.registers, found.shared_memory) == (True, 128, 127, 57088)
    assert found.words().endswith("registers=127 shared_memory=57088")


@pytest.mark.parametrize(
    ("trace", "words"),
    [
        ({"traceEvents": []}, "profiler: expected kernels in the trace, got none"),
        ({"traceEvents": [event("void Marlin<1, 2>(int)")]}, "expected 12 template arguments, got 2"),
        (
            {"traceEvents": [event(NAME, block=[256, 1, 1])]},
            "expected 128 threads by its symbol, got a block of",
        ),
    ],
)
def test_a_trace_that_cannot_be_read(trace: Mapping[str, Any], words: str) -> None:
    with pytest.raises(EngineError, match=words):
        vllm_profile.launches(trace)


def w13(grid: int, blocks: int = 50) -> Schedule:
    return Schedule(n=1536, k=2048, tile_k=128, tile_n=64, grid=grid, padded_blocks=blocks, group=128)


@pytest.mark.parametrize(
    ("grid", "told"),
    [
        (528, vllm_grid.Told(blocks_per_sm=4, sms=None)),
        (132, vllm_grid.Told(blocks_per_sm=1, sms=None)),
        (200, vllm_grid.Told(blocks_per_sm=2, sms=100)),
        (333, vllm_grid.Told(blocks_per_sm=3, sms=111)),
        (131, vllm_grid.Told(blocks_per_sm=1, sms=131)),
        (600, vllm_grid.Told(blocks_per_sm=1, sms=600)),  # more than are resident, and no tile is split
    ],
)
def test_how_a_grid_is_delivered_on_an_h200(grid: int, told: vllm_grid.Told) -> None:
    assert vllm_grid.told(w13(grid), H200, threads=128, block_size_m=8) == told


def test_a_grid_that_would_hang() -> None:
    with pytest.raises(EngineError, match="grid 541: cannot be delivered on 132 multiprocessors"):
        vllm_grid.told(w13(541), H200, threads=128, block_size_m=8)


def test_locks_are_those_of_the_fused_operator() -> None:
    assert vllm_calls.locks(sms=132, size_n=1536, slots=1296, block_size_m=8) == 528


@pytest.mark.parametrize("name", ["torch", "vllm"])
def test_a_machine_without_the_build_is_refused_before_anything_starts(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {"torch": "2.11.0+cu130", "vllm": "0.22.0"}
    changed = {**known, name: "9.9.9"}
    monkeypatch.setattr(vllm_ready, "version", changed.__getitem__)
    with pytest.raises(EngineError) as refusal:
        require_machine("vllm", kernel="vllm==0.22.0", device={})
    shown = {"torch": "wrong torch: expected 2.11.0", "vllm": "wrong vLLM: expected 0.22.0"}[name]
    assert str(refusal.value) == (
        f"engine vllm: {shown}, got 9.9.9; install the extra `gpu` in an environment of its own"
    )


def test_another_kernel_is_not_this_engines() -> None:
    with pytest.raises(EngineError, match=r"expected a plan with kernel vllm==0\.22\.0, got vllm==0\.29\.0"):
        require_machine("vllm", kernel="vllm==0.29.0", device={})


def test_a_library_that_is_not_the_wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "vllm"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('never imported')")
    (package / "_moe_C.abi3.so").write_bytes(b"patched")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(EngineError) as refusal:
        vllm_ready.require_libraries()
    assert str(refusal.value).startswith(
        f"{package / '_moe_C.abi3.so'}: expected sha256 285f0ca8ee6556aa6de8bffafb7c1b88f6a9eb44b5d09cf30936c4ca68c3d161,"
        " the wheel's, got "
    )


def test_a_package_without_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "vllm").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(EngineError, match=r"expected vllm 0\.22\.0 with _moe_C\.abi3\.so, found none"):
        vllm_ready.require_libraries()
