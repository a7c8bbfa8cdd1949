"""Writing mutated bundles out as folders: the only place where the verifier writes files."""

from collections.abc import Iterator
from pathlib import Path

from ledger.claim import DeclaredMutation
from verifier.bundle import Absent, Bundle
from verifier.evidence import Evidence, OverlayEvidence
from verifier.forger import MutationError
from verifier.layout import kind_of
from verifier.library import Library
from verifier.load import load
from verifier.mutations import apply
from verifier.words import mutation_words


def write_mutations(evidence: Evidence, out: Path) -> Iterator[tuple[str, Path, str]]:
    """Make every declared mutation as a folder under `out`, a new one; gives its id, folder and words.

    Raises FileExistsError if `out` exists, MutationError for a mutation that cannot be made.
    """
    bundle = load(evidence, Library())
    made = [(mutation, apply(mutation, bundle)) for mutation in _declared(bundle)]
    out.mkdir(parents=True)
    for mutation, overlay in made:
        folder = out / mutation.id
        write_folder(overlay, folder)
        yield mutation.id, folder, mutation_words(mutation)


def _declared(bundle: Bundle) -> tuple[DeclaredMutation, ...]:
    try:
        return bundle.ledger.mutations
    except Absent as absent:
        raise MutationError(f"there is no readable {absent}") from absent


def write_folder(evidence: OverlayEvidence, folder: Path) -> None:
    """Copy a bundle to a new folder; only regular files at places that a bundle has."""
    for path, entry in evidence.entries.items():
        if entry.kind != "file" or (kind_of(path) is None and "/" in path):
            continue
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("xb") as file:
            for chunk in evidence.chunks(path):
                file.write(chunk)
