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
from itertools import chain, starmap
from typing import Any, NoReturn, TypeVar

Piece = TypeVar("Piece")
Result = TypeVar("Result")
Done = dict[int, Result]  # by the index of the piece

_WORD = 4  # bytes of an index in the pipe
_TURNS = 1024  # of them fit into any pipe


class _Team:
    """Forked processes, and what is open because of them: ``end`` leaves nothing of either.

    A Ctrl-C can come between any two steps of Python, before ``end`` too. So what is made is written down in
    the step that makes it, and a team that is forgotten ends as well.
    """

    caller = 0  # nobody's, until it is made

    def __init__(self) -> None:
        self.children: list[int] = []
        self.files: list[int] = []
        self._mask: set[int | signal.Signals] | None = None
        self.caller = os.getpid()

    def hold_signals(self) -> None:
        """Until ``let_signals``: one that a child meets would send it up the caller's own stack."""
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, [])
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())

    def let_signals(self) -> None:
        if self._mask is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
            self._mask = None

    def pipe(self) -> tuple[int, int]:
        """Its reading end and its writing end."""
        self.files.extend(chain.from_iterable(starmap(os.pipe, ((),))))
        return self.files[-2], self.files[-1]

    def close(self, file: int) -> None:
        with suppress(OSError):  # closed before a Ctrl-C
            os.close(file)
        self.files.remove(file)

    def fork(self) -> int:
        """The child; 0 in it."""
        self.children.extend(starmap(os.fork, ((),)))
        return self.children[-1]

    def wait(self, child: int) -> None:
        """For one that has told what it did."""
        with suppress(ChildProcessError):  # where the system itself takes ended children away
            os.waitpid(child, 0)
        self.children.remove(child)

    def end(self) -> None:
        """Of children at once: they write nothing that could be left half done."""
        if os.getpid() != self.caller:
            return
        try:
            self.let_signals()
            while self.children:
                with suppress(ProcessLookupError, ChildProcessError):
                    os.kill(self.children[-1], signal.SIGKILL)
                    os.waitpid(self.children[-1], 0)
                self.children.pop()
            while self.files:
                self.close(self.files[-1])
        finally:
            if self.children or self.files:
                self.end()

    __del__ = end


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
    team = _Team()
    turns: Iterator[int] = iter(())
    told: dict[int, int] = {}
    done: Done[Result] = {}
    try:
        with suppress(OSError, RuntimeError):  # no more processes or files, or this one is ending
            turns = _turns(len(pieces), team)
            _fork(lambda: {index: work(pieces[index]) for index in turns}, others, team, told)
        for index in turns:
            done[index] = work(pieces[index])
        for child, pipe in told.items():
            done |= _heard(pipe)
            team.wait(child)
    finally:
        team.end()
    return done


def _turns(count: int, team: _Team) -> Iterator[int]:
    """0 to count - 1, each given to the first that asks, in this process or in one that it forks.

    A forked process whose caller is gone ends when it asks.
    """
    per = -(-count // _TURNS)
    reader, writer = team.pipe()
    os.write(writer, b"".join(first.to_bytes(_WORD, "little") for first in range(0, count, per)))
    team.close(writer)  # before anything is forked, so that turns come to an end

    def turns() -> Iterator[int]:
        while word := os.read(reader, _WORD):
            first = int.from_bytes(word, "little")
            for index in range(first, min(first + per, count)):
                if team.caller not in (os.getpid(), os.getppid()):
                    os._exit(1)
                yield index

    return turns()


def _fork(serve: Callable[[], object], others: int, team: _Team, told: dict[int, int]) -> None:
    """Processes that serve, tell what they did and end; ``told``: the file on which each does."""
    team.hold_signals()
    try:
        for _ in range(others):
            mine, its = team.pipe()
            child = team.fork()
            if child == 0:
                _child(serve, its, team)
            told[child] = mine
            team.close(its)
    finally:
        team.let_signals()


def _child(serve: Callable[[], object], tell: int, team: _Team) -> NoReturn:
    """Whatever happens ends here; nothing of the caller's is flushed, finalised or told."""
    status = 1
    try:
        gc.disable()
        for file in team.files[1:]:  # all but the turns: or a caller's end would not be seen while telling
            if file != tell:
                os.close(file)
        team.let_signals()
        with open(tell, "wb") as pipe:
            pickle.dump(serve(), pipe)
        status = 0
    finally:
        os._exit(status)


def _heard(told: int) -> Done[Any]:
    """What a child did; nothing if it ended before it could tell."""
    with open(told, "rb", closefd=False) as pipe:
        try:
            done: Done[Any] = pickle.load(pipe)  # noqa: S301 - from a child of this very code
        except (EOFError, pickle.UnpicklingError):
            return {}
    return done
