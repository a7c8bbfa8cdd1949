"""What became of a finished bundle: which of its files are gone or have other bytes. Reads only.

The verifier judges a bundle; this names what a runner has to put back, since it changes nothing in it.
"""

import hashlib
from pathlib import Path

from pydantic import ValidationError

from ledger.bundle import MANIFEST, SUMMARY, BundleFile, ManifestLine

#: What to do about a file that is not what was recorded.
PUT_BACK = "put it back from a copy, or run the plan again into another folder"
WAY_OUT = (
    "--resume changes nothing in a finished bundle: put back from a copy what is damaged, or run the plan"
    " again into another folder"
)


def damaged(folder: Path) -> tuple[str, ...]:
    """Paths of a finished bundle that do not have the bytes that its manifest lists; in their order.

    Summary or manifest alone, if it is that which cannot be read or fits nothing: the rest cannot be told.
    """
    try:
        summary = BundleFile.model_validate_json((folder / SUMMARY).read_bytes())
    except (OSError, ValidationError):
        return (SUMMARY,)
    if _digest(folder / MANIFEST) != summary.files:
        return (MANIFEST,)
    found = []
    with (folder / MANIFEST).open("rb") as lines:
        for text in lines:
            line = ManifestLine.model_validate_json(text)
            left_out = summary.raw == "left-out" and line.path.startswith("objects/")
            if not left_out and _digest(folder / line.path) != line.sha256:
                found.append(line.path)
    return tuple(found)


def listed(folder: Path, name: str) -> str | None:
    """The sha256 that a finished bundle's manifest lists for a file; None if there is no such line."""
    try:
        with (folder / MANIFEST).open("rb") as lines:
            found = (ManifestLine.model_validate_json(text) for text in lines)
            return next((line.sha256 for line in found if line.path == name), None)
    except (OSError, ValidationError):
        return None


def _digest(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None
