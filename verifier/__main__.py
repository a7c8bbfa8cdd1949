"""The verifier's command line. It reads a bundle and writes reports; below level reexecute it starts nothing.

Exit codes: 0 every checked claim supported; 1 a claim refuted; 2 malformed, tampered or ambiguous; 3 missing
or not run; 4 usage.
"""

import gc
import os
import re
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

if TYPE_CHECKING:
    from ledger.claim import Level

#: 4, as in ledger.verdict; said here so that --help and a wrong option need no schema.
_USAGE = 4
_SHA256 = re.compile(r"[0-9a-f]{64}")


@click.group(
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 every checked claim supported; 1 a claim refuted; 2 malformed, tampered or"
    " ambiguous; 3 missing or not run; 4 usage. Of several, 2 wins over 1, 1 over 3, 3 over 0.",
)
@click.version_option(message="verifier %(version)s", package_name="marlin-mechanism")
def cli() -> None:
    """Check recorded evidence against its claims, on any CPU, trusting neither.

    A bundle is a folder with a plan, its lock, a ledger of claims, and the records of the processes that were
    run. Every file is hashed, every document read strictly, every schedule and alignment worked out again;
    then each claim is judged, and bad evidence made from the bundle must be refused.
    """


class _Place(click.Path):
    """A path that is none where it is empty: a variable that is not set would mean the folder one is in."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("expected a folder or a file, got an empty text", param, ctx)
        return super().convert(value, param, ctx)


@cli.command("check")
@click.argument("bundle", type=_Place(path_type=Path))
@click.option(
    "--level",
    type=click.Choice(["records", "raw", "reexecute"]),
    default="records",
    show_default=True,
    help="records: all documents and digests. raw: also the bytes of every captured tensor. reexecute: also"
    " every distinct trajectory computed anew, by `mechanism` as a child.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "junit", "sarif"]),
    default="text",
    show_default=True,
    help="json prints exactly one object; junit and sarif are for CI.",
)
@click.option(
    "--expect-plan",
    metavar="SHA256",
    help="The sha256 that plan.lock must have: anchors the bundle. Of plan.yaml: all but the claims.",
)
@click.option(
    "--plan",
    "plan_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A lock of your own, or a plan with its lock beside it, that the bundle must hold: anchors it.",
)
@click.option(
    "--key",
    "key_file",
    metavar="PUB",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Public Ed25519 key (PEM) that must have signed the release.",
)
@click.option(
    "--verbose", "-v", is_flag=True, help="Print what decided each claim, and all that went unchecked."
)
def check_command(
    bundle: Path,
    level: "Level",
    form: str,
    expect_plan: str | None,
    plan_file: Path | None,
    key_file: Path | None,
    *,
    verbose: bool,
) -> int:
    """Verify BUNDLE, a folder, .zip or .tar.gz, and print the verdict on every claim.

    Findings have a stable code, a place, what was expected and what was found; verifier/README.md lists the
    codes. Without an anchor the report says that plan and claims are self-declared.
    """
    from verifier.anchor import AnchorError, anchor_of, key_of, require_plan  # noqa: PLC0415 - as below
    from verifier.report import check  # noqa: PLC0415 - --help and --version need no schemas

    _one_anchor(expect_plan, plan_file)
    try:
        anchor = expect_plan if plan_file is None else anchor_of(plan_file)
        key = None if key_file is None else key_of(key_file)
        checked = check(bundle, level=level, anchor=anchor, key=key)
        if plan_file is not None and any(item.code == "V301" for item in checked.report.findings):
            require_plan(plan_file)  # is the bundle another's, or is this no plan?
    except AnchorError as fault:
        raise click.UsageError(str(fault)) from fault
    if form == "json":
        from verifier.jsonform import pieces  # noqa: PLC0415 - as the forms below

        for piece in pieces(checked.report):
            click.echo(piece, nl=False)
    elif form == "text":
        from verifier.render import text  # noqa: PLC0415 - textwrap is not needed for json

        click.echo(text(checked, verbose=verbose), nl=False)
    else:
        from verifier.forms import junit, sarif  # noqa: PLC0415 - likewise

        click.echo(junit(checked) if form == "junit" else sarif(checked))
    return checked.exit_code


@cli.command("mutate")
@click.argument("bundle", type=_Place(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Folder to make, with one bundle per mutation. Default: ./mutated-<bundle's name>.",
)
@click.option("--sweep", is_flag=True, help="Try every change of every file and value, in memory.")
@click.option(
    "--sample", type=click.IntRange(min=1), default=1, metavar="N", help="With --sweep: one change in N."
)
def mutate_command(bundle: Path, out: Path | None, sample: int, *, sweep: bool) -> int:
    """Write out the mutations that BUNDLE's ledger declares, each as a folder to look at.

    They are the very ones that `check` makes in memory and must refuse; `verifier check --level raw` on each
    shows how. The bundle itself is not touched. With --sweep: every file and every value is changed by rule,
    as it is and by a forger who makes log, manifest and summary fit; exit code 1 if one goes unnoticed
    without a reason in the table.
    """
    if sweep:
        return _sweep(bundle, sample)
    from verifier.evidence import FolderEvidence  # noqa: PLC0415 - as in check
    from verifier.forger import MutationError  # noqa: PLC0415
    from verifier.write import write_mutations  # noqa: PLC0415

    target = out if out is not None else Path(f"mutated-{bundle.resolve().name}")
    evidence = FolderEvidence(bundle)
    try:
        for name, folder, words in write_mutations(evidence, target):
            click.echo(f"{name}: {folder}: {words}")
    except FileExistsError as fault:
        raise click.UsageError(f"{fault.filename} exists; give a folder that does not, with --out") from fault
    except BrokenPipeError:  # whoever reads is gone; what was written stays
        raise
    except OSError as fault:
        click.echo(f"--out: {target} cannot be written: {fault.strerror}; name another place", err=True)
        return _USAGE
    except MutationError as fault:
        click.echo(
            f"expected a bundle that the mutations can be made from, got: {fault}; `verifier check` says"
            " what is"
            " wrong",
            err=True,
        )
        return 3
    return 0


def _sweep(bundle: Path, sample: int) -> int:
    from verifier.assess import assess  # noqa: PLC0415 - a check starts without the sweep
    from verifier.evidence import FolderEvidence  # noqa: PLC0415
    from verifier.library import Library  # noqa: PLC0415
    from verifier.sweep.survey import sweep, told  # noqa: PLC0415

    library = Library()
    base = assess(FolderEvidence(bundle), library, level="raw", anchor=None)
    if base.found:
        first = base.found[0]
        click.echo(
            f"expected a bundle without findings, got {first.code} {first.where}; `verifier check` says what"
            " is wrong",
            err=True,
        )
        return 3
    survey = sweep(base, library, level="raw", every=sample)
    click.echo("\n".join(told(survey)))
    return 1 if survey.wrong else 0


@cli.command("diff")
@click.argument("one", type=_Place(exists=True, path_type=Path))
@click.argument("other", type=_Place(exists=True, path_type=Path))
def diff_command(one: Path, other: Path) -> int:
    """Compare two bundles: the first surface, row, column and bits that differ, and their padded block.

    Neither is verified: check both. Exit codes: 0 equal bits on all processes, 1 they differ, 3 no bundle.
    """
    from verifier.compare import differences  # noqa: PLC0415 - a check needs no comparison
    from verifier.opening import NothingHereError, opened  # noqa: PLC0415

    with ExitStack() as stack:
        given = []
        for path in (one, other):
            try:
                given.append(stack.enter_context(opened(path, key=None)).evidence)
            except NothingHereError as fault:
                click.echo(f"expected two bundles, got {fault} at {path}; check the path", err=True)
                return 3
        same, lines = differences(*given)
    click.echo("\n".join(lines))
    return 0 if same else 1


def _one_anchor(expect_plan: str | None, plan_file: Path | None) -> None:
    if expect_plan is not None and plan_file is not None:
        raise click.UsageError("expected one of --expect-plan and --plan, got both")
    if expect_plan is not None and not _SHA256.fullmatch(expect_plan):
        raise click.UsageError(
            f"--expect-plan: expected 64 lower-case hexadecimal digits, got {expect_plan!r}"
        )


def main() -> NoReturn:
    """Run the command line and exit with a documented code."""
    # nobody's plugin may see or change what is validated here; looking for some costs a tenth of a second
    os.environ["PYDANTIC_DISABLE_PLUGINS"] = "__all__"
    gc.set_threshold(100_000, 20, 20)  # a check makes much and keeps it: looking for garbage finds none
    try:
        code = cli.main(standalone_mode=False)
    except click.ClickException as fault:
        fault.show()
        code = _USAGE
    except click.Abort:
        click.echo("interrupted", err=True)
        code = 130
    except OSError as fault:  # the reader of our output, or the place to write to, is gone
        where = "" if fault.filename is None else f"{fault.filename}: "
        click.echo(f"cannot go on: {where}{fault.strerror}", err=True)
        code = _USAGE
    except Exception as fault:  # noqa: BLE001 - the process boundary: a broken verifier must not pass anything
        from verifier.store.disk import NoRoomError  # noqa: PLC0415 - as in check

        if isinstance(fault, NoRoomError):
            click.echo(f"cannot go on: {fault}", err=True)
            code = _USAGE
        else:
            click.echo(f"internal error, please report: {type(fault).__name__}: {fault}", err=True)
            code = 2
    sys.exit(code if isinstance(code, int) else 0)


def program() -> NoReturn:
    """``main``, and an end at once: taking apart what a check made would cost a sixth of its time."""
    try:
        main()
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else 0
    for stream in (sys.stdout, sys.stderr):
        if stream is None:  # it was closed before this program began
            continue
        try:
            stream.flush()
        except OSError:  # the reader is gone, and what it was to be told with it
            code = code or _USAGE
    os._exit(code)


if __name__ == "__main__":
    program()
