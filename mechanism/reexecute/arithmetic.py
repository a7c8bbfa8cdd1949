"""Who computes: the implementations of the arithmetic by name, equal in every bit."""

from importlib import import_module

from mechanism.errors import EngineError
from mechanism.kernel.arithmetic import Arithmetic

#: `numpy` starts at once; `numba` needs the extra `fast` and a compilation, then is the faster one.
ARITHMETICS = {"numpy": "mechanism.reexecute.shared", "numba": "mechanism.kernel.compiled"}


def arithmetic_of(name: str) -> Arithmetic:
    """That of a name. Raises EngineError for one that is unknown, or whose extra is not installed."""
    if name not in ARITHMETICS:
        raise EngineError(f"--arithmetic: expected {' or '.join(ARITHMETICS)}, got {name}")
    try:
        module = import_module(ARITHMETICS[name])  # here: numba is an extra, and slow to load
    except ModuleNotFoundError as missing:
        raise EngineError(
            f"--arithmetic {name}: {missing.name} is missing; in the project: pip install -e '.[fast]'"
        ) from missing
    found: Arithmetic = module.ARITHMETIC
    return found
