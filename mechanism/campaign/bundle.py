"""The bundle folder: documents first, records as they come, manifest and summary last.

`bundle.json` is the last file to be written: a bundle that has it is complete, one that has not can be
resumed. Everything else that lies in the folder while a campaign works (`staging/`, the lock) is gone by
then.
"""

import errno
import hashlib
import shutil
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from ledger.bundle import ATTEMPTS, DOCUMENTS, MANIFEST, SUMMARY, BundleFile, Counts, ManifestLine
from ledger.canonical import canonical, sha256
from ledger.record import BuildFile, Record
from mechanism.campaign.damage import PUT_BACK, listed
from mechanism.campaign.folder_lock import LOCK, holder
from mechanism.errors import CampaignError
from mechanism.process import files
from mechanism.process.request import BUILD
from mechanism.values import frozen

STAGING = "staging"
FOLDERS = ("alignments", "objects", "records")
#: Documents that are there before the first process; build.json comes from the first valid one.
FROZEN = ("plan.yaml", "plan.lock", "ledger.yaml", "routing.json")


def create(folder: Path) -> None:
    """Make a new, empty folder. Raises CampaignError if it exists, OSError if it cannot be made."""
    if folder.parent.exists() and not folder.parent.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, "Not a directory", str(folder.parent))
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        folder.mkdir()
    except FileExistsError:
        busy = holder(folder)
        got = "one that exists" if busy is None else f"one where process {busy} runs a campaign"
        raise CampaignError(
            f"{folder}: expected a folder that does not exist, got {got};"
            " go on with it by --resume, or choose another by --out"
        ) from None
    files.sync_folder(folder.parent)


def discard(folder: Path) -> None:
    """Remove a folder that was made and furnished, and in which no process was started."""
    shutil.rmtree(folder, ignore_errors=True)


def require_resumable(folder: Path, documents: Mapping[str, bytes]) -> None:
    """Raise CampaignError unless the folder is a run of these very documents, or the mere start of one.

    `documents`: the bytes of every file in FROZEN.
    """
    if not folder.is_dir():
        raise CampaignError(f"{folder}: expected a run to resume, got no folder; leave out --resume")
    present = [name for name in FROZEN if (folder / name).exists()]
    made = (LOCK, STAGING, *FOLDERS)  # what can be there before the first document is
    if not present and any(
        item.name not in made and not item.name.endswith(files.BESIDE) for item in folder.iterdir()
    ):
        raise CampaignError(
            f"{folder}: expected a run to resume, got a folder that is none; check --out, or leave out"
            " --resume and name a new one"
        )
    for name in present:
        if (there := (folder / name).read_bytes()) != documents[name]:
            raise CampaignError(_other(folder, name, there, documents))


def _other(folder: Path, name: str, there: bytes, documents: Mapping[str, bytes]) -> str:
    """What to say of a document that is not the one given.

    A copy that the run's own lock or manifest contradicts was damaged; else another plan was given.
    """
    given = sha256(documents[name])
    lock = folder / "plan.lock"
    frozen = name in ("plan.yaml", "ledger.yaml") and lock.exists()
    if (frozen and lock.read_bytes() == documents["plan.lock"]) or listed(folder, name) == given:
        return (
            f"{folder / name}: expected sha256 {given}, with which the run was begun, got sha256"
            f" {sha256(there)}: it was damaged since; {PUT_BACK}"
        )
    return (
        f"{folder / name}: expected what the run was begun with, sha256 {sha256(there)}, got sha256"
        f" {given}; resume with the {name} of then, or start a new run"
    )


def furnish(folder: Path, documents: Mapping[str, bytes]) -> None:
    """Put documents and folders in place; what a crash left half done is done again."""
    for left in (*folder.glob(f".*{files.BESIDE}"), *folder.glob(f"*/.*{files.BESIDE}")):
        left.unlink()
    shutil.rmtree(folder / STAGING, ignore_errors=True)
    for name in (*FOLDERS, STAGING):
        (folder / name).mkdir(exist_ok=True)
    for name, data in documents.items():
        if not (folder / name).exists():
            files.write_once(folder / name, data)
    files.sync_folder(folder)


def is_complete(folder: Path) -> bool:
    """Whether the bundle has been finished."""
    return (folder / SUMMARY).exists()


