"""Symbolic paths: no committed file may tell where it was made."""

from collections.abc import Iterable

from mechanism.values import frozen

#: Folders of the system: shared by all machines, so their names tell nothing, and short enough to be
#: found where they are not meant.
_SHARED = frozenset({"", "/", "/bin", "/home", "/lib", "/opt", "/root", "/usr", "/usr/local", "/var"})


@frozen
class Symbols:
    """Pairs of a real path and the symbol that stands for it, longest path first."""

    pairs: tuple[tuple[str, str], ...]

    def hide(self, text: str) -> str:
        """`text` with every known path replaced, also at the start of a longer one."""
        for path, symbol in self.pairs:
            text = text.replace(path, symbol)
        return text


def symbols(known: Iterable[tuple[str, str]]) -> Symbols:
    """Symbols from (path, symbol) pairs; of two symbols for one path the first counts.

    What every machine has is left out, except where a symbol is needed: the interpreter and the bundle.
    """
    found: dict[str, str] = {}
    for path, symbol in known:
        clean = path.rstrip("/")
        if clean not in _SHARED:
            found.setdefault(clean, symbol)
    return Symbols(pairs=tuple(sorted(found.items(), key=lambda pair: (-len(pair[0]), pair[0]))))
