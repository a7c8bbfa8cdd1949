"""Where the vectors are, and how a file becomes arrays."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

COMMITTED = Path(__file__).parent / "vectors"


def folder() -> Path:
    """The whole published set if MECHANISM_VECTORS names it, else the committed choice."""
    named = os.environ.get("MECHANISM_VECTORS")
    return Path(named) if named else COMMITTED


def arrays(path: Path) -> dict[str, npt.NDArray[Any]]:
    """All arrays of one file."""
    with np.load(path) as held:
        return {key: held[key] for key in held.files}
