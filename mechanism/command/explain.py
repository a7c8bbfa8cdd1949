"""`mechanism explain`: reads what the question needs, prints the answer, writes a plan if asked to."""

import difflib
import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from mechanism.command.writing import require_new, require_plan_name, write_together
from mechanism.explain import bounds
from mechanism.explain.answer import Answer, Question, explain
from mechanism.explain.config import read_config
from mechanism.explain.document import document
from mechanism.explain.errors import ExplainError
from mechanism.explain.models import Model, named, with_group
from mechanism.explain.routing import Given, Routing, distribution
from mechanism.explain.words import words
from mechanism.kernel import alignment, configuration
from mechanism.kernel.configuration import Launch
from mechanism.kernel.devices import DEVICES, Device

_LAUNCH = re.compile(r"^(?:(w13|w2)=)?([0-9]{1,6})x([0-9]{1,6})x([0-9]{1,6})$")


@dataclass(frozen=True, kw_only=True, slots=True)
class ExplainOptions:
    """What the command line asked for."""

    model: str | None
    config: Path | None
    checkpoint: Path | None
    group_size: int | None
    gpu: str | None
    sms: int | None
    smem: int | None
    arch: str | None
    kernel: str
    dtype: str | None
    tp: int
    tokens: int | None
    routes: Path | None
    routing: str
    seed: int
    launches: tuple[str, ...]
    write_plan: Path | None
    as_json: bool


def explain_command(options: ExplainOptions) -> int:
    """Steps: 1 model, 2 device, 3 routes, 4 launches, 5 answer, 6 plan."""
    _bounded(options)
    model = _model(options)
    device = _device(options)
    routing, tokens = _routing(options)
    dtype = options.dtype or model.dtype
    answer = explain(
        Question(
            model=model,
            device=device,
            kernel=options.kernel,
            dtype=dtype,
            tp=options.tp,
            tokens=tokens,
            routing=routing,
            launches=_launches(options, model, device, tokens),
        )
    )
    written = None if options.write_plan is None else _write_plan(answer, options.write_plan)
    if options.as_json:
        click.echo(json.dumps({**document(answer), "plan": written}, indent=2))
    else:
        click.echo(words(answer), nl=False)
        if written:
            click.echo(
                f"\nplan:   {written['plan']}\nledger: {written['ledger']}\nnext:   mechanism freeze"
                f" {shlex.quote(str(written['plan']))}"
            )
    return 0


def _bounded(options: ExplainOptions) -> None:
    """Before anything is read: no number is beyond what there is."""
    for name, value, most, what, why in (
        ("--sms", options.sms, bounds.SMS, "multiprocessors", "no GPU has more"),
        ("--smem", options.smem, bounds.SHARED_MEMORY, "bytes", "no GPU has more per block"),
        ("--tp", options.tp, bounds.RANKS, "ranks", "no layer is shared by more"),
    ):
        if value is not None:
            bounds.require(name, value, most, what=what, why=why)
    if options.tokens is not None:
        bounds.require_tokens(options.tokens)


def _model(options: ExplainOptions) -> Model:
    """Step 1."""
    given = [name for name in ("model", "config", "checkpoint") if getattr(options, name) is not None]
    if len(given) != 1:
        named_options = " and ".join(f"--{name}" for name in given) or "none"
        raise ExplainError(
            f"expected one of --model NAME, --config FILE, --checkpoint FOLDER, got {named_options}"
        )
    if options.model is not None:
        model = named(options.model)
    else:
        path = options.config or (options.checkpoint or Path()) / "config.json"
        beside = path.parent / "quant_config.json"
        awq_file = _json(beside) if options.checkpoint and beside.exists() else None
        name = path.name if options.config else (options.checkpoint or path).name
        model = read_config(_json(path), name=name, awq_file=awq_file)
    return model if options.group_size is None else with_group(model, options.group_size)


