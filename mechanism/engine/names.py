"""The engines there are, by the name a plan gives them. Imports none of them."""

from mechanism.errors import EngineError

#: Module and factory of every engine of this build of the project.
ENGINES = {"simulated": ("mechanism.engine.simulated", "SimulatedEngine")}


def require_engine(name: str) -> None:
    """Raise EngineError, which says what to do, unless this build of the project has the engine."""
    if name == "vllm":
        raise EngineError(
            "engine vllm: this build of the project has no vllm engine yet; use a plan with engine: simulated"
        )
    if name not in ENGINES:
        raise EngineError(f"engine: expected {' or '.join(ENGINES)}, got {name}")
