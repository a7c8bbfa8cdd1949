"""Paths on the command line."""

from typing import Any

import click


class Place(click.Path):
    """A path that is none where it is empty: a variable that is not set would mean the folder one is in."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """As click.Path does, for what is not empty."""
        if value == "":
            self.fail("expected a path, got an empty text", param, ctx)
        return super().convert(value, param, ctx)
