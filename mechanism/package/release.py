"""A release made: the bundle copied, described, stated, bagged (by bagit), packed, and put into place."""

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

import bagit

from ledger.release import BUNDLE, CRATE, ENVELOPE, PAYLOAD, STATEMENT
from mechanism.package.archive import writer
from mechanism.package.crate import crate_bytes
from mechanism.package.keys import read_private
from mechanism.package.payload import PackageError, Payload, copy_bundle
from mechanism.package.statement import envelope_bytes, statement_bytes
from mechanism.process import files

#: Dates of what has none: evidence holds no wall-clock time.
NO_DATE = "1980-01-01"


@dataclass(frozen=True, kw_only=True, slots=True)
class Release:
    """A release that was written: what is in it, and whether it is signed."""

    payload: Payload
    signed: bool


def write_release(bundle: Path, out: Path, *, key: Path | None, raw: bool, published: str) -> Release:
    """Write a new release file; an existing one is refused, and a failure leaves nothing.

    Raises PackageError, FaultsError or OSError. `key`: PEM file of the private key; None leaves it unsigned.
    """
    write = writer(out)
    if out.exists():
        raise PackageError(
            f"{out}: expected a file that does not exist, got one that does; choose another name"
        )
    private = None if key is None else read_private(key)
    with tempfile.TemporaryDirectory(prefix=".release-", dir=out.parent) as name:
        bag = Path(name) / "bag"
        payload = copy_bundle(bundle, bag / BUNDLE.removeprefix(PAYLOAD), raw=raw)
        (bag / CRATE.removeprefix(PAYLOAD)).write_bytes(crate_bytes(payload, published=published))
        statement = statement_bytes(payload, bag)
        if private is None:
            (bag / STATEMENT.removeprefix(PAYLOAD)).write_bytes(statement)
        else:
            (bag / ENVELOPE.removeprefix(PAYLOAD)).write_bytes(envelope_bytes(statement, private))
        _bag(bag, payload)
        packed = Path(name) / out.name
        write(bag, f"{payload.summary.name}-{payload.summary.files[:12]}", packed)
        os.link(packed, out)  # unlike a rename, never over a file that came in between
    files.sync_folder(out.parent)
    return Release(payload=payload, signed=private is not None)


def _bag(folder: Path, payload: Payload) -> None:
    """Make a bag in place: what lies there becomes its payload. Nothing of today gets into it."""
    kind = "SIMULATED" if payload.summary.evidence == "simulated" else "GPU"
    info = {
        "Bagging-Date": NO_DATE,
        "Bag-Software-Agent": "marlin-mechanism",
        "External-Description": f"{kind} evidence bundle {payload.summary.name}",
        "External-Identifier": f"plan sha256 {payload.summary.plan}",
    }
    bagit.make_bag(str(folder), bag_info=info, checksums=["sha256"])
