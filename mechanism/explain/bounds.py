"""How large a question may be: beyond any layer, batch or GPU that there is, answered in a second or two."""

from __future__ import annotations

from typing import Final

from mechanism.explain.errors import ExplainError

SIZE: Final = 2**20  # hidden and intermediate size
EXPERTS: Final = 992  # marlin-moe 2.3: rounded up to a multiple of 32, fewer than 1024
TOKENS: Final = 32_768  # of one call of the layer
ROUTES: Final = 2**19  # of one call: tokens x top_k
SMS: Final = 1024
SHARED_MEMORY: Final = 2**20  # bytes per block
RANKS: Final = 1024  # tensor parallel


def require(where: str, value: int, most: int, *, what: str = "", why: str) -> None:
    """Refuse a number outside of 1..`most`. `where` names its key or option, `why` says what bounds it.

    Raises:
        ExplainError: It is outside.
    """
    if not 1 <= value <= most:
        words = f" {what}" if what else ""
        raise ExplainError(f"{where}: expected 1..{most}{words}, got {value}; {why}")


def require_tokens(tokens: int, *, where: str = "--tokens") -> None:
    """Refuse a batch that no server passes. Raises ExplainError."""
    require(
        where,
        tokens,
        TOKENS,
        what="in one call of the layer",
        why="a server passes at most its max_num_batched_tokens",
    )


def require_routes_bounded(tokens: int, top_k: int, *, where: str) -> None:
    """Refuse tokens that are too many for so many experts each. Raises ExplainError."""
    require(
        where,
        tokens,
        ROUTES // top_k,
        what=f"tokens of {top_k} experts each",
        why=f"one call of the layer has at most {ROUTES} routes here",
    )
