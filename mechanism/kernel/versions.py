"""Kernel builds that compute different bits, as data (marlin-moe appendix A)."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from mechanism.kernel.errors import KernelError
from mechanism.values import frozen


@frozen
class Version:
    """What sets one build of the kernel apart.

    Attributes:
        name: The pin, e.g. ``vllm==0.22.0``.
        interleaved_rows: Warp row w of R owns 16-wide sub-tiles w and w+R of a k-tile, not 2w and 2w+1.
        stream_k: Every tile is part of the striped line of k-tiles; there are no whole-tile rounds.
        fp32_small_sums: The final sum of 2, 3 or 4 routes keeps fp32 until the end.
        single_accumulator: The final sum uses one fp32 accumulator, not four.
        positive_zero_up: The activation adds +0 to the up value, so -0 becomes +0.
        drops_negative_ids: A negative expert id drops its route; elsewhere it is out of bounds memory.
        keeps_invalid_tail: Unused expert_ids hold 0, and the slot buffer is never shrunk.
    """

    name: str
    interleaved_rows: bool = False
    stream_k: bool = False
    fp32_small_sums: bool = False
    single_accumulator: bool = False
    positive_zero_up: bool = False
    drops_negative_ids: bool = False
    keeps_invalid_tail: bool = False


DEFAULT: Final = "vllm==0.22.0"

VERSIONS: Final = MappingProxyType(
    {
        item.name: item
        for item in (
            Version(
                name="vllm==0.11.0",
                interleaved_rows=True,
                stream_k=True,
                fp32_small_sums=True,
                keeps_invalid_tail=True,
            ),
            Version(name=DEFAULT),
            Version(
                name="vllm==0.29.0",
                fp32_small_sums=True,
                single_accumulator=True,
                positive_zero_up=True,
                drops_negative_ids=True,
            ),
        )
    }
)
"""The builds whose arithmetic is known, by pin."""


def version(name: str) -> Version:
    """The build called ``name``.

    Raises:
        KernelError: The arithmetic of that build is not known here.
    """
    if name not in VERSIONS:
        known = ", ".join(VERSIONS)
        raise KernelError(f"kernel {name!r}: its arithmetic is not known; pin one of {known}")
    return VERSIONS[name]
