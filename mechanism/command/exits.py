"""Exit codes of `mechanism`, and the one place where its errors become messages."""

import functools
import os
import signal
import sys
from collections.abc import Callable
from typing import Any, NoReturn

import click

from ledger.fault import FaultsError
from mechanism.command.extras import lacking
from mechanism.errors import MechanismError
from mechanism.fixture.errors import FixtureError
from mechanism.kernel.errors import KernelError

SUPPORTED = 0
REFUSED = 4
INCOMPLETE = 5
AT_WORK = 6

TABLE = """\b
Exit codes:
  0    done; for run: every checked claim is supported
  1    run: a claim is refuted; reexecute, vectors check: something differs, or could not be compared
  2    run only: evidence is malformed or ambiguous
  3    run only: evidence is missing or was not run
  4    refused: bad usage, plan, lock, fixture or folder; nothing was run
  5    run, status: the bundle is not complete, see its attempts, then --resume; or it was, and lost files
  6    status only: it is not complete yet, a runner is at work
  130  stopped by Ctrl-C, 143 by SIGTERM; nothing is lost, --resume goes on
"""


def reported(command: Callable[..., int]) -> Callable[..., None]:
    """A click command that ends with the code it returns, and with one message for a known error."""

    @functools.wraps(command)
    def wrapper(*args: Any, **kwargs: Any) -> None:
        try:
            code = command(*args, **kwargs)
        except (FaultsError, MechanismError, FixtureError, KernelError) as fault:
            click.echo(
                f"mechanism: refused:\n{fault}" if "\n" in str(fault) else f"mechanism: refused: {fault}",
                err=True,
            )
            code = REFUSED
        except ImportError as fault:
            if (told := lacking(fault)) is None:
                raise
            click.echo(f"mechanism: refused: {told}", err=True)
            code = REFUSED
        except KeyboardInterrupt:
            click.echo("mechanism: stopped by Ctrl-C", err=True)
            code = 128 + signal.SIGINT
        except OSError as fault:
            where = f"{fault.filename}: " if fault.filename else ""
            click.echo(f"mechanism: {where}{fault.strerror or fault}; nothing recorded was changed", err=True)
            code = REFUSED
        sys.exit(code)

    return wrapper


def ends_at_once(program: Callable[[], Any]) -> Callable[[], NoReturn]:
    """A program that, when it is done, takes nothing apart that is gone with the process anyway."""

    def wrapper() -> NoReturn:
        code: Any = 0
        try:
            program()
        except SystemExit as left:
            code = left.code or 0
        except OSError as fault:  # whoever reads the help is gone, or has no room for it
            click.echo(f"mechanism: {fault.strerror}", err=True)
            code = REFUSED
        if "torch" in sys.modules or not isinstance(code, int):  # a GPU's driver has its own to do
            sys.exit(code)
        for stream in (sys.stdout, sys.stderr):
            if stream is None:  # it was closed before this program began
                continue
            try:
                stream.flush()
            except OSError:  # the reader is gone, and what it was to be told with it
                code = code or REFUSED
        os._exit(code)

    return wrapper