def _device(options: ExplainOptions) -> Device:
    """Step 2."""
    parts = {"--sms": options.sms, "--smem": options.smem, "--arch": options.arch}
    if options.gpu is None:
        if options.sms is None or options.smem is None or options.arch is None:
            lacking = ", ".join(name for name, value in parts.items() if value is None)
            raise ExplainError(
                f"expected --gpu NAME ({', '.join(DEVICES)}), or all of --sms, --smem and --arch;"
                f" {lacking} missing"
            )
        if not re.fullmatch(r"sm_[0-9]{2,3}", options.arch):
            raise ExplainError(f"--arch: expected sm_NN, such as sm_86, got {options.arch}")
        return Device(
            name=f"custom-{options.sms}sm", arch=options.arch, sms=options.sms, shared_memory=options.smem
        )
    if any(value is not None for value in parts.values()):
        raise ExplainError("expected --gpu, or --sms, --smem and --arch, got both; leave one out")
    wanted = re.sub(r"[\s_]+", "-", options.gpu.lower()).removeprefix("nvidia-").removeprefix("geforce-")
    found = max(
        (name for name in DEVICES if wanted == name or wanted.startswith(f"{name}-")), key=len, default=""
    )
    if not found:
        near = difflib.get_close_matches(wanted, list(DEVICES), n=3, cutoff=0.3)
        hint = f"; nearest: {', '.join(near)}" if near else ""
        raise ExplainError(
            f"--gpu: expected one of {', '.join(DEVICES)}, got {options.gpu}{hint};"
            " for another GPU give --sms, --smem and --arch"
        )
    return DEVICES[found]


def _routing(options: ExplainOptions) -> tuple[Routing, int]:
    """Step 3."""
    if options.routes is not None:
        from mechanism.explain.routes_file import read_routes  # noqa: PLC0415 - numpy, only for this

        given = Given(topk_ids=read_routes(options.routes), source=options.routes.name)
        return given, options.tokens or len(given.topk_ids)
    if options.tokens is None:
        raise ExplainError(
            "expected --tokens N (tokens in one call of the layer), or --routes FILE, got neither"
        )
    return distribution(options.routing, seed=options.seed), options.tokens


def _launches(options: ExplainOptions, model: Model, device: Device, tokens: int) -> dict[str, Launch]:
    """Step 4: explicit tiles, checked against the operator's rules for this layer."""
    given: dict[str, tuple[int, int, int]] = {}
    for text in options.launches:
        match = _LAUNCH.match(text)
        if match is None:
            raise ExplainError(f"--launch: expected [w13=|w2=]TKxTNxCTAS such as 64x128x3, got {text}")
        for name in (match[1],) if match[1] else ("w13", "w2"):
            given[name] = (int(match[2]), int(match[3]), int(match[4]))
    if not given or model.quantisation is None:
        return {}
    from mechanism.explain.gemms import shapes  # noqa: PLC0415

    sizes = shapes(
        hidden=model.hidden, intermediate=model.intermediate // options.tp, group=model.quantisation.group
    )
    block = alignment.block_size_m(tokens, model.top_k, model.experts)
    return {
        shape.name: configuration.explicit(
            device,
            n=shape.n,
            k=shape.k,
            group=shape.group,
            block_size_m=block,
            tile_k=given[shape.name][0],
            tile_n=given[shape.name][1],
            ctas_per_sm=given[shape.name][2],
            kernel=options.kernel,
        )
        for shape in sizes
        if shape.name in given
    }


def _write_plan(answer: Answer, path: Path) -> dict[str, Any]:
    """Step 6: the plan and its ledger, side by side."""
    # pydantic and the plan's rules are only needed here
    from mechanism.explain.experiment import experiment  # noqa: PLC0415

    require_plan_name("--write-plan", path)
    ledger = path.with_name(f"{path.stem}-claims.yaml")  # a ledger is called what its file is
    require_new("--write-plan", path, ledger)
    made = experiment(answer, name=path.stem, ledger=ledger.name)
    option = "--write-plan"
    write_together((option, ledger, made.ledger.encode()), (option, path, made.plan.encode()))
    return {
        "plan": str(path),
        "ledger": str(ledger),
        "within_block": made.within,
        "block_boundary": made.boundary,
    }


def _json(path: Path) -> Mapping[str, Any]:
    try:
        value = json.loads(path.read_bytes())
    except OSError as fault:
        raise ExplainError(
            f"{path}: cannot be read: {fault.strerror}; check the path: expected a Hugging Face config.json"
        ) from fault
    except (ValueError, RecursionError) as fault:
        raise ExplainError(f"{path}: expected JSON, got {fault}; give the config.json of a model") from fault
    if not isinstance(value, Mapping):
        raise ExplainError(
            f"{path}: expected a JSON object, got {type(value).__name__}; give the config.json of a model"
        )
    return value
