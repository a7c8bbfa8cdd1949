"""What long work tells of itself, however it is shown."""

from abc import ABC, abstractmethod
from typing import NamedTuple


class Standing(NamedTuple):
    """How far one long piece of work is; `seconds_left` is an estimate, if there is one."""

    done: int
    total: int
    failed: int
    interrupted: int
    seconds_left: float | None


class Counter(ABC):
    """What is shown of one long piece of work: `at` moves it, `note` adds a line that stays."""

    def at(
        self,
        done: int,
        total: int,
        *,
        failed: int = 0,
        interrupted: int = 0,
        seconds_left: float | None = None,
    ) -> None:
        """Show that `done` of `total` are done."""
        self.show(Standing(done, total, failed, interrupted, seconds_left))

    @abstractmethod
    def show(self, now: Standing) -> None:
        """Show this."""

    @abstractmethod
    def note(self, text: str) -> None:
        """A line worth keeping."""
