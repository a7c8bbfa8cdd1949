"""Known defects and traps of the builds that a shape meets (marlin-moe 1.2, 1.4, 6.6, 7.4, A.1)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mechanism.explain.gemms import GemmAnswer, stream_k

DEFECT, TRAP = "defect", "trap"


@dataclass(frozen=True, kw_only=True, slots=True)
class Known:
    """One defect of the build, or trap of the arithmetic, that this shape meets."""

    id: str
    kind: str
    says: str
    section: str


def known(
    gemms: tuple[GemmAnswer, ...], *, group: int, intermediate: int, dtype: str, kernel: str, arch: str
) -> tuple[Known, ...]:
    """Everything known that this layer meets; none of it depends on the alignment."""
    return (
        *_permutations(gemms, group=group, intermediate=intermediate, kernel=kernel),
        *_channelwise(gemms),
        *_formats(dtype=dtype, kernel=kernel, arch=arch),
    )


def _permutations(
    gemms: tuple[GemmAnswer, ...], *, group: int, intermediate: int, kernel: str
) -> Iterator[Known]:
    """The choice of scale permutation looks at I for both GEMMs; where it is wrong, columns swap scales."""
    stored = "grouped" if group < intermediate else "single-group"
    for gemm in gemms:
        read = "single-group" if gemm.shape.group == -1 else "grouped"
        if stored == read:
            continue
        yield Known(
            id=f"scale-permutation-{gemm.shape.name}",
            kind=DEFECT,
            says=f"{gemm.shape.name.upper()} scales are stored in the {stored} permutation, because it"
            " is chosen"
            f" by I per rank ({intermediate}) against group {group}, and read as {read}: every output column"
            f" gets the scale of another column of its block of 64. {kernel} computes wrong values here, the"
            " same ones every time; another tensor parallel size, or vLLM's pull request 50196, avoids it",
            section="1.4",
        )


def _channelwise(gemms: tuple[GemmAnswer, ...]) -> Iterator[Known]:
    for gemm in gemms:
        if gemm.shape.group == -1:
            yield Known(
                id=f"channelwise-{gemm.shape.name}",
                kind=TRAP,
                says=f"K of {gemm.shape.name.upper()} ({gemm.shape.k}) is one group, so the kernel"
                " computes it"
                " channelwise: the unscaled sum is rounded to 16 bits first, and in fp16 is infinite"
                " from 65520",
                section="1.4, 6.6",
            )


def _formats(*, dtype: str, kernel: str, arch: str) -> Iterator[Known]:
    if dtype == "bfloat16":
        yield Known(
            id="bf16-scales",
            kind=TRAP,
            says="fp16 scales of a checkpoint are rounded to bf16 when it is loaded: weights differ"
            " from fp16's",
            section="1.2",
        )
    if stream_k(kernel) and (dtype == "float16" or int(arch.removeprefix("sm_")) >= 90):
        yield Known(
            id="atomic-reduction",
            kind=DEFECT,
            says="this build sums the slices of a split tile by 16-bit atomics in whatever order they arrive:"
            " bits of split tiles can change from run to run under one and the same alignment",
            section="7.4, A.1",
        )
