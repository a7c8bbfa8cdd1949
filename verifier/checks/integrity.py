"""V1xx, the bundle as files: every byte listed, nothing more, nothing less, nothing but regular files."""

from collections import Counter
from collections.abc import Iterator

from ledger.bundle import DOCUMENTS, MANIFEST, SUMMARY
from verifier.bundle import Bundle, Started
from verifier.checks.check import check
from verifier.evidence import EvidenceError
from verifier.found import Found
from verifier.layout import FEW_ENOUGH, OUTSIDE_MANIFEST, address_of, kind_of, limit_of
from verifier.library import unreadable
from verifier.store.names import Sorted

_REQUIRED = (SUMMARY, MANIFEST, *DOCUMENTS)


@check("V101")
def listed_bytes(bundle: Bundle) -> Iterator[Found]:
    """V101: every file has the size and sha256 of its line in the manifest."""
    for path, line in bundle.manifest.lines.items():
        if not bundle.has(path) or not _readable_size(bundle, path):
            continue
        size = bundle.evidence.entries[path].size
        if size != line.size:
            yield Found(
                code="V101",
                file=path,
                expected=f"{line.size} bytes, as {MANIFEST} lists",
                got=f"{size} bytes",
            )
            continue
        try:
            digest = bundle.evidence.digest(path)
        except EvidenceError:
            continue  # V104
        if digest != line.sha256:
            yield Found(
                code="V101",
                file=path,
                expected=f"sha256 {line.sha256}, as {MANIFEST} lists",
                got=f"sha256 {digest}",
            )


@check("V102")
def listed_files(bundle: Bundle) -> Iterator[Found]:
    """V102: every file of the manifest is there."""
    for path in bundle.manifest.lines:
        if path not in bundle.evidence.entries:
            yield Found(code="V102", file=path, expected=f"a file, as {MANIFEST} lists", got="none")


@check("V103")
def unlisted_files(bundle: Bundle) -> Iterator[Found]:
    """V103: no file is there that the manifest does not list.

    A second file for one cell is V403 alone: which of the two is the extra one cannot be told.
    """
    if not bundle.has(MANIFEST):
        return  # V201; every file would be one
    twins = {path for paths in bundle.twins.values() for path in paths}
    for path, entry in bundle.evidence.entries.items():
        listed = path in bundle.manifest.lines or path in OUTSIDE_MANIFEST or path in twins
        if entry.kind == "file" and kind_of(path) and not listed:
            yield Found(
                code="V103", file=path, expected=f"only files that {MANIFEST} lists", got="this one, unlisted"
            )


@check("V104")
def regular_files(bundle: Bundle) -> Iterator[Found]:
    """V104: everything is a regular file that can be read; nothing else is ever opened."""
    words = {"link": "a symbolic link", "folder": "a folder", "special": "a FIFO, a device or a socket"}
    yield from bundle.unread.of("V104")
    for path, entry in bundle.evidence.entries.items():
        if entry.kind != "file":
            yield Found(code="V104", file=path, expected="a regular file", got=words[entry.kind])
        elif path in bundle.manifest.lines and kind_of(path) == "object" and _readable_size(bundle, path):
            try:
                bundle.evidence.digest(path)
            except EvidenceError as fault:
                yield unreadable(path, fault, limit_of(path))


@check("V105")
def manifest_lines(bundle: Bundle) -> Iterator[Found]:
    """V105: every line of the manifest is canonical JSON of path, size and sha256, and ends in LF."""
    yield from bundle.unread.of("V105")


@check("V106")
def manifest_order(bundle: Bundle) -> Iterator[Found]:
    """V106: the manifest's paths ascend, and no two are one file where case does not count."""
    yield from bundle.unread.of("V106")


