"""What the specification could not settle from source, by id (marlin-moe appendix C)."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Final


@dataclass(frozen=True, kw_only=True, slots=True)
class Assumption:
    """One unsettled point: what the simulation takes for granted and how a GPU would settle it."""

    id: str
    says: str
    check: str


_ALL: Final = (
    Assumption(
        id="U1",
        says="register counts after driver compilation on sm_90 and later are those of ptxas 13.0"
        " (they decide tile and grid)",
        check="cudaFuncGetAttributes on the loaded kernel, or a profiler's grid, block and template",
    ),
    Assumption(
        id="U2",
        says="EX2 returns the correctly rounded 2^r for the 15 fp16 (and the ambiguous bf16) gate values"
        " whose silu depends on it",
        check="evaluate silu on the device for these inputs, once per architecture",
    ),
    Assumption(
        id="U3",
        says="a row's matrix-instruction result does not depend on its position in the padded block",
        check="run the same rows in permuted slots and compare bits",
    ),
    Assumption(
        id="U4",
        says="NaNs are canonical: 0x7FFF in fp16 and bf16, 0x7FFFFFFF in fp32",
        check="inject NaN and Inf and dump bits; otherwise treat all NaNs as equal",
    ),
    Assumption(
        id="U5",
        says="the atomics of one warp may be served in any lane order",
        check="repeat the alignment operator many times and histogram its slot orders",
    ),
    Assumption(
        id="U6",
        says="no bias is added to a channelwise product (which columns contract is unknown)",
        check="disassemble the exact kernel; AWQ checkpoints have no bias",
    ),
    Assumption(
        id="U7",
        says="the final sum of one route returns it, -0 as +0; the order of four accumulators holds below 64",
        check="run moe_sum on a device for top_k 1 and for 64 and more",
    ),
    Assumption(
        id="U8",
        says="PyTorch 2.8 sums with the same four accumulators as 2.11 (vllm 0.11.0 only)",
        check="read the reduction header of that version",
    ),
    Assumption(
        id="U9",
        says="vllm 0.29.0 chooses the Marlin backend for AWQ with zero points",
        check="the log line that names the backend",
    ),
    Assumption(
        id="U10",
        says="the relative error of EX2 is at most 2^-22, so that only the listed gate values are ambiguous",
        check="the PTX manual; a recorded table of all 65,536 gate values makes it moot",
    ),
)

ASSUMPTIONS: Final = MappingProxyType({item.id: item for item in _ALL})
"""Every assumption by its id, U1 to U10."""
