"""What one change of a bundle is: files changed and removed, in a class, at a place."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True, slots=True)
class Mutant:
    """One change. `kind`: its class, in words; `place`: where, list places as `[*]`, for the table."""

    kind: str
    place: str
    what: str
    changed: Mapping[str, bytes] = field(default_factory=dict)
    removed: frozenset[str] = frozenset()
