"""Threads share the work of a GEMM. That nothing shows in its bits is tested with what they do."""

import threading

import pytest

from mechanism.kernel import parallel
from mechanism.kernel.parallel import on_threads, threads


@pytest.mark.parametrize("count", [1, 2, 5])
def test_every_thread_works_once(count: int) -> None:
    """All at the same time; the caller's is one of them, and none is left behind."""
    before, together, used = threading.active_count(), threading.Barrier(count, timeout=60), []

    def work() -> None:
        together.wait()
        used.append(threading.current_thread())

    on_threads(work, count)
    assert len(set(used)) == len(used) == count
    assert threading.main_thread() in used
    assert threading.active_count() == before


@pytest.mark.parametrize("where", ["here", "in another"])
def test_a_failure_is_raised_when_all_have_ended(where: str) -> None:
    """In whichever thread it happened."""
    main, together, ended = threading.main_thread(), threading.Barrier(3, timeout=60), []

    def work() -> None:
        together.wait()
        ended.append(threading.current_thread())
        if (threading.current_thread() is main) == (where == "here"):
            raise KeyError(where)

    with pytest.raises(KeyError, match=where):
        on_threads(work, 3)
    assert len(set(ended)) == 3


def test_refused_threads_are_done_without(monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit on processes counts threads too."""

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    used = []
    on_threads(lambda: used.append(threading.current_thread()), 4)
    assert used == [threading.main_thread()]


def test_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """As asked for; else no more than CPUs, nor than four."""
    monkeypatch.setenv("MECHANISM_THREADS", "7")
    assert threads() == 7
    monkeypatch.setenv("MECHANISM_THREADS", "0")
    assert threads() == 1
    monkeypatch.setenv("MECHANISM_THREADS", "many")
    assert 1 <= threads() <= parallel.MOST
