"""From an answer to a plan that `mechanism freeze` accepts, and the ledger it is judged by.

The plan's routing is the answer's batch, route by route: every route is pinned but those of one expert,
which are dealt to it alone. The text is checked by the plan's own rules before it is handed out.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from ledger.fault import Fault, FaultsError
from ledger.model import read_yaml
from ledger.plan import Plan
from ledger.strict_yaml import load
from mechanism.explain.answer import Answer, Layer
from mechanism.explain.choice import Choice, choose, require_layer
from mechanism.explain.claims import ledger_text
from mechanism.explain.errors import ExplainError
from mechanism.explain.gemms import GemmAnswer
from mechanism.plan.static import needed_assumptions, static_faults

_NAME = re.compile(r"^[A-Za-z][A-Za-z0-9_-]{0,40}$")  # with room for "-claims"
_PER_LINE = 20
MOST_ROUTES = 20_000  # beyond it the plan's text outgrows what a plan may be


@dataclass(frozen=True, kw_only=True, slots=True)
class Experiment:
    """A plan and its ledger as text, and the two pairs of routes that were chosen."""

    plan: str
    ledger: str
    within: tuple[int, int]
    boundary: tuple[int, int]


def experiment(answer: Answer, *, name: str, ledger: str) -> Experiment:
    """The experiment on this geometry.

    Args:
        answer: An exposed batch.
        name: The plan's name.
        ledger: File name of the ledger, beside the plan.

    Raises:
        ExplainError: Nothing to experiment on, with the way out.
        FaultsError: The plan's rules refuse it (a fault of this module).
    """
    if not _NAME.match(name):
        raise ExplainError(f"--write-plan: expected a file name like my-plan.yaml, got {name}.yaml")
    layer = require_layer(answer)
    if (routes := sum(layer.counts)) > MOST_ROUTES:  # before the choice, whose work grows with them
        raise ExplainError(
            f"--write-plan: expected at most {MOST_ROUTES} routes in a plan, got {routes}; ask with fewer"
            " --tokens"
        )
    chosen = choose(answer)
    everything = tuple(f"U{number}" for number in range(1, 11))
    draft = _read(_plan_text(answer, layer, chosen, name, ledger, everything), name)
    needed = tuple(needed_assumptions(draft, layer.topk_ids))
    text = _plan_text(answer, layer, chosen, name, ledger, needed)
    plan = _read(text, name)
    if faults := static_faults(plan):
        raise FaultsError([Fault(file=name, line=1, path=path, message=message) for path, message in faults])
    asked = answer.question
    scope = (
        f"One synthetic layer with the sizes of {asked.model.name} on {asked.device.name}, one"
        f" batch of {asked.tokens} tokens"
    )
    return Experiment(
        plan=text,
        ledger=ledger_text(chosen, name=ledger.removesuffix(".yaml"), scope=scope, assumptions=needed),
        within=chosen.within,
        boundary=chosen.boundary,
    )


def _plan_text(
    answer: Answer, layer: Layer, chosen: Choice, name: str, ledger: str, assumptions: tuple[str, ...]
) -> str:
    """The plan as YAML, in the style of the committed ones."""
    asked = answer.question
    device, model = asked.device, asked.model
    last = chosen.pair.blocks[1]
    title = f"Route alignment on the sizes of {model.name}, {asked.tokens} tokens, {device.name}"
    twins = (model.hidden // 64 + 1) // 2
    lines = [
        f"# {title}",
        "# Written by `mechanism explain --write-plan`. Freeze it, then run it; see README.md.",
        "schema_version: 1",
        f"name: {name}",
        f"title: {json.dumps(title)}",
        "engine: simulated",
        f"ledger: {ledger}",
        "",
        "build:",
        f"  kernel: {asked.kernel}",
        f"  device: {{name: {device.name}, arch: {device.arch}, sms: {device.sms},"
        f" shared_memory: {device.shared_memory}}}",
        "  launch: # tile is [thread_k, thread_n]; the grid is sms * ctas_per_sm",
        *(_launch_line(gemm) for gemm in layer.gemms),
        "",
        "fixture:",
        "  recipe: packed-awq/1",
        "  seed: 2607",
        "  seeds_scanned: 0",
        f"  tokens: {asked.tokens}",
        f"  experts: {model.experts}",
        f"  top_k: {model.top_k}",
        f"  hidden: {model.hidden}",
        f"  intermediate: {layer.intermediate}",
        f"  group_size: {answer.path.group}",
        "  dtype: float16",
        f"  twin_pairs: {twins} # channels with exact opposites, to make order easy to see",
        *_routing_lines(layer, chosen),
        "",
        "selected_from:",
        f"  rule: {json.dumps(_rule(answer, chosen))}",
        "  earlier_run: null",
        "",
        f"assumptions: [{', '.join(assumptions)}]",
        "",
        "histories:",
    ]
    for history, route, order in zip(("H0", "H1"), chosen.boundary, chosen.orders, strict=True):
        lines += [
            f"  {history}: # index order, but route {route} is served last of padded block {last}'s",
            "    arrival:",
            "      kind: explicit",
            *_wrapped("      routes: [", order, "        "),
        ]
    return "\n".join([*lines, *_matrix_lines(layer, chosen), ""])


def _launch_line(gemm: GemmAnswer) -> str:
    launch = gemm.launch
    if launch is None:
        raise ExplainError(
            f"--write-plan: expected a known launch of {gemm.shape.name}, got none; use --launch"
        )
    by = "kernel" if gemm.chosen_by == "kernel" else "plan"
    return (
        f"    {gemm.shape.name}: {{tile: [{launch.tile_k}, {launch.tile_n}],"
        f" ctas_per_sm: {launch.ctas_per_sm}, chosen_by: {by}}}"
    )


def _routing_lines(layer: Layer, chosen: Choice) -> list[str]:
    """Every route pinned to its expert, but for one expert's, which are dealt to it alone."""
    held: dict[int, list[int]] = {}
    for token, row in enumerate(layer.topk_ids):
        for slot, expert in enumerate(row):
            held.setdefault(expert, []).append(token * len(row) + slot)
    free = max(expert for expert in held if expert != chosen.pair.expert.expert)
    lines = ["  routing: # the batch, route by route", "    seed: 2607", "    pinned:"]
    for expert in sorted(held):
        if expert != free:
            lines += _wrapped(f"      - {{expert: {expert}, routes: [", held[expert], "          ", "]}")
    return [*lines, "    dealt:", f"      - {{first: {free}, last: {free}, count: 1}}"]


