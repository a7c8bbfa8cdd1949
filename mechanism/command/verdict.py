"""The verifier's word on a run: a child program, never an import.

Resuming a run that is complete asks for nothing else. So there it is started first, before the modules that a
campaign needs are loaded; if the run is refused after all, its word is not waited for.
"""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from mechanism.campaign.folder_lock import LOCK

#: `ledger.bundle.SUMMARY`: importing that would cost what is to be saved.
SUMMARY = "bundle.json"


class Verifier:
    """The verifier at level raw, anchored at the plan file; started once."""

    def __init__(self, plan: Path, *, as_json: bool) -> None:
        self._plan, self._form = plan, "json" if as_json else "text"
        self._started: subprocess.Popen[bytes] | None = None

    def start(self, folder: Path) -> None:
        """Have it look at the bundle; what it says is kept until it is asked for."""
        command = [sys.executable, "-m", "verifier", "check", str(folder), "--level", "raw"]
        command += ["--plan", str(self._plan), "--format", self._form]
        self._started = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def report(self, folder: Path) -> tuple[int, bytes]:
        """Its exit code and its report, when it is done; its messages go to stderr."""
        if self._started is None:
            self.start(folder)
        if (started := self._started) is None:
            raise RuntimeError("start() left nothing started")
        told, said = started.communicate()
        sys.stderr.write(said.decode(errors="replace"))
        return started.returncode, told

    def drop(self) -> None:
        """End it if it is still at work."""
        if self._started is not None and self._started.returncode is None:
            self._started.kill()
            self._started.communicate()


@contextlib.contextmanager
def verifier(plan: Path, out: Path | None, *, resume: bool, as_json: bool) -> Iterator[Verifier]:
    """The verifier for a run, already at work if the run is complete; none is left at work afterwards."""
    found = Verifier(plan, as_json=as_json)
    if resume and out is not None and (out / SUMMARY).is_file() and not (out / LOCK).exists():
        found.start(out)  # with a lock a runner is at work, or one was killed at the very end
    try:
        yield found
    finally:
        found.drop()
