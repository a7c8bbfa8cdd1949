"""What the engine `vllm` is pinned to: versions, library digests, numbers of the operators' interface.

The digests are those of the published x86-64 wheel, as its RECORD has them: a library that was rebuilt or
patched is another build, and its bits another cohort's.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

KERNEL: Final = "vllm==0.22.0"
VLLM: Final = "0.22.0"
TORCH: Final = "2.11.0"

#: Needed for every run; `_moe_C` holds alignment, GEMM and final sum.
MOE: Final = "_moe_C.abi3.so"
#: Holds the activation in 0.22.0.
STABLE: Final = "_C_stable_libtorch.abi3.so"
#: Holds the weight repacking, which has a CPU path here (`vllm_repack`).
CORE: Final = "_C.abi3.so"

LIBRARIES: Final[Mapping[str, str]] = MappingProxyType(
    {
        MOE: "285f0ca8ee6556aa6de8bffafb7c1b88f6a9eb44b5d09cf30936c4ca68c3d161",
        STABLE: "ea3992481b4cfeb9d02fb55c7bdf1f6f159fb59b96f9574d19beea14513d3bc5",
        CORE: "1540a319bb8c8db8f4f05490e4b8d45dd2e127fd19dfc33433ba0d51491b51bc",
    }
)
"""sha256 of each shared library by file name."""

#: vLLM's number for unsigned 4-bit weights with zero points (`scalar_types.uint4.id`); also the second
#: template argument of the kernel's symbol.
UINT4: Final = 1125899906843648
#: And of float16, the first, third and fourth template argument.
FLOAT16: Final = 1125899906910725

#: Lock words per multiprocessor that the fused operator allocates (marlin-moe 3).
LOCKS_PER_SM: Final = 4
