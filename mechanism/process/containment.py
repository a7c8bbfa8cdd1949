"""What a cold process may touch: its own files, no network, and no more than its limits.

Three ways, the best that the system lets us have: `namespaces` (mounts and network of its own, everything
read-only but its own files), `landlock` (the same by the kernel's rules for unprivileged sandboxes; TCP
alone is barred), `modes` (nothing binds but limits, and files in place are read-only). The supervisor does
it, the process itself looks what came of it (`held`), and its record says so.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from mechanism.engine.asked import Shape
from mechanism.values import frozen

Kind = Literal["namespaces", "landlock", "modes"]
KINDS: tuple[Kind, ...] = ("namespaces", "landlock", "modes")
#: Beside the cells' own folders: where a GPU's driver keeps what it compiled for sm_90 and later.
JIT_CACHE = "jit-cache"
MIB = 1 << 20
#: Address space beside what is mapped and copied of the fixture: interpreter, numpy, panels, surfaces.
_ROOM = 4096 * MIB
#: Beside the captured surfaces; a GPU's compiled kernels and profiles are the largest.
_FILE_ROOM = 256 * MIB
#: Processes and threads of one cell. The system counts them by user, in a namespace of its own by cell.
_PROCESSES = 1024


@frozen
class Limits:
    """`memory`, address space, and `file_size` in bytes; `processes` with threads. None: no limit."""

    memory: int | None
    file_size: int | None
    processes: int | None


@frozen
class Containment:
    """How one process is held. `rules`: (path, writable); of those that cover a file, the last one counts."""

    kind: Kind
    rules: tuple[tuple[str, bool], ...]
    limits: Limits


#: For processes that are no cells.
FREE = Containment(kind="modes", rules=(), limits=Limits(memory=None, file_size=None, processes=None))


def kinds_for(engine: str) -> tuple[Kind, ...]:
    """The ways to try, best first. Landlock lists what may be written, which for a GPU nobody can."""
    return tuple(kind for kind in KINDS if kind != "landlock" or engine != "vllm")


def containment(
    kind: Kind,
    *,
    engine: str,
    bundle: Path,
    fixture: Path,
    own: tuple[Path, ...],
    more: tuple[Path, ...],
    limits: Limits,
) -> Containment:
    """How a cell is held: `own` are its folders in the bundle, `more` what tests let it write to.

    A GPU's driver and runtime keep files all over the system; there, only bundle and fixture are read-only.
    """
    first = () if engine == "vllm" else ((Path("/"), False),)
    rules = (
        *first,
        *((path, True) for path in more),
        (fixture, False),
        (bundle, False),
        *((path, True) for path in own),
    )
    return Containment(
        kind=kind, rules=tuple((os.path.realpath(path), writable) for path, writable in rules), limits=limits
    )


def limits_of(
    kind: Kind, *, engine: str, shape: Shape, fixture_bytes: int, surfaces: tuple[str, ...]
) -> Limits:
    """The same for every cell of a plan.

    A GPU's driver reserves address space far beyond its memory, so that none is limited there. Processes are
    counted by user: a limit outside a namespace would count the neighbours' too.
    """
    routes = shape.tokens * shape.top_k
    columns = {"w13": 2 * shape.intermediate, "activation": shape.intermediate, "w2": shape.hidden}
    captured = 2 * sum(routes * columns.get(name, shape.hidden) for name in surfaces)
    return Limits(
        memory=None if engine == "vllm" else _ROOM + 4 * fixture_bytes,
        file_size=_FILE_ROOM + captured,
        processes=_PROCESSES if kind == "namespaces" and os.getuid() != 0 else None,  # root is not bound
    )


def as_request(held: Containment) -> Mapping[str, object]:
    """The same as plain data for the supervisor."""
    return {
        "kind": held.kind,
        "rules": [list(rule) for rule in held.rules],
        "memory": held.limits.memory,
        "file_size": held.limits.file_size,
        "processes": held.limits.processes,
    }
