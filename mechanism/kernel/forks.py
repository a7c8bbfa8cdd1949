"""Independent pieces of work in a few forked processes, for work that is many small numpy calls.

Threads win nothing there: at every call they wait for each other's interpreter. A forked process has its own,
and the caller's arrays without a copy. Which process takes which piece changes no bit. (Not by
``multiprocessing``: its import takes as long as a small GEMM, and its own workers may not fork.)
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NoReturn, TypeVar

from mechanism.values import frozen

Piece = TypeVar("Piece")
Result = TypeVar("Result")
Done = dict[int, Result]  # by the index of the piece

_WORD = 4  # bytes of an index in the pipe
_TURNS = 1024  # of them fit into any pipe


@frozen
class _Child:
    pid: int
    told: int  # file descriptor: what it has done


def forked(work: Callable[[Piece], Result], pieces: Sequence[Piece], *, most: int) -> list[Result]:
    """``[work(piece) for piece in pieces]``, by ``most`` processes with this one. Results are pickled.

    What a forked process leaves undone, because it was refused, killed or met an exception, is done here in
    the end; so the exception is met here.
    """
    done: Done[Result] = {}
    # beside other threads, a lock that one of them holds would be held in the child for ever
    if len(pieces) > 1 and most > 1 and sys.platform == "linux" and threading.active_count() == 1:
        done = _shared_out(work, pieces, min(most, len(pieces)) - 1)
    return [done[index] if index in done else work(piece) for index, piece in enumerate(pieces)]


def _shared_out(work: Callable[[Piece], Result], pieces: Sequence[Piece], others: int) -> Done[Result]:
    """Every piece, unless something goes wrong in a forked process."""
    parent = os.getpid()
    children: list[_Child] = []
    with _turns(len(pieces)) as turns:

        def serve() -> Done[Result]:
            done: Done[Result] = {}
            for index in turns:
                if parent not in (os.getpid(), os.getppid()):
                    break  # nobody is there to be told
                done[index] = work(pieces[index])
            return done

        try:
            children.extend(child for _ in range(others) if (child := _fork(serve)))
            done = serve()
            for child in children:
                done |= _hear(child)
        finally:
            for child in children:
                _end(child)
    return done


@contextmanager
def _turns(count: int) -> Iterator[Iterator[int]]:
    """0 to count - 1, each given to the first that asks, in this process or in one that it forks."""
    per = -(-count // _TURNS)
    reader, writer = os.pipe()
    os.write(writer, b"".join(first.to_bytes(_WORD, "little") for first in range(0, count, per)))
    os.close(writer)  # before anything is forked, so that the pipe comes to its end

    def turns() -> Iterator[int]:
        while word := os.read(reader, _WORD):
            first = int.from_bytes(word, "little")
            yield from range(first, min(first + per, count))

    try:
        yield turns()
    finally:
        os.close(reader)


def _fork(serve: Callable[[], object]) -> _Child | None:
    """A process that serves, tells what it did and ends; None where the system refuses one."""
    told, tell = os.pipe()
    # until the child knows where to end, a Ctrl-C would send it up the caller's own stack
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        pid = os.fork()
        if pid == 0:
            _child(serve, tell, mask)
    except OSError:
        os.close(told)
        return None
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.close(tell)
    return _Child(pid=pid, told=told)


def _child(serve: Callable[[], object], tell: int, mask: set[int | signal.Signals]) -> NoReturn:
    """Whatever happens ends here; nothing of the caller's is flushed, closed or told."""
    status = 1
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        with open(tell, "wb") as pipe:
            pickle.dump(serve(), pipe)
        status = 0
    finally:
        os._exit(status)


def _hear(child: _Child) -> Done[Any]:
    """What it did; nothing if it ended before it could tell."""
    with open(child.told, "rb", closefd=False) as pipe:
        try:
            done: Done[Any] = pickle.load(pipe)  # noqa: S301 - from a child of this very code
        except (EOFError, pickle.UnpicklingError):
            return {}
    return done


def _end(child: _Child) -> None:
    """At once, unless it has ended: it writes nothing that could be left half done."""
    os.close(child.told)
    with suppress(ProcessLookupError, ChildProcessError):  # where the system itself takes ended children away
        os.kill(child.pid, signal.SIGKILL)
        os.waitpid(child.pid, 0)
