"""What was launched, read back from the torch profiler's trace: symbol, tile, grid, threads, registers. Pure.

The kernel's symbol carries its template arguments: four type numbers, threads, blocks of 16 in m, n and k,
whether rows come in eights, pipeline stages, blocks of 16 per scale group, and whether zero points are
floats.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mechanism.errors import EngineError

_KERNEL = re.compile(r"\bMarlin<(?P<arguments>[^>]*)>")
_CAST = re.compile(r"\((?:int|long|bool|long long)\)")


@dataclass(frozen=True, kw_only=True, slots=True)
class Launched:
    """One launch of the Marlin kernel.

    Attributes:
        symbol: The kernel's name with its template arguments.
        grid: CTAs.
        threads: Threads per CTA.
        tile_k: K extent of a tile, from the symbol.
        tile_n: N extent of a tile, from the symbol.
        eights: Whether padded blocks have 8 rows.
        group: Rows of K per scale, or -1.
        registers: Per thread, of the code that ran; on sm_90 and later the driver compiled it (U1).
        shared_memory: Bytes per CTA that the launch asked for.
    """

    symbol: str
    grid: int
    threads: int
    tile_k: int
    tile_n: int
    eights: bool
    group: int
    registers: int
    shared_memory: int

    def words(self) -> str:
        """The symbol with what the driver made of it, for a record."""
        return f"{self.symbol} registers={self.registers} shared_memory={self.shared_memory}"


def launches(trace: Mapping[str, Any]) -> tuple[Launched, ...]:
    """Every Marlin launch of a Chrome trace, in the order in which they started on the device.

    Raises EngineError for a trace without device activity: the profiler could not look.
    """
    events = [event for event in trace.get("traceEvents", ()) if event.get("cat") == "kernel"]
    if not events:
        raise EngineError(
            "profiler: expected kernels in the trace, got none, so nothing delivered can be read back; the"
            " profiler"
            " needs CUPTI and the right to use it (NVreg_RestrictProfilingToAdminUsers=0, or root)"
        )
    events.sort(key=lambda event: float(event["ts"]))
    return tuple(_launched(event) for event in events if _KERNEL.search(event["name"]))


def _launched(event: Mapping[str, Any]) -> Launched:
    found = _KERNEL.search(event["name"])
    arguments = [] if found is None else _CAST.sub("", found["arguments"]).split(",")
    values = [argument.strip().rstrip("lL") for argument in arguments]
    if len(values) != 12:
        raise EngineError(
            f"kernel symbol: expected 12 template arguments, got {len(values)}: {event['name'][:200]}"
        )
    facts = event["args"]
    threads, _, n_blocks, k_blocks = (int(value) for value in values[4:8])
    grid, block = facts["grid"], facts["block"]
    if block[0] * block[1] * block[2] != threads:
        raise EngineError(f"kernel: expected {threads} threads by its symbol, got a block of {block}")
    group_blocks = int(values[10])
    return Launched(
        symbol=f"marlin_moe_wna16::Marlin<{', '.join(values)}>",
        grid=grid[0] * grid[1] * grid[2],
        threads=threads,
        tile_k=16 * k_blocks,
        tile_n=16 * n_blocks,
        eights=values[8] in ("true", "1"),
        group=group_blocks if group_blocks < 0 else 16 * group_blocks,
        registers=int(facts["registers per thread"]),
        shared_memory=int(facts["shared memory"]),
    )