@check("V107")
def manifest_digest(bundle: Bundle) -> Iterator[Found]:
    """V107: the manifest is the one whose digest bundle.json holds."""
    if (digest := bundle.digest(MANIFEST)) != bundle.summary.files:
        yield Found(
            code="V107",
            file=MANIFEST,
            expected=f"sha256 {bundle.summary.files}, as {SUMMARY} says",
            got=f"sha256 {digest}",
        )


@check("V108")
def counts(bundle: Bundle) -> Iterator[Found]:
    """V108: bundle.json counts what the manifest lists, and the attempts that were started."""
    if not bundle.has(MANIFEST):
        return  # that it is missing is said once; nothing can be counted against it
    kinds = Counter(kind_of(path) for path in bundle.manifest.lines)
    found = {
        "files": kinds.total(),
        "records": kinds["record"],
        "alignments": kinds["alignment"],
        "objects": kinds["object"],
        "attempts": sum(isinstance(line.event, Started) for line in bundle.log),
    }
    for name, got in found.items():
        if got != (said := getattr(bundle.summary.counts, name)):
            yield Found(code="V108", file=SUMMARY, key=f"counts.{name}", expected=str(got), got=str(said))


@check("V109")
def places(bundle: Bundle) -> Iterator[Found]:
    """V109: every path, listed or found, is one that a bundle has a place for."""
    odd: Sorted[bool] = Sorted(int, bool)
    for path, entry in bundle.evidence.entries.items():
        if entry.kind == "file" and kind_of(path) is None and path not in OUTSIDE_MANIFEST:
            odd.add(path, True)
    for path in bundle.manifest.lines:
        if kind_of(path) is None and not _found_odd(bundle, path):
            odd.add(path, True)
    for path in odd.names():
        expected = "a document, or a file of records/, alignments/ or objects/ that is named as such"
        if path in OUTSIDE_MANIFEST:
            expected = f"a manifest that does not list {SUMMARY} or itself"
        yield Found(code="V109", file=path, expected=expected, got="a file that has no place here")


def _found_odd(bundle: Bundle, path: str) -> bool:
    entry = bundle.evidence.entries.get(path)
    return entry is not None and entry.kind == "file" and path not in OUTSIDE_MANIFEST


@check("V110")
def sizes(bundle: Bundle) -> Iterator[Found]:
    """V110: nothing is larger than a verifier reads, so that its memory and time are bounded."""
    yield from bundle.unread.of("V110")
    for path, entry in bundle.evidence.entries.items():
        if entry.kind == "file" and not _readable_size(bundle, path):
            yield Found(
                code="V110",
                file=path,
                expected=f"at most {limit_of(path)} bytes",
                got=f"{entry.size} bytes",
            )
    if bundle.evidence.overfull:
        yield Found(code="V110", file=".", expected=FEW_ENOUGH, got="more")


@check("V111")
def content_addresses(bundle: Bundle) -> Iterator[Found]:
    """V111: a file named by a digest has that digest."""
    for path in bundle.evidence.entries:
        address = address_of(path)
        if address is None or not bundle.has(path) or not _readable_size(bundle, path):
            continue
        try:
            digest = bundle.evidence.digest(path)
        except EvidenceError:
            continue  # V104
        if digest != address:
            yield Found(
                code="V111", file=path, expected=f"sha256 {address}, as its name says", got=f"sha256 {digest}"
            )


@check("V201")
def required_documents(bundle: Bundle) -> Iterator[Found]:
    """V201: every bundle has its eight documents. One that the manifest lists is V102 when it is gone."""
    for path in _REQUIRED:
        if path not in bundle.evidence.entries and path not in bundle.manifest.lines:
            yield Found(code="V201", file=path, expected="a file that every bundle has", got="none")


def _readable_size(bundle: Bundle, path: str) -> bool:
    return bundle.evidence.entries[path].size <= limit_of(path)


CHECKS = (
    listed_bytes,
    listed_files,
    unlisted_files,
    regular_files,
    manifest_lines,
    manifest_order,
    manifest_digest,
    counts,
    places,
    sizes,
    content_addresses,
    required_documents,
)
