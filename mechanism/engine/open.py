"""Opening an engine by name, in the process that will run it."""

import importlib

from mechanism.engine.names import ENGINES, EXTRAS, require_engine
from mechanism.engine.protocol import Engine
from mechanism.errors import EngineError


def open_engine(name: str) -> Engine:
    """The engine a plan names. Raises EngineError if this build has none of that name, or cannot load it."""
    require_engine(name)
    module, factory = ENGINES[name]
    try:
        loaded: Engine = getattr(importlib.import_module(module), factory)()
    except ImportError as fault:
        raise EngineError(
            f"engine {name}: cannot be loaded: {fault}; install the extra `{EXTRAS[name]}`"
        ) from fault
    return loaded
