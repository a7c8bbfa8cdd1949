"""Where things lie in a bundle, and how large each may be before a verifier refuses to read it."""

import re
from typing import Literal

from ledger.bundle import ATTEMPTS, DOCUMENTS, MANIFEST, SUMMARY
from verifier.found import ArmKey

Kind = Literal["document", "record", "alignment", "object"]
#: How large a file may be: as its kind, but for documents of many entries, which are streamed.
Size = Literal["document", "lines", "lock", "record", "alignment", "object"]

FOLDERS = ("alignments", "objects", "records")
#: Files that describe the others, so the manifest cannot list them.
OUTSIDE_MANIFEST = (SUMMARY, MANIFEST)

#: Names of a folder, which are sorted on disk; names that are held in memory: of an archive, and in a folder
#: those that are no records.
MAX_FILES, MAX_HELD = 1_200_000, 200_000
FEW_ENOUGH = f"at most {MAX_FILES} files, and {MAX_HELD} that are no records"
MAX_LINE = 64 * 2**10
MAX_BYTES: dict[Size, int] = {
    "document": 64 * 2**20,
    "lines": 2 * 2**30,
    "lock": 512 * 2**20,
    "record": 2**20,
    "alignment": 8 * 2**20,
    "object": 8 * 2**30,
}

_SIZES: dict[str, Size] = {ATTEMPTS: "lines", MANIFEST: "lines", "plan.lock": "lock"}
_PLACES: tuple[tuple[Kind, re.Pattern[str]], ...] = (
    ("record", re.compile(r"records/[A-Za-z0-9_][A-Za-z0-9._-]{0,246}")),
    ("alignment", re.compile(r"alignments/([0-9a-f]{64})\.json")),
    ("object", re.compile(r"objects/([0-9a-f]{64})\.safetensors")),
)
_RECORD = re.compile(r"records/([^./]+)\.([^./]+)\.([^./]+)\.([0-9]{1,9})(?![0-9]).*")


def kind_of(path: str) -> Kind | None:
    """What the file at this path is; None if a bundle has no place for it."""
    if path.startswith("records/"):
        return "record" if _PLACES[0][1].fullmatch(path) else None
    if path in DOCUMENTS:
        return "document"
    for kind, pattern in _PLACES[1:]:
        if pattern.fullmatch(path):
            return kind
    return None


def limit_of(path: str) -> int:
    """The most bytes that a verifier reads of the file at this path."""
    return MAX_BYTES[_SIZES.get(path) or kind_of(path) or "document"]


def address_of(path: str) -> str | None:
    """The sha256 that a content-addressed file's name says, if it is one."""
    if path.startswith("records/"):
        return None
    for _, pattern in _PLACES[1:]:
        if match := pattern.fullmatch(path):
            return match[1]
    return None


def alignment_path(sha256: str) -> str:
    """Where an alignment lies."""
    return f"alignments/{sha256}.json"


def object_path(sha256: str) -> str:
    """Where a capture lies."""
    return f"objects/{sha256}.safetensors"


Slot = tuple[str, str, str, int]


def slot_in_name(path: str) -> Slot | None:
    """The (phase, cell, history, replicate) that a record's file name claims, read generously.

    Generously because a copy (`...1.copy.json`, `...01.json`) claims the cell that it was copied from.
    """
    match = _RECORD.fullmatch(path)
    return (match[1], match[2], match[3], int(match[4])) if match else None


def arm_in_name(path: str) -> ArmKey | None:
    """The arm that a record's file name claims."""
    slot = slot_in_name(path)
    return (slot[1], slot[2]) if slot else None
