"""One piece of work on a few threads, for machine code that lets go of the interpreter.

Which thread does what of it changes no bit: they share nothing that they write, but whose turn it is.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

MOST = 4  # each brings memory of its own, and is soon done before the next one has started


def threads() -> int:
    """Threads or processes of one GEMM: $MECHANISM_THREADS, else one for each usable CPU, at most four."""
    named = os.environ.get("MECHANISM_THREADS", "")
    if named.isdecimal():
        return max(1, int(named))
    return min(MOST, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1)


def on_threads(work: Callable[[], object], count: int) -> None:
    """``work()`` on each of ``count`` threads; this one is the first of them.

    All of them end before the first exception that was met is raised here. A thread that the system refuses
    is done without.
    """
    faults: list[BaseException] = []

    def serve() -> None:
        try:
            work()
        except BaseException as fault:  # noqa: BLE001 - raised again by the caller's thread
            faults.append(fault)

    others = []
    for _ in range(count - 1):
        thread = threading.Thread(target=serve, daemon=True)
        try:
            thread.start()
        except RuntimeError:
            break
        others.append(thread)
    serve()
    for thread in others:
        thread.join()
    if faults:
        raise faults[0]
