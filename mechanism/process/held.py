"""How a process finds itself held: what it can write and reach, tried, and its limits, asked for."""

import errno
import os
import resource
import sys
from pathlib import Path
from typing import Any

_BARRED = (errno.EROFS, errno.EACCES, errno.EPERM)


def found(kind: str, *, bundle: Path, fixture: Path) -> dict[str, Any]:
    """A `ledger.record.Containment` as plain data, of this process. `kind`: what was asked for."""
    inside = writable(bundle) or writable(fixture)
    return {
        "by": kind,
        "bundle": "writable" if inside else "read-only",
        "elsewhere": "writable" if writable(bundle.parent) else "read-only",
        "network": network(),
        "memory": _limit(resource.RLIMIT_AS),
        "file_size": _limit(resource.RLIMIT_FSIZE),
        "processes": None if _outside_uid() == 0 else _limit(resource.RLIMIT_NPROC),  # root is not bound
        "nice": os.getpriority(os.PRIO_PROCESS, 0),
    }


def writable(folder: Path) -> bool:
    """Whether a file can be made in the folder. One is, without a name: it is gone when it is closed."""
    try:
        os.close(os.open(folder, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    except OSError as fault:
        if fault.errno in _BARRED:
            return False
        return _by_name(folder / f".held-{os.getpid()}")  # not every file system has files without names
    return True


def _by_name(path: Path) -> bool:
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    except OSError:
        return False
    path.unlink()
    return True


def network() -> str:
    """`none` if no interface is up, not even a loopback; `no-tcp` if ports are barred; else `host`."""
    table = Path("/proc/self/net/dev").read_bytes().splitlines()[2:]
    others = [line for line in table if line.partition(b":")[0].strip() != b"lo"]
    if not others and not _loopback_is_up():
        return "none"
    import _socket  # noqa: PLC0415 - a process without a network does not pay for it

    probe = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    try:
        probe.bind(("127.0.0.1", 0))
    except OSError as fault:
        return "no-tcp" if fault.errno in _BARRED else "host"
    finally:
        probe.close()
    return "host"


def _loopback_is_up() -> bool:
    """A new network namespace's is down. Routes are listed for interfaces that are up."""
    try:
        return bool(Path("/proc/self/net/fib_trie").read_bytes().strip())
    except OSError:
        return True


def _limit(kind: int) -> int | None:
    soft = resource.getrlimit(kind)[0]
    return None if soft == resource.RLIM_INFINITY else soft


def _outside_uid() -> int:
    """Who this user is outside of its namespace (user_namespaces(7))."""
    inside, outside, _ = Path("/proc/self/uid_map").read_bytes().split()[:3]
    return int(outside) + os.getuid() - int(inside)


def main(path: str) -> int:
    """Whether this process is held as the file at `path` says; asked once, before a campaign relies on it."""
    import json  # noqa: PLC0415 - cells do not pay for it

    asked = json.loads(Path(path).read_bytes())
    facts = found(asked["kind"], bundle=Path(asked["bundle"]), fixture=Path(asked["fixture"]))
    barred = facts["bundle"] == "read-only" and facts["network"] != "host"
    sys.stderr.write(json.dumps(facts))
    return 0 if writable(Path(path).parent) and (barred or asked["kind"] == "modes") else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
