"""How a grid reaches the unmodified operator, which launches SM count times CTAs per SM and nothing else.

A multiple of the SM count is asked for by `blocks_per_sm`. Any other grid takes an interposer for the one
device attribute that the launch reads (`vllm_interpose`): told of `sms` multiprocessors, the operator
launches sms * blocks_per_sm CTAs. Pure.
"""

from dataclasses import dataclass

from mechanism.errors import EngineError
from mechanism.kernel.configuration import shared_memory
from mechanism.kernel.devices import Device, registers
from mechanism.kernel.errors import ConfigurationError
from mechanism.kernel.schedule import Schedule


@dataclass(frozen=True, kw_only=True, slots=True)
class Told:
    """What the operator is told. `sms`: multiprocessors it is to read; None for the device's own."""

    blocks_per_sm: int
    sms: int | None


def told(schedule: Schedule, device: Device, *, threads: int, block_size_m: int) -> Told:
    """How the grid of `schedule` is delivered on `device`.

    CTAs of a split tile wait for each other, so all of them must be resident at once, or nothing be split.
    Raises EngineError if no number of CTAs per SM gives the grid, fits and cannot hang.
    """
    most = 4 if block_size_m <= 16 else 2  # marlin-moe 4.3
    fitting = [
        count
        for count in range(1, most + 1)
        if schedule.grid % count == 0 and _fits(schedule, device, count, threads, block_size_m)
    ]
    for count in fitting:
        if schedule.grid == count * device.sms:
            return Told(blocks_per_sm=count, sms=None)
    resident = [count for count in fitting if schedule.grid <= count * device.sms]
    if resident or (fitting and schedule.single_slice):
        count = (resident or fitting)[0]
        return Told(blocks_per_sm=count, sms=schedule.grid // count)
    raise EngineError(
        f"grid {schedule.grid}: cannot be delivered on {device.sms} multiprocessors: tile {schedule.tile_k}x"
        f"{schedule.tile_n} fits with {', '.join(map(str, fitting)) or 'no'} CTAs per SM, and CTAs of a"
        f" split tile"
        " wait for each other, so all must be resident; choose a grid that is, or one that splits no tile"
    )


def _fits(schedule: Schedule, device: Device, count: int, threads: int, block_size_m: int) -> bool:
    """Whether `count` CTAs share a multiprocessor: shared memory (4.3, end), and registers where known."""
    cache = shared_memory(
        block_size_m=block_size_m, tile_k=schedule.tile_k, tile_n=schedule.tile_n, group=schedule.group
    )
    limit = device.shared_memory // count - (1024 if count > 1 else 0)
    if cache > limit - 512:
        return False
    try:
        held = registers(
            arch=device.arch,
            dtype="float16",
            block_size_m=block_size_m,
            tile_k=schedule.tile_k,
            tile_n=schedule.tile_n,
            group=schedule.group,
        )
    except ConfigurationError:
        return True  # counts nobody has read: the launch itself will say
    return held is None or 261_120 // (held * threads * 4) >= count
