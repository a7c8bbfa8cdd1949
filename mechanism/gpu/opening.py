"""This machine's GPU with the pinned build's operators, for the commands that need both."""

from typing import Any

from mechanism.engine.gpu_identity import Gpu, find_gpu
from mechanism.engine.vllm_ready import require_torch


def open_gpu() -> tuple[Any, Gpu]:
    """Operators and device. Raises EngineError, before torch is loaded, without a GPU or the build."""
    gpu = find_gpu()
    require_torch()
    from mechanism.engine.vllm_operators import Operators  # noqa: PLC0415 - torch

    return Operators(), gpu