@frozen
class Staged:
    """What one process left in its staging folder, checked: the record last of all.

    `build` and `alignment` are None where the bundle has that file already.
    """

    build: Path | None
    alignment: Path | None
    capture: Path
    record: Path


def promote(folder: Path, staged: Staged, *, read_only: bool = False) -> None:
    """Move a process's files into the bundle, the record last: its name appearing is what makes it valid.

    `read_only`: by their modes, where nothing better holds later processes off.
    Equal captures and alignments are stored once. Raises FileExistsError if the record is there already.
    """
    target = folder / "records" / staged.record.name
    if read_only:
        for path in (staged.build, staged.alignment, staged.capture, staged.record):
            if path is not None:
                path.chmod(0o444)
    if target.exists():
        raise FileExistsError(errno.EEXIST, "File exists", str(target))
    if staged.build is not None:
        _move(staged.build, folder / BUILD)
    for source, kind in ((staged.capture, "objects"), (staged.alignment, "alignments")):
        if source is not None and not (folder / kind / source.name).exists():
            _move(source, folder / kind / source.name)
    _move(staged.record, target)


def _move(source: Path, target: Path) -> None:
    files.sync(source)
    source.rename(target)
    files.sync_folder(target.parent)


def finalise(folder: Path, *, name: str, records: Collection[str], attempts: int) -> tuple[str, ...]:
    """Write manifest and summary. `records`: the path of every record of the bundle.

    Returns the paths of captures and alignments that no record named, and that are gone now. Raises
    CampaignError if the folder holds anything else that no attempt of the log accounts for.
    """
    shutil.rmtree(folder / STAGING, ignore_errors=True)
    dropped = _drop_unreferenced(folder, records)
    lines = [_manifest_line(folder, path) for path in _contents(folder)]
    kinds = [line.path.partition("/")[0] for line in lines]
    unknown = [
        line.path
        for line, kind in zip(lines, kinds, strict=True)
        if line.path not in (*DOCUMENTS, *records) and kind not in ("alignments", "objects")
    ]
    if unknown:
        raise CampaignError(
            f"{folder}: expected only what cells recorded, got {', '.join(unknown[:10])}; move it away,"
            " then --resume"
        )
    manifest = b"".join(canonical(line.model_dump(mode="json")) + b"\n" for line in lines)
    files.replace(folder / MANIFEST, manifest)
    digests = {line.path: line.sha256 for line in lines}
    build = BuildFile.model_validate_json((folder / BUILD).read_bytes())
    summary = BundleFile(
        schema_version=1,
        name=name,
        engine=build.engine,
        evidence=build.evidence,
        files=sha256(manifest),
        plan=digests["plan.yaml"],
        lock=digests["plan.lock"],
        ledger=digests["ledger.yaml"],
        raw="included",
        counts=Counts(
            files=len(lines),
            records=kinds.count("records"),
            attempts=attempts,
            alignments=kinds.count("alignments"),
            objects=kinds.count("objects"),
        ),
    )
    files.write_once(folder / SUMMARY, canonical(summary.model_dump(mode="json")))
    return dropped


def _drop_unreferenced(folder: Path, records: Collection[str]) -> tuple[str, ...]:
    """Remove captures and alignments of processes that were stopped before their record was in place."""
    wanted: set[str] = set()
    for path in records:
        record = Record.model_validate_json((folder / path).read_bytes())
        wanted |= {f"{record.capture}.safetensors", f"{record.treatment.alignment.sha256}.json"}
    dropped = [
        found
        for kind in ("alignments", "objects")
        for found in sorted((folder / kind).iterdir())
        if found.name not in wanted
    ]
    for found in dropped:
        found.unlink()
    return tuple(found.relative_to(folder).as_posix() for found in dropped)


def _contents(folder: Path) -> Iterator[str]:
    """Every file below the folder but manifest, summary and lock, sorted by path."""
    paths = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir())
    return iter(sorted(path for path in paths if path not in (MANIFEST, SUMMARY, LOCK)))


def _manifest_line(folder: Path, path: str) -> ManifestLine:
    with (folder / path).open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return ManifestLine(path=path, size=file.tell(), sha256=digest)


def log_path(folder: Path) -> Path:
    """Where the attempts log lies."""
    return folder / ATTEMPTS
