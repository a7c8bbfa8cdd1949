"""Threads share the work of a GEMM. That nothing shows in its bits is tested with what they do."""

import threading

import pytest

from mechanism.kernel import parallel
from mechanism.kernel.parallel import ordered, threads


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
