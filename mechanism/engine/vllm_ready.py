"""Whether this machine can run the pinned build: asked before any process starts, without loading torch."""

import hashlib
import importlib.util
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from mechanism.engine.gpu_identity import find_gpu, require_device
from mechanism.engine.vllm_pins import KERNEL, LIBRARIES, MOE, TORCH, VLLM
from mechanism.errors import EngineError

_INSTALL = "install the extra `gpu` in an environment of its own"


def require_ready(kernel: str, device: Mapping[str, str | int]) -> None:
    """Raise EngineError unless build and GPU are the plan's. Steps: 1 plan, 2 torch, 3 vLLM, 4 GPU."""
    if kernel != KERNEL:
        raise EngineError(f"engine vllm: expected a plan with kernel {KERNEL}, got {kernel}")
    require_torch()
    require_libraries()
    require_device(device, find_gpu())


def require_torch() -> None:
    """Raise EngineError unless the pinned torch is installed: the libraries fit no other."""
    try:
        found = version("torch")
    except PackageNotFoundError as fault:
        raise EngineError(f"engine vllm: expected torch {TORCH}, found none; {_INSTALL}") from fault
    if found.partition("+")[0] != TORCH:
        raise EngineError(f"engine vllm: wrong torch: expected {TORCH}, got {found}; {_INSTALL}")


def require_libraries() -> Path:
    """The folder of the build's libraries. Raises EngineError for another version or other bytes.

    Without the distribution's metadata, `_moe_C` alone beside torch is enough, and its digest decides.
    """
    try:
        found = version("vllm")
    except PackageNotFoundError:
        found = VLLM
    if found.partition("+")[0] != VLLM:
        raise EngineError(f"engine vllm: wrong vLLM: expected {VLLM}, got {found}; {_INSTALL}")
    folder = library_folder()
    for name, wanted in LIBRARIES.items():
        path = folder / name
        if not path.exists():
            continue
        with path.open("rb") as file:
            got = hashlib.file_digest(file, "sha256").hexdigest()
        if got != wanted:
            raise EngineError(
                f"{path}: expected sha256 {wanted}, the wheel's, got {got}: a rebuilt or patched library"
                f" is another"
                " build; install vllm==0.22.0 from its published wheel"
            )
    return folder


def library_folder() -> Path:
    """Where `_moe_C` lies: in the package `vllm`, found without importing it. Raises EngineError."""
    found = importlib.util.find_spec("vllm")
    places = [] if found is None else [Path(place) for place in found.submodule_search_locations or ()]
    for place in places:
        if (place / MOE).exists():
            return place
    raise EngineError(f"engine vllm: expected vllm {VLLM} with {MOE}, found none; {_INSTALL}")
