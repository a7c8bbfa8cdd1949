"""Independent pieces of work in a few forked processes, for work that is many small numpy calls.

Threads win nothing there: at every call they wait for each other's interpreter. A forked process has its own,
and the caller's arrays without a copy. Which process takes which piece changes no bit. (Not by
``multiprocessing``: its import takes as long as a small GEMM, and its own workers may not fork.)
"""

from __future__ import annotations

import gc
import os
import pickle
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, NoReturn, TypeVar

from mechanism.values import frozen

Piece = TypeVar("Piece")
Result = TypeVar("Result")
Done = dict[int, Result]  # by the index of the piece

_WORD = 4  # bytes of an index in the pipe
_TURNS = 1024  # of them fit into any pipe


@frozen
class _Team:
    """Forked processes, and what is open because of them; both are emptied in the end."""

    children: dict[int, int]  # by process id, the file on which each tells what it did
    files: list[int]  # of the turns, and of every child


def forked(work: Callable[[Piece], Result], pieces: Sequence[Piece], *, most: int) -> list[Result]:
    """``[work(piece) for piece in pieces]``, by ``most`` processes with this one. Results are pickled.

    What a forked process leaves undone, because it was refused, killed or met an exception, is done here in
    the end; so the exception is met here.
    """
    done: Done[Result] = {}
    if len(pieces) > 1 and most > 1 and sys.platform == "linux" and _alone():
        done = _shared_out(work, pieces, min(most, len(pieces)) - 1)
    return [done[index] if index in done else work(piece) for index, piece in enumerate(pieces)]


def _alone() -> bool:
    """Whether no other thread is there: a lock that it holds would be held in a forked process for ever."""
    return len(sys._current_frames()) == 1  # noqa: SLF001 - `threading` does not know them all


def _shared_out(work: Callable[[Piece], Result], pieces: Sequence[Piece], others: int) -> Done[Result]:
    """Every piece, unless something goes wrong in a forked process."""
    team = _Team(children={}, files=[])
    done: Done[Result] = {}
    try:
        turns = _fork(work, pieces, others, team)
        for index in turns:
            done[index] = work(pieces[index])
        for child in list(team.children):
            done |= _hear(child, team)
    finally:
        _end(team)
    return done


def _fork(
    work: Callable[[Piece], Result], pieces: Sequence[Piece], others: int, team: _Team
) -> Iterator[int]:
    """Processes that serve, tell what they did and end, as many as the system allows; and this one's turns.

    Signals wait meanwhile: one that came in between would leave a process that nobody knows of, or send it up
    the caller's own stack.
    """
    turns: Iterator[int] = iter(())
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        with suppress(OSError, RuntimeError):  # no more processes or files, or this one is ending
            turns = _turns(len(pieces), team)
            for _ in range(others):
                told, tell = os.pipe()
                team.files.append(told)
                try:
                    pid = os.fork()
                    if pid == 0:
                        _child(lambda: {index: work(pieces[index]) for index in turns}, tell, team, mask)
                    team.children[pid] = told
                finally:
                    os.close(tell)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    return turns


def _turns(count: int, team: _Team) -> Iterator[int]:
    """0 to count - 1, each given to the first that asks, in this process or in one that it forks.

    A forked process whose caller is gone ends when it asks.
    """
    caller, per = os.getpid(), -(-count // _TURNS)
    reader, writer = os.pipe()
    team.files.append(reader)
    try:
        os.write(writer, b"".join(first.to_bytes(_WORD, "little") for first in range(0, count, per)))
    finally:
        os.close(writer)  # before anything is forked, so that turns come to an end

    def turns() -> Iterator[int]:
        while word := os.read(reader, _WORD):
            first = int.from_bytes(word, "little")
            for index in range(first, min(first + per, count)):
                if caller not in (os.getpid(), os.getppid()):
                    os._exit(1)
                yield index

    return turns()


def _child(serve: Callable[[], object], tell: int, team: _Team, mask: set[int | signal.Signals]) -> NoReturn:
    """Whatever happens ends here; nothing of the caller's is flushed, finalised or told."""
    status = 1
    try:
        gc.disable()
        for told in team.files[1:]:  # all but the turns: or a caller's end would not be seen while telling
            os.close(told)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        with open(tell, "wb") as pipe:
            pickle.dump(serve(), pipe)
        status = 0
    finally:
        os._exit(status)


def _hear(child: int, team: _Team) -> Done[Any]:
    """What a child did, which then ends; nothing if it ended before it could tell."""
    with open(team.children[child], "rb", closefd=False) as pipe:
        try:
            done: Done[Any] = pickle.load(pipe)  # noqa: S301 - from a child of this very code
        except (EOFError, pickle.UnpicklingError):
            done = {}
    with suppress(ChildProcessError):  # where the system itself takes ended children away
        os.waitpid(child, 0)
    del team.children[child]
    return done


def _end(team: _Team) -> None:
    """Of children at once: they write nothing that could be left half done. No second Ctrl-C keeps any."""
    try:
        for child in list(team.children):
            with suppress(ProcessLookupError, ChildProcessError):
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
            del team.children[child]
        while team.files:
            with suppress(OSError):  # closed before a Ctrl-C
                os.close(team.files[-1])
            team.files.pop()
    finally:
        if team.children or team.files:
            _end(team)
