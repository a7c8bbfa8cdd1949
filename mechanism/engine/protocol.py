"""What every engine is: a layer and a treatment in, surfaces and what was really done out.

An engine is asked for a treatment and reports what it delivered; whether the two agree is decided by the
caller (`delivery` in mechanism/process), never by the engine.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Literal, Protocol

import numpy.typing as npt

from mechanism.engine.asked import LaunchRequest, Shape
from mechanism.kernel.alignment import Alignment
from mechanism.values import frozen

Array = npt.NDArray[Any]


@frozen(eq=False)
class Layer:
    """One layer with its inputs.

    Attributes:
        shape: Its sizes.
        kernel: The pinned build.
        arch: Architecture of the pinned device.
        tensors: Packed weights, scales, zero points, hidden states and routing weights, by name.
        topk_ids: Expert of every (token, slot).
    """

    shape: Shape
    kernel: str
    arch: str
    tensors: Mapping[str, Array]
    topk_ids: Sequence[Sequence[int]]


@frozen
class Constructed:
    """An alignment that the engine built under a history, and the assumptions that this rests on."""

    alignment: Alignment
    assumptions: tuple[str, ...]


@frozen
class Treatment:
    """What is to be delivered: an alignment, and the launches of w13 and w2."""

    alignment: Alignment
    launches: tuple[LaunchRequest, LaunchRequest]


Slices = tuple[tuple[int, int, tuple[tuple[int, int, int], ...]], ...]


@frozen
class ExecutedGemm:
    """One launch as executed.

    `slices`: (block, column tile, ((cta, begin, end), ...)), k-tiles ascending. `symbol` names the kernel.
    """

    name: Literal["w13", "w2"]
    tile_k: int
    tile_n: int
    threads: int
    grid: int
    symbol: str
    slices: Slices


@frozen(eq=False)
class Result:
    """What one execution left behind.

    Attributes:
        surfaces: All four tensors by name, float16, or uint16 that holds bfloat16 bits.
        alignment: The alignment that was used.
        gemms: w13 and w2 as executed.
        assumptions: Those of the specification that the bits rest on.
        candidate: Which silu the open gate values were given (marlin-moe 8.1, U2).
        ambiguous_elements: How many captured gate values are open.
    """

    surfaces: Mapping[str, Array]
    alignment: Alignment
    gemms: tuple[ExecutedGemm, ExecutedGemm]
    assumptions: tuple[str, ...]
    candidate: Literal["rn32", "device"]
    ambiguous_elements: int


@frozen
class Identity:
    """What an engine adds to the software identity of a cohort.

    Attributes:
        evidence: Whether a GPU took part.
        arithmetic: What the bits come from.
        driver: The GPU driver's version.
        versions: By distribution name.
        device: The device as found, beside what the plan pins.
        libraries: sha256 of every shared library that took part, by file name.
    """

    evidence: Literal["simulated", "gpu"]
    arithmetic: str
    driver: str | None
    versions: Mapping[str, str]
    device: Mapping[str, str | int] = field(default_factory=dict)
    libraries: Mapping[str, str] = field(default_factory=dict)


class Engine(Protocol):
    """One implementation of the layer. Engines hold no state between calls."""

    @property
    def name(self) -> str:
        """The name that plans give it."""

    def identity(self) -> Identity:
        """What is computing."""

    def apply(self, arrival: Mapping[str, Any], layer: Layer) -> Any:
        """Make a history happen; what is returned is handed to `construct` as it is."""

    def construct(self, history: Any, layer: Layer) -> Constructed:
        """The alignment that the layer gets under a history."""

    def execute(self, treatment: Treatment, layer: Layer) -> Result:
        """Run the layer once."""
