"""Independent pieces of work on a few threads, for machine code that lets go of the interpreter.

Which thread takes which piece changes no bit: pieces share nothing that they write.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

Piece = TypeVar("Piece")
Result = TypeVar("Result")

MOST = 4  # more threads than that wait for the interpreter


def threads() -> int:
    """Threads or processes of one GEMM: $MECHANISM_THREADS, else one for each usable CPU, at most four."""
    named = os.environ.get("MECHANISM_THREADS", "")
    if named.isdecimal():
        return max(1, int(named))
    return min(MOST, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1)


def ordered(work: Callable[[Piece], Result], pieces: Sequence[Piece], *, most: int) -> list[Result]:
    """``[work(piece) for piece in pieces]``; the first exception met ends all of it and is raised here.

    A thread that the system refuses is done without.
    """
    results: dict[int, Result] = {}
    faults: list[BaseException] = []
    queue = iter(enumerate(pieces))

    def serve() -> None:
        try:
            for index, piece in _shared(queue, faults):
                results[index] = work(piece)
        except BaseException as fault:  # noqa: BLE001 - raised again by the caller's thread
            faults.append(fault)

    others = []
    for _ in range(min(most, len(pieces)) - 1):
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
    return [results[index] for index in range(len(pieces))]


def _shared(queue: Iterator[tuple[int, Piece]], faults: list[BaseException]) -> Iterator[tuple[int, Piece]]:
    """What is left of a queue, until somebody fails. ``next`` of an ``enumerate`` is one interpreter step."""
    while not faults:
        try:
            yield next(queue)
        except StopIteration:
            return
