"""Whether an engine delivered what it was asked for; if not, there is no record."""

from collections.abc import Iterator

import numpy as np

from ledger.canonical import sha256
from mechanism.engine.asked import LaunchRequest
from mechanism.engine.protocol import ExecutedGemm, Layer, Result, Treatment
from mechanism.errors import CellError
from mechanism.kernel.schedule import Schedule
from mechanism.process.documents import alignment_bytes

_STORED = {"float16": np.dtype("float16"), "bfloat16": np.dtype("uint16")}


def require_delivered(asked: Treatment, result: Result, layer: Layer, *, surfaces: tuple[str, ...]) -> None:
    """Raise CellError naming everything in which the result is not the treatment asked for."""
    found = [
        f"{what}: expected {expected}, got {got}"
        for what, expected, got in (*_alignment(asked, result), *_gemms(asked, result, layer))
        if expected != got
    ]
    found += _surfaces(result, layer, surfaces)
    if found:
        raise CellError(f"the engine did not deliver the treatment: {'; '.join(found)}")


Facts = Iterator[tuple[str, object, object]]


def _alignment(asked: Treatment, result: Result) -> Facts:
    left, right = asked.alignment, result.alignment
    yield "alignment", sha256(alignment_bytes(left)), sha256(alignment_bytes(right))
    yield "alignment.sorted_length", left.sorted_length, right.sorted_length
    yield "alignment.expert_length", left.expert_length, right.expert_length


def _gemms(asked: Treatment, result: Result, layer: Layer) -> Facts:
    for launch, gemm in zip(asked.launches, result.gemms, strict=True):
        for key in ("name", "tile_k", "tile_n", "threads", "grid"):
            yield f"{launch.name}.{key}", getattr(launch, key), getattr(gemm, key)
        tile = _differing_tile(launch, gemm, asked, layer)
        if tile is not None:
            yield f"{launch.name}: slices of tile {tile}", f"those of {launch.grid} CTAs", "others"


def _differing_tile(
    launch: LaunchRequest, gemm: ExecutedGemm, asked: Treatment, layer: Layer
) -> tuple[int, int] | None:
    """The first (block, column tile) whose executed slices are not those of the launch asked for."""
    shape = layer.shape
    first = launch.name == "w13"
    n, k = (2 * shape.intermediate, shape.hidden) if first else (shape.hidden, shape.intermediate)
    schedule = Schedule(
        n=n,
        k=k,
        tile_k=launch.tile_k,
        tile_n=launch.tile_n,
        grid=launch.grid,
        padded_blocks=len(asked.alignment.expert_ids),
        group=shape.group_size if k > shape.group_size else -1,
        kernel=layer.kernel,
    )
    executed = {(block, column): slices for block, column, slices in gemm.slices}
    for tile in schedule:
        place = (tile.block, tile.column_tile)
        if executed.pop(place, ()) != tuple((s.cta, s.begin, s.end) for s in tile.slices):
            return place
    return next(iter(executed), None)


def _surfaces(result: Result, layer: Layer, surfaces: tuple[str, ...]) -> list[str]:
    shape = layer.shape
    routes = shape.tokens * shape.top_k
    shapes = {
        "w13": (routes, 2 * shape.intermediate),
        "activation": (routes, shape.intermediate),
        "w2": (routes, shape.hidden),
        "output": (shape.tokens, shape.hidden),
    }
    found = []
    for name in surfaces:
        array = result.surfaces.get(name)
        if array is None:
            found.append(f"surface {name}: expected one, got none")
        elif array.shape != shapes[name] or array.dtype != _STORED[shape.dtype]:
            found.append(
                f"surface {name}: expected {shape.dtype} {shapes[name]}, got {array.dtype} {array.shape}"
            )
    return found
