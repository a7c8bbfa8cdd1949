"""A child that tries what it must not, and tells what came of it, as JSON on stderr.

`python -s -P -m tests.process.held_child FILE`, the file being a JSON object of `kind`, `bundle`, `fixture`,
`write` (paths) and `port`.
"""

import json
import os
import resource
import signal
import socket
import sys
from pathlib import Path

from mechanism.process import held


def attempt(path: str) -> str:
    """Name of the error that writing there gives, or `written`."""
    try:
        Path(path).write_text("mine")
    except OSError as fault:
        return type(fault).__name__ if fault.errno is None else os.strerror(fault.errno)
    return "written"


def connect(port: int) -> str:
    """What becomes of a connection to a port of this machine."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except OSError as fault:
        return os.strerror(fault.errno or 0)
    return "connected"


def hog(limit: int) -> str:
    """What becomes of memory beyond the limit."""
    try:
        bytearray(limit)
    except MemoryError:
        return "refused"
    return "had"


def large_file(path: Path, limit: int) -> str:
    """What becomes of a file beyond the limit."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        with path.open("wb") as file:
            file.truncate(limit + 1)
    except OSError as fault:
        return os.strerror(fault.errno or 0)
    finally:
        path.unlink(missing_ok=True)
    return "written"


def many(limit: int) -> str:
    """What becomes of more processes than the limit."""
    children = []
    try:
        for _ in range(limit + 1):
            pid = os.fork()
            if pid == 0:
                signal.pause()
            children.append(pid)
    except BlockingIOError:
        return "refused"
    finally:
        for pid in children:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    return "had"


def main(path: str) -> int:
    """Try everything."""
    asked = json.loads(Path(path).read_bytes())
    own = Path(path).parent
    facts = held.found(asked["kind"], bundle=Path(asked["bundle"]), fixture=Path(asked["fixture"]))
    told = {
        "facts": facts,
        "own": attempt(str(own / "mine")),
        "tried": {item: attempt(item) for item in asked["write"]},
        "connect": connect(asked["port"]),
        "remount": os.system(f"mount -o remount,rw {asked['bundle']} 2>/dev/null") == 0,
        "memory": hog(resource.getrlimit(resource.RLIMIT_AS)[0]),
        "file": large_file(own / "large", resource.getrlimit(resource.RLIMIT_FSIZE)[0]),
    }
    if facts["processes"] is not None:
        told["processes"] = many(facts["processes"])
    sys.stderr.write(json.dumps(told))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
