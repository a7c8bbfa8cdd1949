"""What long work tells of itself, however it is shown."""


class Counter:
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
        """Show that `done` of `total` are done; `seconds_left` is an estimate, if there is one."""
        raise NotImplementedError

    def note(self, text: str) -> None:
        """A line worth keeping."""
        raise NotImplementedError
