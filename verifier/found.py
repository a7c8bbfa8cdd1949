"""A finding with what it concerns, and evidence's own words made safe to print."""

from collections.abc import Iterable
from dataclasses import dataclass

from ledger.verdict import Finding

#: A cell under a history: what a claim cites and a record belongs to.
ArmKey = tuple[str, str]

_CLIP = 160


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """One fault of the evidence and what rests on it.

    `arms` and `claims` say whom it concerns; with both None that follows from the file: a record concerns
    its arm, an alignment or a capture the arms that cite it, any other document everything.
    """

    code: str
    file: str
    key: str = ""
    expected: str
    got: str
    arms: frozenset[ArmKey] | None = None
    claims: frozenset[str] | None = None

    @property
    def where(self) -> str:
        """The file, then a colon and the key if there is one."""
        return f"{self.file}:{self.key}" if self.key else self.file

    def finding(self) -> Finding:
        """The finding as the report states it."""
        return Finding(
            code=self.code, where=plain(self.where), expected=plain(self.expected), got=plain(self.got)
        )


def plain(text: str) -> str:
    """Text without anything that a terminal or an encoder would act on: control and lone surrogate codes.

    Evidence is written by strangers; its names and values must not move the cursor of whoever reads them.
    """
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode() for c in text
    )


def show(value: object) -> str:
    """A value of the evidence, clipped."""
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= _CLIP else f"{text[:_CLIP]}... ({len(text)} characters)"


def several(items: Iterable[object], most: int = 6) -> str:
    """A list in words, clipped: `7, 8 and 3 more`."""
    texts = [show(item) for item in items]
    if len(texts) <= most:
        return ", ".join(texts) or "none"
    return f"{', '.join(texts[:most])} and {len(texts) - most} more"
