"""`mechanism status`: where a campaign stands, from outside, whether its runner works or not."""

import json
import shlex
from dataclasses import asdict
from pathlib import Path

import click

from mechanism.campaign.standing import Standing, read_standing
from mechanism.command.exits import AT_WORK, INCOMPLETE, SUPPORTED

_REFUSED = "nobody runs it, and --resume will refuse: {refusal}"
_STATES = {
    "complete": "complete: `verifier check` says what it shows",
    "damaged": "it was complete and is damaged: {damage}; put back what is {what} from a copy, or run the"
    " plan again into another folder",
    "running": "process {runner} runs it",
    "ending": "its runner is gone; processes that it started are being ended",
    "stopped": "nobody runs it; go on with: mechanism run PLAN --out {folder} --resume",
}
#: Exit code by state; a folder without a campaign is refused.
CODES = {
    "complete": SUPPORTED,
    "damaged": INCOMPLETE,
    "running": AT_WORK,
    "ending": INCOMPLETE,
    "stopped": INCOMPLETE,
}
#: Cells that failed are listed up to so many; --format json has them all.
_LISTED = 20


def status(folder: Path, *, as_json: bool) -> int:
    """Print where the campaign in `folder` stands. Returns the exit code."""
    found = read_standing(folder)
    if as_json:
        click.echo(json.dumps({"bundle": str(folder), **asdict(found)}))
    else:
        click.echo("\n".join(_text(found, folder)))
    return CODES[found.state]


def _text(found: Standing, folder: Path) -> list[str]:
    left = "" if found.left_s is None else f", about {found.left_s:.0f} s left"
    stopped = f"{len(found.interrupted)} interrupted, " if found.interrupted else ""
    lines = [
        f"{folder.name}: {found.done} of {found.total} cells, {len(found.failed)} failed,"
        f" {stopped}{len(found.running)} running{left}",
        (_REFUSED if found.refusal else _STATES[found.state]).format(
            runner=found.runner,
            folder=shlex.quote(str(folder)),
            refusal=found.refusal,
            damage=" and ".join(filter(None, (_missing(found.missing), _changed(found.changed)))),
            what=" or ".join(("missing",) * bool(found.missing) + ("changed",) * bool(found.changed)),
        ),
        f"{found.attempts} processes started by {found.runners} runner{'s' if found.runners > 1 else ''}",
    ]
    # a line that is being written looks torn too; of what is damaged, --resume keeps nothing
    if found.torn and found.state not in {"running", "damaged"}:
        then = "will keep them once it can go on" if found.refusal else "keeps them and goes on"
        lines.append(f"the last {found.torn} bytes of the log are torn; --resume {then}")
    lines += [f"running: {name}" for name in found.running]
    without = [f"failed: {name}: {why}" for name, why in found.failed]
    without += [f"{why.partition(':')[0]}: {name}:{why.partition(':')[2]}" for name, why in found.interrupted]
    lines += without[:_LISTED]
    more = len(without) - _LISTED
    return [*lines, f"and {more} more; --format json lists them"] if more > 0 else lines


def _missing(paths: tuple[str, ...]) -> str:
    """How many files are gone, and the first three; empty for none."""
    return _told(paths, "1 file is missing", "{} files are missing")


def _changed(paths: tuple[str, ...]) -> str:
    """How many files have other bytes, likewise."""
    return _told(paths, "1 file has other bytes", "{} files have other bytes")


def _told(paths: tuple[str, ...], one: str, several: str) -> str:
    if not paths:
        return ""
    more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
    return f"{one if len(paths) == 1 else several.format(len(paths))} ({', '.join(paths[:3])}{more})"
