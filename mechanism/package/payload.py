"""The bundle's part of a release: a verified copy, or one without its raw captures and a manifest redone."""

import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from ledger.bundle import DOCUMENTS, MANIFEST, SUMMARY, BundleFile, ManifestLine
from ledger.canonical import CanonicalError, canonical, parse_canonical
from ledger.canonical import sha256 as digest_of
from ledger.model import read_json, read_yaml
from ledger.plan import ImportedFixture, Plan
from ledger.strict_yaml import load
from mechanism.errors import MechanismError

_CHUNK = 2**20
WRONG = "; `verifier check` says what is wrong"
_NO_FOLLOW = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC


class PackageError(MechanismError):
    """A bundle, key or file that no release can be made of or with; the message says the way out."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Payload:
    """The bundle as released: its summary, its files by the manifest, and where the copy lies."""

    summary: BundleFile
    lines: tuple[ManifestLine, ...]
    folder: Path

    def digest(self, path: str) -> str:
        """The sha256 of a file of the copy."""
        return digest_of((self.folder / path).read_bytes())


def copy_bundle(bundle: Path, target: Path, *, raw: bool) -> Payload:
    """Copy a finished bundle, every file against its manifest. Raises PackageError or FaultsError.

    `raw`: whether the captures go with it. Without them bundle.json says so, and the manifest is redone.
    """
    if not bundle.is_dir():
        raise PackageError(f"{bundle}: expected the folder of a bundle, got none; check the path")
    if not (bundle / SUMMARY).is_file():
        raise PackageError(
            f"{bundle}: expected a finished bundle with a {SUMMARY}, found none; finish it with"
            f" `mechanism run PLAN --out {shlex.quote(str(bundle))} --resume`"
        )
    summary = read_json(BundleFile, _parsed(bundle / SUMMARY), name=SUMMARY)
    manifest = (bundle / MANIFEST).read_bytes()
    if (got := digest_of(manifest)) != summary.files:
        raise PackageError(
            f"{MANIFEST}: expected sha256 {summary.files}, which {SUMMARY} has, got {got}{WRONG}"
        )
    lines = tuple(_lines(manifest))
    if lacking := set(DOCUMENTS) - {line.path for line in lines}:
        raise PackageError(f"{MANIFEST}: expected {min(lacking)}, which every bundle has, found none{WRONG}")
    _require_private_kept(bundle, raw=raw and summary.raw == "included")
    kept = tuple(line for line in lines if raw or not line.path.startswith("objects/"))
    target.mkdir(parents=True)
    for line in kept:
        _copy(bundle, target, line)
    if len(kept) != len(lines):
        summary, manifest = _without_raw(summary, kept)
    (target / MANIFEST).write_bytes(manifest)
    (target / SUMMARY).write_bytes(canonical(summary.model_dump(mode="json")))
    return Payload(summary=summary, lines=kept, folder=target)


def _parsed(path: Path) -> object:
    try:
        return parse_canonical(path.read_bytes())
    except CanonicalError as fault:
        raise PackageError(f"{path.name}: {fault}{WRONG}") from fault


def _lines(manifest: bytes) -> Iterator[ManifestLine]:
    for number, line in enumerate(manifest.splitlines(), start=1):
        name = f"{MANIFEST}, line {number}"
        try:
            yield read_json(ManifestLine, parse_canonical(line), name=name)
        except CanonicalError as fault:
            raise PackageError(f"{name}: {fault}{WRONG}") from fault


def _require_private_kept(bundle: Path, *, raw: bool) -> None:
    """Raise PackageError for captures of a layer whose weights and prompt are private: they tell of both."""
    data = (bundle / "plan.yaml").read_bytes()
    plan = read_yaml(Plan, load(data, name="plan.yaml"), name="plan.yaml")
    if raw and isinstance(plan.fixture, ImportedFixture) and plan.fixture.private:
        raise PackageError(
            "plan.yaml: fixture.private: true, so captures stay at home; package it with --without-raw"
        )


def _copy(bundle: Path, target: Path, line: ManifestLine) -> None:
    """One file, hashed on the way; no link is followed."""
    destination = target / line.path
    destination.parent.mkdir(parents=True, exist_ok=True)
    state = sha256()
    descriptor = os.open(bundle / line.path, _NO_FOLLOW)
    with os.fdopen(descriptor, "rb") as source, destination.open("xb") as copy:
        while chunk := source.read(_CHUNK):
            state.update(chunk)
            copy.write(chunk)
    if state.hexdigest() != line.sha256:
        raise PackageError(
            f"{line.path}: expected sha256 {line.sha256}, which {MANIFEST} has, got"
            f" {state.hexdigest()}{WRONG}"
        )


def _without_raw(summary: BundleFile, kept: tuple[ManifestLine, ...]) -> tuple[BundleFile, bytes]:
    manifest = b"".join(canonical(line.model_dump(mode="json")) + b"\n" for line in kept)
    counts = summary.counts.model_copy(update={"files": len(kept), "objects": 0})
    changes = {"raw": "left-out", "files": digest_of(manifest), "counts": counts}
    return summary.model_copy(update=changes), manifest
