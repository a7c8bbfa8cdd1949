"""One canonical layer, from the recipe, in asymmetric and symmetric form."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from ledger.model import read_json
from ledger.plan import Fixture
from mechanism.checkpoint.layer import weights_digest
from mechanism.fixture import packing, recipe

sys.path.insert(0, str(Path(__file__).parent))

Array = npt.NDArray[Any]

FIXTURE: dict[str, Any] = {
    "recipe": "packed-awq/1",
    "seed": 11,
    "seeds_scanned": 0,
    "tokens": 3,
    "experts": 4,
    "top_k": 2,
    "hidden": 128,
    "intermediate": 64,
    "group_size": 32,
    "dtype": "float16",
    "twin_pairs": 0,
    "routing": {"seed": 1, "pinned": [], "dealt": [{"first": 0, "last": 3, "count": 4}]},
}


@pytest.fixture(scope="session")
def layer() -> Mapping[str, Array]:
    """The six weight tensors of a small layer with zero points of every kind."""
    fixture = read_json(Fixture, FIXTURE, name="small")
    found: dict[str, Array] = {}
    for gemm in ("w13", "w2"):
        made = [recipe.projection(fixture, gemm, expert) for expert in range(4)]
        for part in ("qweight", "qzeros", "scales"):
            found[f"{gemm}_{part}"] = np.stack([getattr(one, part) for one in made])
    return found


@pytest.fixture(scope="session")
def symmetric(layer: Mapping[str, Array]) -> Mapping[str, Array]:
    """The same codes and scales with every zero point 8."""
    eight = {
        name: packing.pack(np.full((*array.shape[:-1], 8 * array.shape[-1]), 8, dtype=np.uint8))
        for name, array in layer.items()
        if name.endswith("qzeros")
    }
    return {**layer, **eight}


@pytest.fixture(scope="session")
def canonical_digest(layer: Mapping[str, Array]) -> str:
    return weights_digest(layer)


@pytest.fixture(scope="session")
def hidden() -> npt.NDArray[np.float16]:
    return recipe.hidden_states(read_json(Fixture, FIXTURE, name="small"))
