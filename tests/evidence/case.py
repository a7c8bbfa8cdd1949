"""What a case is, and the list of them that the plan modules fill."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ledger.claim import Level
from tests.verifier.forge import Files, Parts

Findings = list[tuple[str, str]]


@dataclass(frozen=True, kw_only=True)
class Made:
    """A case's evidence. `make`: entries that no version control holds. `archive`: how to pack it, if at all."""

    files: Files
    make: list[dict[str, Any]] = field(default_factory=list)
    archive: dict[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class Case:
    """One case. `found` is all that must be found, in any order; `anchor` gives the sha256 to expect."""

    name: str
    why: str
    make: Callable[[Parts], Made]
    found: Findings | Callable[[], Findings]
    level: Level = "records"
    anchor: Callable[[], str] | None = None
    key: bool = False

    @property
    def folder(self) -> str:
        """Must-fail cases say so by name."""
        return f"{self.name}_fail" if self.found else self.name


CASES: list[Case] = []


def case(
    name: str,
    why: str,
    *found: tuple[str, str],
    level: Level = "records",
    anchor: Callable[[], str] | None = None,
    key: bool = False,
) -> Callable[[Callable[[Parts], Files | Made]], Callable[[Parts], Files | Made]]:
    """List a function that bends the base bundle as a case."""

    def keep(bend: Callable[[Parts], Files | Made]) -> Callable[[Parts], Files | Made]:
        add(
            Case(
                name=name, why=why, make=made_by(bend), found=list(found), level=level, anchor=anchor, key=key
            )
        )
        return bend

    return keep


def made_by(bend: Callable[[Parts], Files | Made]) -> Callable[[Parts], Made]:
    """A function of plain files as one of evidence."""

    def make(parts: Parts) -> Made:
        made = bend(parts)
        return made if isinstance(made, Made) else Made(files=made)

    return make


def add(item: Case) -> None:
    """Each name once."""
    if any(known.name == item.name for known in CASES):
        raise ValueError(f"expected each case once, got {item.name} again")
    CASES.append(item)
