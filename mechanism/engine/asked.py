"""What an engine is asked for, in numbers alone: the runner writes these, and it has no numpy."""

from mechanism.values import frozen


@frozen
class LaunchRequest:
    """One GEMM launch to deliver; `grid` is the cell's, in CTAs.

    `chosen_by: kernel` leaves tile and grid to the operator, and expects these; `plan` tells it.
    """

    name: str
    tile_k: int
    tile_n: int
    threads: int
    grid: int
    chosen_by: str = "plan"


@frozen
class Shape:
    """The layer's sizes. `block_size_m`: rows of a padded block."""

    tokens: int
    experts: int
    top_k: int
    hidden: int
    intermediate: int
    group_size: int
    dtype: str
    block_size_m: int
