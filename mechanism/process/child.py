"""The cold process: reads its request, runs one replicate, ends.

Started as `python -s -P -m mechanism.process.child FILE`, with the plan's environment and in `/`.
Exit codes are in `exits`. A refusal is one line on stderr, anything unexpected a traceback.
"""

import gc
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

if __name__ == "__main__":
    gc.disable()  # a process that ends within seconds leaves its cycles behind

from mechanism.engine.names import ENGINES
from mechanism.engine.open import open_engine
from mechanism.engine.protocol import Engine
from mechanism.errors import EngineError, MechanismError
from mechanism.fixture.errors import FixtureError
from mechanism.kernel.errors import KernelError
from mechanism.process import exits
from mechanism.process.request import CellRequest, read_request
from mechanism.process.steps import run_cell


def main(arguments: Sequence[str], *, opened: Callable[[str], Engine] = open_engine) -> int:
    """Run the cell whose request file is the one argument; returns the exit code.

    `opened` gives the engine by its name; tests aim it at engines of theirs.
    """
    try:
        request = _request(arguments)
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as fault:
        return _refuse(
            exits.REQUEST, ValueError(f"expected the path of a request file as the one argument: {fault}")
        )
    if request.engine == "vllm":
        # what the driver compiles for sm_90 and later stays in the run; it is read when CUDA starts
        os.environ["CUDA_CACHE_PATH"] = str(Path(request.staging).parent / "jit-cache")
    try:
        run_cell(request, opened(request.engine))
    except EngineError as fault:
        return _refuse(exits.ENGINE, fault)
    except FixtureError as fault:
        return _refuse(exits.FIXTURE, fault)
    except (MechanismError, KernelError) as fault:
        return _refuse(exits.CELL, fault)
    except OSError as fault:
        return _refuse(exits.STORAGE, fault)
    return exits.RECORDED


def _request(arguments: Sequence[str]) -> CellRequest:
    (path,) = arguments
    return read_request(Path(path).read_bytes())


def _refuse(code: int, fault: Exception) -> int:
    message = " ".join(str(fault).split())
    sys.stderr.write(f"{type(fault).__name__}: {message}\n")
    return code


def _leave(code: int) -> NoReturn:
    """End without taking apart what is gone with the process anyway; a driver of a GPU has its own to do."""
    if ENGINES["vllm"][0] in sys.modules:
        sys.exit(code)
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    _leave(main(sys.argv[1:]))
