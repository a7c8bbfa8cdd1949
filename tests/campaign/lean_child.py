"""A child that costs as little as a fresh interpreter can, for thousands: it imports what Python has anyway.

$TEMPLATES names a folder of records, one for each cell and history, with holes for what names a process; each
is followed by the files of $STORED that belong to it. See `templates` in tests/campaign/test_large.py.
"""

import os
import sys
import time


def read(path: str) -> bytes:
    """A file's bytes."""
    with open(path, "rb") as file:  # noqa: PTH123 - pathlib costs as much as all the rest
        return file.read()


def write(path: str, data: bytes) -> None:
    """A new file."""
    with open(path, "wb") as file:  # noqa: PTH123 - as above
        file.write(data)


def main(path: str) -> None:
    """Deliver what is stored, under this process's own name."""
    request = read(path)

    def asked(key: str) -> str:
        """A top-level value of the request, canonical JSON, as text."""
        rest = request.partition(f'"{key}":'.encode())[2]
        return (rest[1:].partition(b'"')[0] if rest[:1] == b'"' else rest.partition(b",")[0]).decode()

    staging, record = asked("staging"), asked("record")
    cell = record.removeprefix("records/").rpartition(".json")[0].rpartition(".")[0]
    template, *names = read(f"{os.environ['TEMPLATES']}/{cell}").split(b"\n")
    stat = read("/proc/self/stat").rpartition(b")")[2].split()
    own = {key: asked(key) for key in ("attempt", "replicate", "nonce")}
    own |= {"pid": str(os.getpid()), "started_us": str(int(stat[19]) * 1_000_000 // os.sysconf("SC_CLK_TCK"))}
    own["time_us"] = str(time.monotonic_ns() // 1000)
    for key, value in own.items():
        template = template.replace(f"@{key}@".encode(), value.encode())
    for name in filter(None, (name.decode() for name in names)):
        write(f"{staging}/{name}", read(f"{os.environ['STORED']}/{name}"))
    write(f"{staging}/{record}", template)


if __name__ == "__main__":
    main(sys.argv[1])
