"""Threads share the work of a GEMM; nothing of it shows in the bits."""

import threading

import numpy as np
import pytest

from mechanism.kernel import parallel, sums
from mechanism.kernel.gemm import marlin_gemm
from mechanism.kernel.parallel import ordered, threads
from mechanism.kernel.rounding import bits16
from tests.kernel.kernel_setup import launch, problem


@pytest.mark.parametrize("most", [1, 2, 5, 200])
def test_results_are_in_the_order_of_the_pieces(most: int) -> None:
    """However many threads; none is left behind."""
    before = threading.active_count()
    assert ordered(lambda piece: piece * piece, range(100), most=most) == [
        piece * piece for piece in range(100)
    ]
    assert ordered(abs, (), most=most) == []
    assert threading.active_count() == before


@pytest.mark.parametrize("most", [1, 3])
def test_a_failure_is_raised_and_ends_the_rest(most: int) -> None:
    """In whichever thread it happened."""
    seen = []

    def work(piece: int) -> None:
        seen.append(piece)
        if piece >= 3:
            raise KeyError(piece)

    with pytest.raises(KeyError):
        ordered(work, range(1000), most=most)
    assert len(seen) <= 3 + most


def test_refused_threads_are_done_without(monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit on processes counts threads too."""

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert ordered(abs, [-1, 2, -3], most=4) == [1, 2, 3]


def test_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """As asked for; else no more than CPUs, nor than four."""
    monkeypatch.setenv("MECHANISM_THREADS", "7")
    assert threads() == 7
    monkeypatch.setenv("MECHANISM_THREADS", "0")
    assert threads() == 1
    monkeypatch.setenv("MECHANISM_THREADS", "many")
    assert 1 <= threads() <= parallel.MOST


def test_threads_change_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor which slices are written down."""
    given = problem(21, tokens=40, n=512, k=512, spread=2)
    monkeypatch.setattr(sums, "ROWS", 4)
    monkeypatch.setattr(sums, "WIDTH", 256)
    runs = []
    for count in ("1", "4"):
        monkeypatch.setenv("MECHANISM_THREADS", count)
        runs.append(
            marlin_gemm(
                given.a, given.weights, given.alignment, launch(64, 128, 9), top_k=given.top_k, arch="sm_86"
            )
        )
    assert np.array_equal(bits16(runs[0].output), bits16(runs[1].output))
    assert runs[0].executed == runs[1].executed
