"""Command line of mechanism: names and options only; each command's work is in mechanism/command."""

# Commands import what they need when they are called: --help must not wait for numpy.
# ruff: noqa: PLC0415

import os
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from mechanism.command.exits import REFUSED, TABLE, ends_at_once, reported
from mechanism.command.gpu_options import gpu
from mechanism.command.place import Place

PLAN = click.argument("plan", type=Place(path_type=Path))


@click.group(epilog=TABLE, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(None, "--version", "-V", package_name="marlin-mechanism", prog_name="mechanism")
def cli() -> None:
    """Frozen-plan experiments on the packed-AWQ Marlin MoE kernel.

    A plan defines cells; each runs in cold processes, on a bit-exact simulation of the kernel, and leaves
    a bundle of evidence. `verifier check` audits a bundle, anywhere, without this program.

    First taste: mechanism run plans/quick.yaml
    """


@cli.command()
@PLAN
@reported
def freeze(plan: Path) -> int:
    """Check that PLAN can deliver its treatments, build its fixture, write its lock beside it.

    The lock holds the sha256 of the plan, of its ledger and of every fixture tensor, and lists every process.
    """
    from mechanism.command.freeze import freeze as command
    from mechanism.show.progress import fixture_progress

    with fixture_progress() as progress:
        return command(plan, progress=progress)


@cli.command()
@PLAN
@click.option("--out", type=Place(path_type=Path), help="Bundle folder; default runs/local/<plan>-<time>.")
@click.option("--jobs", type=click.IntRange(min=1), help="Cold processes at a time; default: one per core.")
@click.option("--resume", is_flag=True, help="Go on with the bundle in --out: run what has no valid record.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
@reported
def run(plan: Path, out: Path | None, jobs: int | None, form: str, *, resume: bool) -> int:
    """Run every cell of a frozen PLAN in cold processes, record them, verify the bundle.

    Ends with the verifier's exit code, or with 5 if the bundle could not be completed. Progress goes to
    stderr; with --format json, stdout is one object.
    """
    from mechanism.command.verdict import verifier

    as_json = form == "json"
    with verifier(plan, out, resume=resume, as_json=as_json) as started:
        from mechanism.command.run import RunOptions
        from mechanism.command.run import run as command

        return command(
            RunOptions(plan=plan, out=out, jobs=jobs, resume=resume, as_json=as_json), verifier=started
        )


@cli.command()
@click.argument("bundle", metavar="DIR", type=Place(path_type=Path))
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
@reported
def status(bundle: Path, form: str) -> int:
    """Say where the campaign in DIR stands: cells done, failed and at work, time left, who runs it.

    Reads only, while it runs and after it died. Ends with 0 if it is complete, with 6 if a runner is at work,
    with 5 if nobody is, with 4 if there is no campaign in DIR.
    """
    from mechanism.command.status import status as command

    return command(bundle, as_json=form == "json")


@cli.command()
@PLAN
@click.option("--svg", type=Place(path_type=Path, dir_okay=False), help="Draw the schedule into this file.")
@reported
def schedule(plan: Path, svg: Path | None) -> int:
    """Print which padded blocks of PLAN are direct and which are split, and which routes move."""
    from mechanism.command.schedule import schedule as command

    return command(plan, svg=svg)


@cli.command()
@click.option("--model", help="A known model, e.g. qwen3-coder-30b-a3b, mixtral-8x7b, deepseek-v3.")
@click.option("--config", type=Place(path_type=Path, dir_okay=False), help="A Hugging Face config.json.")
@click.option(
    "--checkpoint", type=Place(path_type=Path, file_okay=False), help="A folder with config.json in it."
)
@click.option("--group-size", type=int, help="Take the weights as AWQ with this group size.")
@click.option("--gpu", help="A known GPU, e.g. rtx-3090, rtx-4090, a100, h100, h200.")
@click.option("--sms", type=click.IntRange(min=1), help="Multiprocessors of another GPU.")
@click.option("--smem", type=click.IntRange(min=1), help="Its opt-in shared memory per block, bytes.")
@click.option("--arch", help="Its compute architecture, e.g. sm_86.")
@click.option("--kernel", default="vllm==0.22.0", show_default=True, help="Also vllm==0.11.0, vllm==0.29.0.")
@click.option(
    "--dtype", type=click.Choice(["float16", "bfloat16"]), help="Default: the config's, else float16."
)
@click.option("--tp", type=click.IntRange(min=1), default=1, show_default=True, help="Tensor parallel ranks.")
@click.option("--tokens", type=click.IntRange(min=1), help="Tokens in one call of the layer.")
@click.option(
    "--routes",
    type=Place(path_type=Path, dir_okay=False),
    help="Recorded topk_ids: .safetensors or .npz.",
)
@click.option(
    "--routing",
    default="uniform",
    show_default=True,
    help="Without --routes: uniform, zipf or zipf:EXPONENT.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the drawn batch.")
@click.option(
    "--launch", "launches", multiple=True, help="Tile and CTAs per SM, [w13=|w2=]TKxTNxCTAS, e.g. 64x128x3."
)
@click.option(
    "--write-plan",
    type=Place(path_type=Path, dir_okay=False),
    help="Write an experiment on this geometry.",
)
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
@reported
def explain(form: str, **asked: Any) -> int:
    """Can route alignment change the bits of your model, on your GPU, in your batch, and where?

    For example: mechanism explain --model qwen3-coder-30b-a3b --gpu rtx-3090 --tokens 64
    """
    from mechanism.command.explain import ExplainOptions, explain_command

    return explain_command(ExplainOptions(as_json=form == "json", **asked))


@cli.command()
@click.argument("cell")
@click.option("--row", type=click.IntRange(min=0), required=True, help="Route; for output, token.")
@click.option("--column", type=click.IntRange(min=0), required=True, help="Column of the surface.")
@click.option(
    "--surface",
    type=click.Choice(["w13", "activation", "w2", "output"]),
    default="w13",
    show_default=True,
    help="Which captured tensor.",
)
@click.option("--plan", type=Place(path_type=Path), help="Default: plans/route_block.yaml.")
@click.option("--bundle", type=Place(path_type=Path), help="Trace what a bundle recorded instead.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
@reported
def trace(form: str, **asked: Any) -> int:
    """The story of one element: block, CTAs, slices, warp rows, every rounding, under two histories.

    CELL is [phase.]cell[.history[.replicate]], or that behind a bundle's folder: runs/route-block/native.H0.
    Ends with 1 if a capture in the bundle has other bits than the trace.
    """
    from mechanism.command.trace import TraceOptions
    from mechanism.command.trace import trace as command

    return command(TraceOptions(as_json=form == "json", **asked))


@cli.command()
@click.argument("bundle", type=Place(path_type=Path))
@click.option(
    "--out",
    type=Place(path_type=Path, file_okay=False),
    required=True,
    help="Folder for index.html; made if need be.",
)
@click.option("--plan", type=Place(path_type=Path), help="Anchor: the plan file the bundle must have run.")
@click.option("--expect-plan", help="Anchor: the sha256 of that plan.")
@reported
def report(bundle: Path, out: Path, plan: Path | None, expect_plan: str | None) -> int:
    """Make one page of BUNDLE for a reviewer: verdicts, schedule, trajectories, first differences.

    Needs the extra `report`. The page is one file that loads nothing, works from file://, and says SIMULATED
    where it is.
    """
    from mechanism.command.report import ReportOptions
    from mechanism.command.report import report as command

    return command(ReportOptions(bundle=bundle, out=out, plan=plan, expect_plan=expect_plan))


@cli.group()
def fixture() -> None:
    """Build fixtures: one MoE layer of packed AWQ weights, hidden states and a routing."""


@fixture.command("build")
@PLAN
@reported
def fixture_build(plan: Path) -> int:
    """Build the fixture of PLAN into the cache ($MECHANISM_CACHE), or verify the one that is there."""
    from mechanism.command.fixture import build_fixture as command
    from mechanism.show.progress import fixture_progress

    with fixture_progress() as progress:
        return command(plan, progress=progress)


@fixture.command("import")
@click.option("--checkpoint", type=Place(path_type=Path), required=True, help="Folder of the checkpoint.")
@click.option("--layer", type=click.IntRange(min=0), required=True, help="Number of the MoE layer.")
@click.option("--hidden", type=Place(path_type=Path), help="Hidden states: .npy, or .safetensors.")
@click.option("--prompt-file", "prompt", type=Place(path_type=Path), help="Text; needs the extra hf.")
@click.option("--expect-values", help="sha256 that the dequantised weights must have.")
@click.option("--private", is_flag=True, help="Keep weights and prompt out of any release: digests only.")
@reported
def fixture_import(
    checkpoint: Path,
    layer: int,
    hidden: Path | None,
    prompt: Path | None,
    expect_values: str | None,
    *,
    private: bool,
) -> int:
    """Make a fixture of one layer of an AWQ CHECKPOINT: AutoAWQ gemm, or compressed-tensors pack-quantized.

    Prints the `fixture:` section that a plan names it by. --hidden takes float16 [tokens, H]; a .safetensors
    file holds `hidden`, and may hold `topk_ids` and `topk_weights`; without them the layer's router is asked.
    """
    from mechanism.command.fixture_import import ImportOptions, import_fixture

    return import_fixture(
        ImportOptions(
            checkpoint=checkpoint,
            layer=layer,
            hidden=hidden,
            prompt=prompt,
            expect_values=expect_values,
            private=private,
        )
    )


@cli.command()
@click.argument("bundle", type=Place(path_type=Path))
@click.option(
    "--arithmetic",
    type=click.Choice(["numpy", "numba"]),
    default="numpy",
    show_default=True,
    help="Who computes.",
)
@click.option("--jobs", type=click.IntRange(min=1), help="Worker processes; default: one per core.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
@reported
def reexecute(bundle: Path, arithmetic: str, jobs: int | None, form: str) -> int:
    """Compute every distinct trajectory of BUNDLE anew, on the simulated engine, and compare the bits.

    The fixture is built from the recipe in the bundle's plan, or found in the cache. Of a GPU cohort the
    surfaces are compared: agreement with a model, no evidence of the cohort. Ends with 0 if everything is
    equal, with 1 if something differs or could not be compared, with 4 if nothing could be computed.
    """
    from mechanism.command.reexecute import ReexecuteOptions, usable_cpus
    from mechanism.command.reexecute import reexecute as command

    asked = ReexecuteOptions(
        bundle=bundle, arithmetic=arithmetic, jobs=jobs or usable_cpus(), as_json=form == "json"
    )
    return command(asked)


@cli.group()
def vectors() -> None:
    """Golden vectors: inputs and outputs whose bits are known."""


@vectors.command("check")
@click.argument("folders", metavar="DIR...", nargs=-1, required=True, type=Place(path_type=Path))
@click.option(
    "--arithmetic",
    type=click.Choice(["numpy", "numba"]),
    default="numpy",
    show_default=True,
    help="Who computes.",
)
@reported
def vectors_check(folders: tuple[Path, ...], arithmetic: str) -> int:
    """Recompute every vector file under DIR with the simulated engine and compare the bits.

    Prints a line for each file that differs and last how many are bit-identical. Ends with 0 if all are, with
    1 if one differs, with 4 for an empty folder, an unknown kind or an unreadable file.
    """
    from mechanism.command.vectors import check_vectors as command

    return command(folders, arithmetic=arithmetic)


@vectors.command("record")
@click.argument("folder", metavar="DIR", type=Place(path_type=Path))
@click.option("--engine", type=click.Choice(["vllm"]), required=True, help="Who measures: the pinned build.")
@reported
def vectors_record(folder: Path, engine: str) -> int:  # noqa: ARG001 - one engine measures, and is named
    """Record GEMM vectors on this machine's GPU, by the pinned build's own kernel, into the new folder DIR.

    One file per block size, on the launches that the kernel chooses itself. Ends with 4 without a GPU or
    without the build, and then makes no folder.
    """
    from mechanism.command.vectors_record import record_vectors as command

    return command(folder)


@cli.command()
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
@reported
def assumptions(form: str) -> int:
    """Print what the specification could not settle, and how a GPU would settle it."""
    from mechanism.command.assumptions import assumptions as command

    return command(as_json=form == "json")


@cli.command()
@click.argument("bundle", type=Place(path_type=Path))
@click.option("--out", required=True, type=Place(path_type=Path), help="New file, in .zip or .tar.gz.")
@click.option("--key", type=Place(path_type=Path), help="Private Ed25519 key (PEM) to sign with.")
@click.option("--without-raw", is_flag=True, help="Leave the captured tensors out.")
@click.option(
    "--date",
    "published",
    type=click.DateTime(["%Y-%m-%d"]),
    default="1980-01-01",
    show_default=True,
    help="Date of publication in the metadata; evidence itself holds no wall-clock time.",
)
@reported
def package(bundle: Path, out: Path, key: Path | None, published: datetime, *, without_raw: bool) -> int:
    """Make one release file of a finished BUNDLE: a BagIt bag with an RO-Crate and an in-toto Statement.

    The same bundle, key and date give the same bytes. `verifier check FILE --key PUBLIC.pem` checks it.
    """
    from mechanism.command.package import PackageOptions
    from mechanism.command.package import package as command

    date = published.date().isoformat()
    return command(PackageOptions(bundle=bundle, out=out, key=key, raw=not without_raw, published=date))


@cli.group()
def key() -> None:
    """Keys that releases are signed with."""


@key.command("new")
@click.option("--out", "prefix", required=True, type=Place(path_type=Path), help="Prefix of both files.")
@reported
def key_new(prefix: Path) -> int:
    """Make an Ed25519 pair: PREFIX.pem, which is private, and PREFIX.pub.pem."""
    from mechanism.command.package import new_key as command

    return command(prefix)


cli.add_command(gpu)


@ends_at_once
def main() -> Any:
    """Entry point. Usage errors end with 4, since 2 is a verdict on evidence."""
    # nobody's plugin may see or change what is validated here; looking for some costs a tenth of a second
    os.environ["PYDANTIC_DISABLE_PLUGINS"] = "__all__"
    try:
        return cli.main(standalone_mode=False)
    except click.exceptions.Exit as exit_:
        sys.exit(exit_.exit_code)
    except click.ClickException as fault:
        fault.show()
        sys.exit(REFUSED)
    except click.Abort:
        sys.exit(130)


if __name__ == "__main__":
    main()
