"""`mechanism assumptions`: the open points of the specification, as a list to read or to query."""

import json
from dataclasses import asdict

import click

from mechanism.kernel.assumptions import ASSUMPTIONS


def assumptions(*, as_json: bool) -> int:
    """Print every assumption: its id, what it says, how to check it."""
    if as_json:
        click.echo(json.dumps({"assumptions": [asdict(item) for item in ASSUMPTIONS.values()]}))
        return 0
    for item in ASSUMPTIONS.values():
        click.echo(f"{item.id:<4} {item.says}\n     to settle it: {item.check}")
    return 0
