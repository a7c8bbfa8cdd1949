"""One element of one surface under one alignment, traced (marlin-moe 6 to 8, 10)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ledger.plan import Plan
from mechanism.kernel import versions
from mechanism.kernel.activation import silu_and_mul
from mechanism.kernel.alignment import Alignment, block_of, block_routes
from mechanism.kernel.rounding import F32, U16, add, bits16, multiply, narrow, widen
from mechanism.kernel.schedule import Schedule
from mechanism.kernel.silu import silu
from mechanism.kernel.tensor_core import Rules, rules
from mechanism.plan import geometry
from mechanism.trace.arithmetic import TileSum, tile_sum
from mechanism.trace.layer import LayerView
from mechanism.trace.story import ElementStory, GemmStory, SliceStory, Step, Value


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """What one history does to the layer: its alignment, and the schedules of w13 and w2."""

    history: str
    alignment: Alignment
    schedules: tuple[Schedule, Schedule]


class Tracer:
    """Traces elements of one layer. float16 only, as fixtures are."""

    def __init__(self, plan: Plan, layer: LayerView) -> None:
        self._layer, self._fixture, self._kernel = layer, plan.fixture, plan.build.kernel
        self._dtype = plan.fixture.dtype
        self._rule: Rules = rules(plan.build.device.arch, self._dtype)
        self._rows: dict[tuple[int, int, int, Schedule], U16] = {}
        self._channelwise = {gemm.name: gemm.group == -1 for gemm in geometry.gemms(plan.fixture)}

    def element(
        self, run: Run, surface: str, row: int, column: int, *, other: Run | None = None
    ) -> ElementStory:
        """The story of one element; `other` only counts how many inputs of a w2 element differ there."""
        if surface == "w13":
            return ElementStory(
                history=run.history, gemms=(self._w13(run, row, column),), steps=(), inputs_differ=0
            )
        if surface == "activation":
            return self._activation(run, row, column)
        differ = 0
        if surface == "w2":
            mine = self.activation_row(run, row)
            if other is not None:
                differ = int((mine != self.activation_row(other, row)).sum())
            return ElementStory(
                history=run.history, gemms=(self._w2(run, row, column, mine),), steps=(), inputs_differ=differ
            )
        return self._output(run, row, column)

    def activation_row(self, run: Run, route: int) -> U16:
        """Bit patterns of one row of the activation, (I,): the input of the second GEMM."""
        block = block_of(run.alignment, route)
        # all that decides the row: histories share those of routes that did not move
        key = (route, block, run.alignment.expert_ids[block], run.schedules[0])
        if key not in self._rows:
            self._rows[key] = self._activation_row(run, route, block)
        return self._rows[key]

    def _activation_row(self, run: Run, route: int, block: int) -> U16:
        schedule = run.schedules[0]
        operand = self._layer.operand("w13", run.alignment.expert_ids[block])
        x = self._layer.hidden(route // self._fixture.top_k)
        parts = []
        for tile in range(schedule.n_tiles):
            columns = slice(tile * schedule.tile_n, (tile + 1) * schedule.tile_n)
            found = tile_sum(x, operand[:, columns], schedule, block, tile, self._rule, dtype=self._dtype)
            parts.append(found.whole)
        rounded = self._finished("w13", run.alignment.expert_ids[block], np.concatenate(parts), slice(None))
        return bits16(silu_and_mul(rounded[np.newaxis], dtype=self._dtype, kernel=self._kernel).output[0])

    def _finished(self, gemm: str, expert: int, whole: F32, columns: slice) -> U16:
        """RN16 of the sums, then the column scale of a channelwise GEMM (6.6, 7.2)."""
        rounded = narrow(whole, self._dtype)
        if self._channelwise[gemm]:
            scales = self._layer.scales(gemm, expert)[columns].view(np.float16)
            rounded = multiply(widen(rounded), widen(scales), self._dtype)
        return rounded  # type: ignore[return-value]

    def _w13(self, run: Run, route: int, column: int) -> GemmStory:
        x = self._layer.hidden(route // self._fixture.top_k)
        return self._gemm(run, "w13", route, column, x)

    def _w2(self, run: Run, route: int, column: int, x: U16) -> GemmStory:
        return self._gemm(run, "w2", route, column, x)

    def _gemm(self, run: Run, gemm: str, route: int, column: int, x: U16) -> GemmStory:
        schedule = run.schedules[gemm == "w2"]
        block = block_of(run.alignment, route)
        expert = run.alignment.expert_ids[block]
        tile = column // schedule.tile_n
        w = self._layer.operand(gemm, expert)[:, column : column + 1]
        found = tile_sum(x, w, schedule, block, tile, self._rule, dtype=self._dtype)
        return GemmStory(
            gemm=gemm,
            route=route,
            column=column,
            expert=expert,
            block=block,
            slot=block_routes(run.alignment, block).index(route),
            column_tile=tile,
            part=schedule.part(block, tile),
            slices=tuple(
                SliceStory(
                    cta=item.part.cta,
                    k=(item.part.begin * schedule.tile_k, item.part.end * schedule.tile_k),
                    warp_rows=tuple(value32(row) for row in item.warp_rows),
                    total=value32(item.total),
                )
                for item in found.slices
            ),
            adds=_adds(found),
            roundings=self._roundings(gemm, expert, route, column, found.whole),
        )

    def _roundings(self, gemm: str, expert: int, route: int, column: int, whole: F32) -> tuple[Step, ...]:
        rounded = narrow(whole, self._dtype)
        steps = [Step(label="RN16(sum)", value=value16(rounded), section="7.2")]
        if self._channelwise[gemm]:
            rounded = self._finished(gemm, expert, whole, slice(column, column + 1))
            steps.append(Step(label="RN16(* column scale)", value=value16(rounded), section="6.6"))
        if gemm == "w2":
            weight = narrow(self._layer.topk_weight(route).reshape(1), self._dtype)
            steps.append(Step(label="RN16(routing weight)", value=value16(weight), section="7.3"))
            rounded = multiply(widen(rounded), widen(weight), self._dtype)
            steps.append(Step(label="RN16(* routing weight)", value=value16(rounded), section="7.3"))
        return tuple(steps)

    def _activation(self, run: Run, route: int, column: int) -> ElementStory:
        gate = self._w13(run, route, column)
        up = self._w13(run, route, self._fixture.intermediate + column)
        pair = np.array([[gate.final.bits, up.final.bits]], dtype=np.uint16).view(np.float16)
        product = silu_and_mul(pair, dtype=self._dtype, kernel=self._kernel).output[0]
        h = silu(bits16(pair)[0, :1], self._dtype)
        return ElementStory(
            history=run.history,
            gemms=(gate, up),
            steps=(
                Step(label="RN16(silu(gate))", value=value16(h.view(np.float16)), section="8.1"),
                Step(label="RN16(* up)", value=value16(product), section="8.1"),
            ),
            inputs_differ=0,
        )

    def _output(self, run: Run, token: int, column: int) -> ElementStory:
        top_k = self._fixture.top_k
        routes = range(token * top_k, (token + 1) * top_k)
        gemms = tuple(self._w2(run, route, column, self.activation_row(run, route)) for route in routes)
        terms = [widen(np.array([gemm.final.bits], dtype=np.uint16).view(np.float16)) for gemm in gemms]
        return ElementStory(history=run.history, gemms=gemms, steps=self._sum_steps(terms), inputs_differ=0)

    def _sum_steps(self, terms: list[F32]) -> tuple[Step, ...]:
        """The final sum in the build's order of additions (8.2, A.1, A.2)."""
        build, dtype = versions.version(self._kernel), self._dtype
        zero: F32 = np.zeros(1, dtype=np.float32)
        steps: list[Step] = []
        if len(terms) in (2, 3, 4) and not build.fp32_small_sums:
            total = zero
            for place, term in enumerate(terms):
                total = widen(narrow(add(total, term), dtype))  # RN16 after every add
                steps.append(
                    Step(label=f"RN16(+ x{place})", value=value16(narrow(total, dtype)), section="8.2")
                )
            return tuple(steps)
        lanes = 1 if build.single_accumulator else 4
        sums = [zero] * lanes
        for place, term in enumerate(terms):
            sums[place % lanes] = add(sums[place % lanes], term)  # RNE
        section = "A.2" if build.single_accumulator else "8.2"
        total = sums[0]
        steps += [
            Step(label=f"A{lane} = {_lane(lane, len(terms), lanes)}", value=value32(item), section=section)
            for lane, item in enumerate(sums)
        ]
        for lane, item in enumerate(sums[1:], start=1):
            total = add(total, item)  # RNE
            steps.append(Step(label=f"+ A{lane}", value=value32(total), section=section))
        steps.append(Step(label="RN16(sum)", value=value16(narrow(total, dtype)), section=section))
        return tuple(steps)


def _lane(lane: int, count: int, lanes: int) -> str:
    return " + ".join(f"x{place}" for place in range(lane, count, lanes)) or "+0"


def _adds(found: TileSum) -> tuple[Step, ...]:
    """The adds over slices; none where there is one."""
    last = len(found.slices) - 1
    return tuple(
        Step(label=f"slice {last - place} + running sum", value=value32(total), section="7.1")
        for place, total in enumerate(found.running[1:], start=1)
    )


def value32(array: F32) -> Value:
    """The one fp32 number of an array."""
    number = np.asarray(array, dtype=np.float32).reshape(-1)[:1]
    return Value(bits=int(number.view(np.uint32)[0]), width=32, decimal=str(number[0]))


def value16(array: object) -> Value:
    """The one fp16 number of an array."""
    number = np.asarray(array, dtype=np.float16).reshape(-1)[:1]
    return Value(bits=int(number.view(np.uint16)[0]), width=16, decimal=str(number[0]))
