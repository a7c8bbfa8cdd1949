"""The numpy GEMM with its passes over K shared by forked processes, where that pays: equal bits.

The kernel itself starts no process, and cold processes, of which a campaign runs several, compute in turn.
"""

from collections.abc import Iterable, Sequence
from functools import partial

from mechanism.kernel.arithmetic import Arithmetic
from mechanism.kernel.gemm import marlin_gemm
from mechanism.kernel.parallel import threads
from mechanism.kernel.sums import SliceSums, Walk, Walked
from mechanism.reexecute.forks import forked

FORK_FROM = 1 << 25  # products of a GEMM: below, another process costs what it saves


class SharedSums(SliceSums):
    """``SliceSums`` by as many processes as ``threads`` says."""

    def walked(self, walks: Sequence[Walk]) -> Iterable[Walked]:
        """As in ``SliceSums``."""
        most = threads() if self.products >= FORK_FROM else 1
        return forked(lambda walk: self.walk(*walk), walks, most=most)


ARITHMETIC = Arithmetic(multiply=partial(marlin_gemm, summed=SharedSums))
