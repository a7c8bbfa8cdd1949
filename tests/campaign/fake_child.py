"""The real child with an engine of ours: no arithmetic, and as wrong as the file of fakes says for this cell."""

import json
import os
import resource
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from mechanism.engine import identity
from mechanism.engine.asked import LaunchRequest
from mechanism.engine.protocol import Constructed, ExecutedGemm, Identity, Layer, Result, Treatment
from mechanism.engine.simulated import SimulatedEngine
from mechanism.kernel.alignment import stable
from mechanism.kernel.schedule import Schedule
from mechanism.process import child, files
from mechanism.process.request import read_request
from mechanism.process.steps import Markers


class FakeEngine:
    """Surfaces made of the alignment's slots and the grid; everything else as it should be, or not."""

    name = "simulated"

    def __init__(self, behaviour: str) -> None:
        self.behaviour = behaviour

    def identity(self) -> Identity:
        """Of nothing."""
        return Identity(evidence="simulated", arithmetic="fake", driver=None, versions={"fake": "1"})

    def apply(self, arrival: Mapping[str, Any], layer: Layer) -> Any:
        """As the simulated engine."""
        return SimulatedEngine().apply(arrival, layer)

    def construct(self, history: Any, layer: Layer) -> Constructed:
        """As the simulated engine."""
        return SimulatedEngine().construct(history, layer)

    def execute(self, treatment: Treatment, layer: Layer) -> Result:
        """No arithmetic; deliver what the behaviour says."""
        if self.behaviour == "other-alignment":
            other = stable(
                layer.topk_ids, experts=layer.shape.experts, block_size_m=treatment.alignment.block_size_m
            )
            treatment = replace(treatment, alignment=other)
        pinned = 24  # 8 SMs, 3 CTAs each: what an engine launches that does not listen
        grids = [launch.grid for launch in treatment.launches]
        told = [pinned, pinned] if self.behaviour == "ignore-grid" else grids
        done = [pinned, pinned] if self.behaviour in {"ignore-grid", "lie-about-grid"} else grids
        slots = np.asarray(treatment.alignment.sorted_token_ids, dtype=np.float16)
        shape = layer.shape
        routes = shape.tokens * shape.top_k
        sizes = {
            "w13": (routes, 2 * shape.intermediate),
            "activation": (routes, shape.intermediate),
            "w2": (routes, shape.hidden),
            "output": (shape.tokens, shape.hidden),
        }
        surfaces = {name: np.resize(np.append(slots, done[0]), size) for name, size in sizes.items()}
        if self.behaviour == "wrong-shape":
            surfaces["w2"] = surfaces["w2"][1:]
        w13, w2 = (
            self._gemm(launch, treatment, layer, told=told[place], done=done[place])
            for place, launch in enumerate(treatment.launches)
        )
        return Result(
            surfaces={name: array.astype(np.float16) for name, array in surfaces.items()},
            alignment=treatment.alignment,
            gemms=(w13, w2),
            assumptions=("U2", "U3"),
            candidate="rn32",
            ambiguous_elements=0,
        )

    def _gemm(
        self, launch: LaunchRequest, treatment: Treatment, layer: Layer, *, told: int, done: int
    ) -> ExecutedGemm:
        shape = layer.shape
        first = launch.name == "w13"
        n, k = (2 * shape.intermediate, shape.hidden) if first else (shape.hidden, shape.intermediate)
        schedule = Schedule(
            n=n,
            k=k,
            tile_k=launch.tile_k,
            tile_n=launch.tile_n,
            grid=done,
            padded_blocks=len(treatment.alignment.expert_ids),
            group=shape.group_size if k > shape.group_size else -1,
        )
        return ExecutedGemm(
            name="w13" if first else "w2",
            tile_k=launch.tile_k,
            tile_n=launch.tile_n,
            threads=launch.threads,
            grid=told,
            symbol="simulated:fake",
            slices=tuple(
                (tile.block, tile.column_tile, tuple((s.cta, s.begin, s.end) for s in tile.slices))
                for tile in schedule
            ),
        )


def main(path: str) -> int:
    """Run the cell, badly if it is told to."""
    request = read_request(Path(path).read_bytes())
    fakes = json.loads(Path(os.environ["FAKES"]).read_text())
    behaviour = fakes.get(f"{request.cell}.{request.history}.{request.replicate}", fakes.get("*", ""))
    word, _, argument = behaviour.partition("=")
    if word == "file-size-limit":
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(argument), int(argument)))
    if word == "pause-at":
        _pause_at(*argument.split(":", 1))
    if word == "slow-disk":
        _slow_disk(float(argument))
    # the tree may be edited while tests run; which files count is tested elsewhere
    identity.source_files = _one_file
    return child.main([path], opened=lambda _name: FakeEngine(word))


def _pause_at(marker: str, place: str) -> None:
    """Once the marker is passed: say so in a file, and wait to be killed."""
    mark = Markers.mark

    def pausing(self: Markers, name: str) -> None:
        mark(self, name)
        if name == marker:
            Path(place).write_text(str(os.getpid()))
            time.sleep(60)

    Markers.mark = pausing  # type: ignore[method-assign]


def _slow_disk(seconds: float) -> None:
    """Every file takes so long to be written."""
    write = files.write_once

    def slow(path: Path, data: bytes, *, durable: bool = True) -> None:
        time.sleep(seconds)
        write(path, data, durable=durable)

    files.write_once = slow


def _one_file(engine: str = "simulated") -> Iterator[tuple[str, str]]:
    del engine
    yield "mechanism/fake.py", "0" * 64


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
