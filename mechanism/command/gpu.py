"""`mechanism gpu`: a plan for a device from its geometry, and the checks to run where there is a GPU."""

from pathlib import Path

import click

from mechanism.command.writing import require_place, write
from mechanism.errors import PlanError
from mechanism.gpu.geometry_plan import geometry_plan
from mechanism.kernel.devices import DEVICES, Device


def gpu_plan(gpu: str, *, out: Path, claims: Path | None) -> int:
    """Write a device's plan and its ledger. Raises PlanError for a device that is not known."""
    device = known(gpu)
    ledger = claims or out.with_name(f"{out.stem}-claims.yaml")
    named = ledger.stem if ledger.parent.name == "claims" else ledger.name
    require_place("--out", out)
    require_place("--claims", ledger)
    made = geometry_plan(device, name=out.stem, ledger=named)
    write("--claims", ledger, made.ledger.encode())
    write("--out", out, made.plan.encode())
    i, j = made.choice.pair.blocks
    click.echo(f"plan:   {out}\nledger: {ledger}")
    click.echo(f"blocks {i} and {j} of expert {made.choice.pair.expert.expert}; freeze it, then run it")
    return 0


def known(name: str) -> Device:
    """A device by name. Raises PlanError naming those that are known."""
    if name not in DEVICES:
        raise PlanError(f"--gpu: expected one of {', '.join(DEVICES)}, got {name}")
    return DEVICES[name]
