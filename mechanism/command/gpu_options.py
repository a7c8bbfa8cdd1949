"""Names and options of `mechanism gpu`; the work is in `gpu` and `gpu_check`."""

# Commands import what they need when they are called: --help must not wait for numpy.
# ruff: noqa: PLC0415

from pathlib import Path

import click

from mechanism.command.exits import reported
from mechanism.command.place import Place


@click.group()
def gpu() -> None:
    """Plans for a GPU from its geometry, and the checks to run on one."""


@gpu.command("plan")
@click.option("--gpu", "device", required=True, help="A known GPU, e.g. h200.")
@click.option("--out", type=Place(path_type=Path, dir_okay=False), required=True, help="The plan's file.")
@click.option("--claims", type=Place(path_type=Path, dir_okay=False), help="Its ledger's file.")
@reported
def gpu_plan(device: str, out: Path, claims: Path | None) -> int:
    """Write the route-block plan of a GPU, and its ledger, from the schedule of the launches it makes."""
    from mechanism.command.gpu import gpu_plan as command

    return command(device, out=out, claims=claims)


@gpu.command("check")
@click.option("--out", type=Place(path_type=Path, file_okay=False), required=True, help="New folder.")
@click.option("--vectors", type=Place(path_type=Path), multiple=True, help="Folders of golden vectors.")
@click.option("--jobs", type=click.IntRange(min=1), default=4, show_default=True, help="Of the campaign.")
@click.option("--no-campaign", is_flag=True, help="Leave the cold processes out.")
@reported
def gpu_check(out: Path, vectors: tuple[Path, ...], jobs: int, *, no_campaign: bool) -> int:
    """Settle on this GPU what a CPU assumes: silu, rows, registers, atomics, vectors; then a campaign.

    Results, recorded vectors, the bundle and a summary table land in --out. Needs the pinned build.
    """
    from mechanism.command.gpu_check import CheckOptions
    from mechanism.command.gpu_check import gpu_check as command

    return command(CheckOptions(out=out, vectors=vectors, jobs=jobs, campaign=not no_campaign))
