"""`mechanism package` and `mechanism key new`: a bundle becomes a release, signed if there is a key."""

from dataclasses import dataclass
from pathlib import Path

import click

from mechanism.command.writing import outside, require_place
from mechanism.errors import MechanismError


@dataclass(frozen=True, kw_only=True, slots=True)
class PackageOptions:
    """What the command line asked for."""

    bundle: Path
    out: Path
    key: Path | None
    raw: bool
    published: str


def package(options: PackageOptions) -> int:
    """Write the release and say what it is."""
    require_place("--out", options.out)
    from mechanism.package.release import write_release  # noqa: PLC0415 - only this needs the extra

    try:
        release = write_release(
            options.bundle, options.out, key=options.key, raw=options.raw, published=options.published
        )
    except OSError as fault:
        raise outside("--out", options.out, fault, inside=options.bundle) from fault
    summary = release.payload.summary
    kind = "SIMULATED" if summary.evidence == "simulated" else "GPU"
    signed = "signed" if release.signed else "UNSIGNED: sign it with --key"
    click.echo(f"{options.out}: {kind} evidence of {summary.name}, raw captures {summary.raw}, {signed}")
    click.echo(f"check it: verifier check {options.out}{' --key PUBLIC.pem' if release.signed else ''}")
    return 0


def new_key(prefix: Path) -> int:
    """Make an Ed25519 pair."""
    if not prefix.name:
        raise MechanismError(f"--out: expected the prefix of two file names, got {prefix}; add a name to it")
    require_place("--out", prefix)
    from mechanism.package.keys import new_pair  # noqa: PLC0415 - likewise

    try:
        private, public = new_pair(prefix)
    except FileExistsError as fault:
        raise MechanismError(f"--out: expected no file at {fault.filename}, got one; name another") from fault
    except OSError as fault:
        raise outside("--out", prefix, fault) from fault
    click.echo(f"{private}: private, keep it to yourself\n{public}: public, give it to whoever checks")
    return 0
