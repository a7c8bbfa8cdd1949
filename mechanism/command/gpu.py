"""`mechanism gpu`: a plan for a device from its geometry, and the checks to run where there is a GPU."""

import shlex
from pathlib import Path

import click

from mechanism.command.writing import require_place, require_plan_name, write_together
from mechanism.engine.names import require_machine
from mechanism.errors import EngineError, PlanError
from mechanism.gpu.geometry_plan import KERNEL, geometry_plan
from mechanism.kernel.devices import DEVICES, Device
from mechanism.plan.document import lock_path


def gpu_plan(gpu: str, *, out: Path, claims: Path | None) -> int:
    """Write a device's plan and its ledger. Raises PlanError for a device that is not known."""
    device = known(gpu)
    require_plan_name("--out", out)
    ledger = claims or out.with_name(f"{out.stem}-claims.yaml")
    named = ledger.stem if ledger.parent.name == "claims" else ledger.name
    require_place("--out", out)
    require_place("--claims", ledger)
    if ledger.resolve() == out.resolve():
        raise PlanError(f"--claims: expected another file than that of --out, got {ledger}; name another")
    made = geometry_plan(device, name=out.stem, ledger=named)
    write_together(("--claims", ledger, made.ledger.encode()), ("--out", out, made.plan.encode()))
    i, j = made.choice.pair.blocks
    click.echo(f"plan:   {out}\nledger: {ledger}")
    click.echo(f"blocks {i} and {j} of expert {made.choice.pair.expert.expert}")
    click.echo(_next(device, out, ledger))
    return 0


def _next(device: Device, plan: Path, ledger: Path) -> str:
    """What to do with a plan here: freezing needs no GPU, running it needs that one."""
    freeze, named = f"mechanism freeze {shlex.quote(str(plan))}", shlex.quote(str(plan))
    pinned: dict[str, str | int] = {
        "name": device.name,
        "arch": device.arch,
        "sms": device.sms,
        "shared_memory": device.shared_memory,
    }
    try:
        require_machine("vllm", kernel=KERNEL, device=pinned)
    except EngineError as fault:
        return (
            f"next:   {freeze}\n"
            f"then:   take {plan}, {lock_path(plan)} and {ledger}\n"
            "        to a machine with that GPU and the extra `gpu`, and run there:\n"
            f"        mechanism run {named}\n"
            f"        (not here: {fault})"
        )
    return f"next:   {freeze}\nthen:   mechanism run {named}"


def known(name: str) -> Device:
    """A device by name. Raises PlanError naming those that are known."""
    if name not in DEVICES:
        raise PlanError(
            f"--gpu: expected one of {', '.join(DEVICES)}, got {name}; for another one,"
            " `mechanism explain --sms N --smem BYTES --arch sm_NN --write-plan FILE` makes a simulated plan"
        )
    return DEVICES[name]
