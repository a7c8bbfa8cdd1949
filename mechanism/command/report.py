"""`mechanism report`: a bundle as one page. Verdicts are asked of the verifier, as a program of its own."""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from mechanism.command.extras import require
from mechanism.command.writing import write
from mechanism.fixture.place import cache_root
from mechanism.report.errors import ReportError
from mechanism.report.page import Verdicts, page
from mechanism.report.source import Source, read_source


@dataclass(frozen=True, kw_only=True, slots=True)
class ReportOptions:
    """What the command line asked for."""

    bundle: Path
    out: Path
    plan: Path | None
    expect_plan: str | None


def report(options: ReportOptions) -> int:
    """Write OUT/index.html; always 0 if a page could be made, whatever the verdicts on it."""
    require("jinja2")  # before the work that a page is
    source = read_source(options.bundle)
    text = page(source, _verdicts(options, source), cache_root())
    try:
        options.out.mkdir(parents=True, exist_ok=True)
    except OSError as fault:
        raise ReportError(
            f"--out: {options.out} cannot be made: {fault.strerror or fault}; name another place"
        ) from fault
    target = options.out / "index.html"
    write("--out", target, text.encode())
    click.echo(f"{target}")
    return 0


def _verdicts(options: ReportOptions, source: Source) -> Verdicts:
    """The verifier's report at the highest level that the bundle allows without computing anything."""
    level = "raw" if source.raw else "records"
    command = [
        sys.executable,
        "-m",
        "verifier",
        "check",
        str(options.bundle),
        "--level",
        level,
        "--format",
        "json",
    ]
    if options.plan is not None:
        command += ["--plan", str(options.plan)]
    if options.expect_plan is not None:
        command += ["--expect-plan", options.expect_plan]
    done = subprocess.run(command, check=False, capture_output=True)
    try:
        found: Any = json.loads(done.stdout)
    except ValueError as fault:
        said = done.stderr.decode(errors="replace").strip()[-500:]
        raise ReportError(f"the verifier gave no report (exit code {done.returncode}): {said}") from fault
    return Verdicts(report=found, level=level)
