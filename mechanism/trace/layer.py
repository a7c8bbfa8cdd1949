"""One layer opened for tracing: single rows and columns of its operands, whatever store they come from.

A fixture that is in the cache is mapped; otherwise only the experts that are asked for are drawn from the
recipe. Neither is hashed here: what a trace ends with is held against the capture where there is one.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ledger.canonical import digest
from ledger.plan import Fixture, Plan
from mechanism.fixture import recipe, routing
from mechanism.fixture.place import folder_of
from mechanism.fixture.store import load
from mechanism.kernel.dequantize import Weights, as_loaded, dequantize
from mechanism.kernel.rounding import F32, U16, bits16
from mechanism.trace.errors import TraceError

GEMMS = ("w13", "w2")


class LayerView:
    """The operands of a plan's layer. Reading is lazy, and an expert's matrices are kept once read."""

    def __init__(self, plan: Plan, cache: Path) -> None:
        self._plan = plan
        self._fixture = plan.fixture
        self._folder = folder_of(digest(plan.fixture.model_dump(mode="json")), cache)
        self._operands: dict[tuple[str, int], tuple[U16, U16]] = {}

    def hidden(self, token: int) -> U16:
        """Bit patterns of one token's input, (H,)."""
        return bits16(self._inputs["hidden"][token])

    def topk_weight(self, route: int) -> F32:
        """The routing weight of one route, fp32 ()."""
        top_k = self._fixture.top_k
        weight: F32 = self._inputs["topk_weights"][route // top_k, route % top_k]
        return weight

    def operand(self, gemm: str, expert: int) -> U16:
        """Bit patterns of one expert's matrix operand, (K, N), natural column order (6.2, 6.6)."""
        return self._expert(gemm, expert)[0]

    def scales(self, gemm: str, expert: int) -> U16:
        """Bit patterns of one expert's first scale row, (N,): what a channelwise GEMM multiplies by (6.6)."""
        return self._expert(gemm, expert)[1]

    @cached_property
    def stored(self) -> bool:
        """Whether the fixture lies in the cache."""
        return (self._folder / "fixture.json").exists()

    @cached_property
    def _tensors(self) -> Mapping[str, npt.NDArray[Any]]:
        return load(self._folder)

    @cached_property
    def _inputs(self) -> Mapping[str, npt.NDArray[Any]]:
        if self.stored:
            return self._tensors
        fixture = self._recipe()
        return {"hidden": recipe.hidden_states(fixture), "topk_weights": routing.topk_weights(fixture)}

    def _recipe(self) -> Fixture:
        if isinstance(self._fixture, Fixture):
            return self._fixture
        raise TraceError(
            f"{self._folder}: expected the imported fixture of plan {self._plan.name}, found none; import it"
            " again with `mechanism fixture import`"
        )

    def _expert(self, gemm: str, expert: int) -> tuple[U16, U16]:
        key = (gemm, expert)
        if key not in self._operands:
            weights = as_loaded(
                self._packed(gemm, expert),
                group_size=self._fixture.group_size,
                intermediate=self._fixture.intermediate,
            )
            self._operands[key] = bits16(dequantize(weights, 0)), bits16(weights.scales[0, 0])
        return self._operands[key]

    def _packed(self, gemm: str, expert: int) -> Weights:
        """One expert's packed matrix as a layer of one expert."""
        if self.stored:
            parts = {
                part: np.ascontiguousarray(self._tensors[f"{gemm}_{part}"][expert : expert + 1])
                for part in ("qweight", "qzeros", "scales")
            }
            return Weights(**parts)
        made = recipe.projection(self._recipe(), "w13" if gemm == "w13" else "w2", expert)
        return Weights(qweight=made.qweight[None], qzeros=made.qzeros[None], scales=made.scales[None])
