"""Ctrl-C and TERM as something to wait for, so that a campaign ends in order."""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupt:
    """`signal` is the number of the first stopping signal that came; `fileno()` is readable from then on."""

    def __init__(self, reader: int) -> None:
        self.signal: int | None = None
        self._reader = reader

    def fileno(self) -> int:
        """To be waited on."""
        return self._reader

    def drain(self) -> None:
        """Take what made the descriptor readable."""
        with contextlib.suppress(BlockingIOError):
            while os.read(self._reader, 64):
                pass

    def handle(self, number: int, _frame: object) -> None:
        """The signal handler. The second signal does not wait for the first one's order; it names itself."""
        if self.signal is not None:
            raise KeyboardInterrupt(number)
        self.signal = number


@contextlib.contextmanager
def watched() -> Iterator[Interrupt]:
    """Handle stopping signals while inside. Outside the main thread signals are somebody else's."""
    reader, writer = os.pipe()
    for descriptor in (reader, writer):
        os.set_blocking(descriptor, False)
    interrupt = Interrupt(reader)
    before: dict[int, Any] = {}
    woken = None
    try:
        if threading.current_thread() is threading.main_thread():
            woken = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
            for number in STOPPING:
                if signal.getsignal(number) is not signal.SIG_IGN:  # nohup ignores HUP, and means it
                    before[number] = signal.signal(number, interrupt.handle)
        yield interrupt
    finally:
        if woken is not None:
            signal.set_wakeup_fd(woken)
        for stopping, handler in before.items():
            signal.signal(stopping, handler)
        os.close(reader)
        os.close(writer)
