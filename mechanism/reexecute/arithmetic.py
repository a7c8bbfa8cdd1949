"""Who computes: the implementations of the GEMM by name, equal in every bit."""

from importlib import import_module

from mechanism.errors import EngineError
from mechanism.kernel.gemm import Multiply

#: `numpy` starts at once; `numba` needs the extra `fast` and a compilation, then is the faster one.
ARITHMETICS = {"numpy": "mechanism.reexecute.shared", "numba": "mechanism.kernel.compiled"}


def multiply_of(name: str) -> Multiply:
    """The GEMM of that name. Raises EngineError for one that is unknown, or whose extra is not installed."""
    if name not in ARITHMETICS:
        raise EngineError(f"--arithmetic: expected {' or '.join(ARITHMETICS)}, got {name}")
    try:
        found: Multiply = import_module(
            ARITHMETICS[name]
        ).marlin_gemm  # here: numba is an extra, and slow to load
    except ModuleNotFoundError as missing:
        raise EngineError(
            f"--arithmetic {name}: {missing.name} is missing; in the project: pip install -e '.[fast]'"
        ) from missing
    return found