def _matrix_lines(layer: Layer, chosen: Choice) -> list[str]:
    limit = 60 if sum(layer.counts) <= 200 else 1800
    return f"""
surfaces: [w13, activation, w2, output]
replicates: 5
order: {{interleaved: cells, seed: 2607}}
time_limit_s: {limit}

# The whole environment of every cold process; nothing is inherited.
environment:
  LC_ALL: C.UTF-8
  TZ: UTC
  PYTHONHASHSEED: "0"
  PYTHONDONTWRITEBYTECODE: "1"
  OMP_NUM_THREADS: "1"
  OPENBLAS_NUM_THREADS: "1"
  MECHANISM_THREADS: "1"

phases:
  - name: qualification
    cells:
      - {{name: native, alignment: constructed, histories: [H0, H1]}}
      - {{name: replay, alignment: own, histories: [H0, H1]}}
  - name: transfer
    cells:
      - {{name: cross-order, alignment: opposite, histories: [H0, H1]}}
      - {{name: canonical, alignment: stable, histories: [H0, H1]}}
  - name: ablation
    cells:
      - name: within-block
        alignment: own
        histories: [H0, H1]
        swap: {{kind: within-block, routes: [{chosen.within[0]}, {chosen.within[1]}]}}
      - name: block-boundary
        alignment: own
        histories: [H0, H1]
        swap: {{kind: block-boundary, routes: [{chosen.boundary[0]}, {chosen.boundary[1]}]}}
      - name: forced-grid
        alignment: own
        histories: [H0, H1]
        grid: {chosen.grid}
        single_slice: [w13]""".splitlines()


def _rule(answer: Answer, chosen: Choice) -> str:
    i, j = chosen.pair.blocks
    asked = answer.question
    batch = getattr(asked.routing, "source", None) or f"one batch drawn, {asked.routing}"
    return (
        f"The geometry that mechanism explain was asked about: {asked.model.name} on"
        f" {asked.device.name}, tensor"
        f" parallel {asked.tp}; routes: {batch}. Expert {chosen.pair.expert.expert} has"
        f" {chosen.pair.expert.count}"
        f" routes; its padded blocks {i} and {j} are cut differently at W13 ({chosen.pair.w13[0]},"
        f" {chosen.pair.w13[1]}). The pair was chosen by the schedule alone, before any run."
    )


def _wrapped(head: str, items: tuple[int, ...] | list[int], indent: str, tail: str = "]") -> list[str]:
    if len(items) <= _PER_LINE:
        return [f"{head}{', '.join(map(str, items))}{tail}"]
    rows = [items[start : start + _PER_LINE] for start in range(0, len(items), _PER_LINE)]
    return [head, *(f"{indent}{', '.join(map(str, row))}," for row in rows), f"{indent[2:]}{tail}"]


def _read(text: str, name: str) -> Plan:
    return read_yaml(Plan, load(text.encode(), name=name), name=name)
