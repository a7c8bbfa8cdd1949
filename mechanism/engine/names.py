"""The engines there are, by the name a plan gives them. Imports none of them."""

from collections.abc import Mapping

from mechanism.errors import EngineError

#: Module and factory of every engine of this build of the project.
ENGINES = {
    "simulated": ("mechanism.engine.simulated", "SimulatedEngine"),
    "vllm": ("mechanism.engine.vllm_engine", "VllmEngine"),
}
#: The extra that an engine's module needs.
EXTRAS = {"simulated": "run", "vllm": "gpu"}


def require_machine(name: str, *, kernel: str, device: Mapping[str, str | int]) -> None:
    """Raise EngineError unless this machine can run the engine as the plan pins it; nothing is started."""
    if name == "vllm":
        from mechanism.engine.vllm_ready import require_ready  # noqa: PLC0415 - for this engine alone

        require_ready(kernel, device)


def require_engine(name: str) -> None:
    """Raise EngineError, which says what to do, unless this build of the project has the engine."""
    if name not in ENGINES:
        raise EngineError(f"engine: expected {' or '.join(ENGINES)}, got {name}")
