"""`mechanism trace`: the story of one element, as text or JSON."""

import json
from dataclasses import dataclass
from pathlib import Path

import click

from mechanism.fixture.place import cache_root
from mechanism.trace.document import document
from mechanism.trace.errors import TraceError
from mechanism.trace.story import Trace
from mechanism.trace.tracing import Asked, trace_bundle, trace_plan
from mechanism.trace.words import words

DEFAULT_PLAN = Path("plans") / "route_block.yaml"


@dataclass(frozen=True, kw_only=True, slots=True)
class TraceOptions:
    """What the command line asked for."""

    cell: str
    row: int
    column: int
    surface: str
    plan: Path | None
    bundle: Path | None
    as_json: bool


def trace(options: TraceOptions) -> int:
    """Print the trace. Ends with 0, or with 1 if a capture has other bits than the trace."""
    found = _trace(options)
    click.echo(json.dumps(document(found), indent=2) if options.as_json else words(found), nl=options.as_json)
    return 1 if found.agrees is False else 0


def _trace(options: TraceOptions) -> Trace:
    """A cell named with a folder is a bundle's; else --bundle, else --plan, else the default plan."""
    folder, _, cell = options.cell.rpartition("/")
    bundle = options.bundle
    if folder:
        if options.bundle or options.plan:
            raise TraceError(
                f"{options.cell}: expected a cell without a folder beside --bundle or --plan; leave out"
                " one of the two"
            )
        bundle = Path(folder.removesuffix("/records"))
    asked = Asked(cell=cell, surface=options.surface, row=options.row, column=options.column)
    if bundle is not None and options.plan is not None:
        raise TraceError("expected --bundle or --plan, got both; a bundle holds its plan: leave out --plan")
    if bundle is None and options.plan is None and not DEFAULT_PLAN.is_file():
        raise TraceError(
            f"expected {DEFAULT_PLAN}, the default, below this folder, found none; name a plan by --plan or a"
            " bundle by --bundle"
        )
    if bundle is None:
        return trace_plan(options.plan or DEFAULT_PLAN, asked, cache_root())
    if not bundle.is_dir():
        raise TraceError(f"{bundle}: expected the folder of a bundle, found none; name a plan by --plan")
    return trace_bundle(bundle, asked, cache_root())
