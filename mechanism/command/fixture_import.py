"""`mechanism fixture import`: a layer of an AWQ checkpoint, with inputs, becomes a fixture for plans."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from ledger.canonical import sha256
from mechanism.checkpoint.errors import InputsError
from mechanism.checkpoint.inputs import Inputs, inputs_of, read_inputs
from mechanism.checkpoint.keep import Kept, keep
from mechanism.checkpoint.layer import ImportedLayer, import_layer
from mechanism.checkpoint.prompt import hidden_from_prompt
from mechanism.checkpoint.settings import CONFIG
from mechanism.checkpoint.values import require_values, values_digest
from mechanism.fixture.place import cache_root


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportOptions:
    """What the command line asked for; exactly one of `hidden` and `prompt` is given."""

    checkpoint: Path
    layer: int
    hidden: Path | None
    prompt: Path | None
    expect_values: str | None
    private: bool


def import_fixture(options: ImportOptions) -> int:
    """Steps: 1 layer, 2 values, 3 inputs, 4 store; then say what a plan writes. Raises CheckpointError."""
    if (options.hidden is None) == (options.prompt is None):
        raise InputsError(
            "expected one of --hidden FILE and --prompt-file FILE, got both or none; give one of them"
        )
    layer = import_layer(options.checkpoint, options.layer)
    if options.expect_values is not None:
        require_values(layer.weights, options.expect_values)
    inputs, source = _inputs(options, layer)
    values = values_digest(layer.weights)
    origin: dict[str, Any] = {
        "layer": options.layer,
        "format": layer.settings.format,
        "symmetric": layer.settings.symmetric,
        "config": sha256((options.checkpoint / CONFIG).read_bytes()),
        "values": values,
        "inputs": source,
    }
    kept = keep(layer, inputs, cache_root(), private=options.private, origin=origin)
    _say(kept, layer, values)
    return 0


def _inputs(options: ImportOptions, layer: ImportedLayer) -> tuple[Inputs, dict[str, Any]]:
    """The inputs, and what import.json says of them: a private prompt by its digest only."""
    path = options.hidden or options.prompt or Path()
    try:
        data = path.read_bytes()
    except OSError as fault:
        raise InputsError(f"{path}: cannot be read: {fault.strerror}; check the path") from fault
    if options.hidden is not None:
        return read_inputs(path, layer), {"kind": "hidden", "sha256": sha256(data)}
    try:
        prompt = data.decode()
    except UnicodeDecodeError as fault:
        raise InputsError(
            f"{path}: expected UTF-8 text, got other bytes at {fault.start}; save the file as UTF-8"
        ) from fault
    hidden = hidden_from_prompt(options.checkpoint, options.layer, prompt)
    told = {} if options.private else {"text": prompt}
    return inputs_of(hidden, layer, where=str(path)), {"kind": "prompt", "sha256": sha256(data), **told}


def _say(kept: Kept, layer: ImportedLayer, values: str) -> None:
    click.echo(f"weights  {kept.section.weights}")
    click.echo(f"values   {values}")
    click.echo(f"fixture  {kept.lock.digest}")
    for name in layer.beside:
        click.echo(f"not of the routed experts, left out: {name}")
    click.echo("\nfixture:")
    for key, value in kept.section.model_dump(mode="json").items():
        shown = str(value).lower() if isinstance(value, bool) else value
        click.echo(f'  {key}: "{shown}"' if key in ("weights", "inputs") else f"  {key}: {shown}")
