"""A child that misbehaves on request: `python -s -P -m tests.process.bad_child BEHAVIOUR[:ARGUMENT]`."""

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path


def facts(_argument: str) -> None:
    """Tell where it finds itself, as JSON on stderr."""
    mask = os.umask(0)
    found = {
        "argv": sys.orig_argv[1:],
        "cwd": str(Path.cwd()),
        "environment": dict(os.environ),
        "umask": mask,
        "session": os.getsid(0) == os.getpid(),
        "stdin": sys.stdin.read(),
        "descriptors": sorted(int(path.name) for path in Path("/proc/self/fd").iterdir()),
    }
    sys.stderr.write(json.dumps(found))


def ignore_term(place: str) -> None:
    """Write `ready` once TERM is ignored, then wait."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    tell(place, "ready")
    time.sleep(100)


def grandchild(place: str) -> None:
    """Wait, with an orphan in a session of its own."""
    _orphan(place)
    time.sleep(100)


def helper(_argument: str) -> None:
    """Leave a process that ends by itself a moment later."""
    if os.fork() == 0:
        time.sleep(0.15)
        os._exit(0)


def flood(_argument: str) -> None:
    """50 MiB to stderr."""
    for _ in range(50):
        sys.stderr.write("x" * 2**20)
    sys.stderr.write("the end")


def tree(_argument: str) -> None:
    """Three children with sessions, each with a child with a session, each of which forks once more."""
    there, here = os.pipe()
    for _ in range(3):
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                os.setsid()
                os.fork()
            os.write(here, b"1")
            time.sleep(100)
    for _ in range(9):
        os.read(there, 1)  # until all of them are there


def _orphan(place: str) -> None:
    """A process in a session of its own, whose parent is gone; it ignores TERM and HUP.

    Returns when all that is so, and its pid is in the file.
    """
    there, here = os.pipe()
    middle = os.fork()
    if middle != 0:
        os.close(here)
        os.read(there, 1)  # its end: nobody holds the other side any more
        os.waitpid(middle, 0)
        return
    os.setsid()
    if os.fork() != 0:
        os._exit(0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    tell(place, str(os.getpid()))
    os.close(here)
    time.sleep(100)
    os._exit(0)


def tell(place: str, text: str) -> None:
    """A file that has its text from the moment that it is there."""
    beside = Path(f"{place}.{os.getpid()}")
    beside.write_text(text)
    beside.rename(place)


ACTIONS: dict[str, Callable[[str], object]] = {
    "facts": facts,
    "exit": lambda argument: sys.exit(int(argument)),
    "signal": lambda argument: os.kill(os.getpid(), int(argument)),
    "sleep": lambda _argument: time.sleep(100),
    "ignore-term": ignore_term,
    "grandchild": grandchild,
    "leave": _orphan,
    "helper": helper,
    "flood": flood,
    "tree": tree,
}


def misbehave(behaviour: str, argument: str) -> int:
    """Do one bad thing. Returns the exit code 0 where it comes to that."""
    ACTIONS[behaviour](argument)
    return 0


if __name__ == "__main__":
    word, _, rest = sys.argv[1].partition("=")
    sys.exit(misbehave(word, rest))
