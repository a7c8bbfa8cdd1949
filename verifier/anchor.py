"""What a caller brings to anchor a bundle with: a plan or a lock of one's own, a key of its author."""

import hashlib
import json
from pathlib import Path

from verifier.layout import MAX_BYTES

#: A PEM file of one key has some hundred bytes.
_KEY_BYTES = 2**16


class AnchorError(ValueError):
    """A caller's own file is not what it must be; the message begins with the option."""


def anchor_of(file: Path) -> str:
    """What anchors a bundle: the sha256 of the lock beside a plan, which names its ledger, or of the file.

    Raises AnchorError if the lock is not the plan's, OSError if a file cannot be read.
    """
    data = _read(file)
    lock = file.with_suffix(".lock")  # where `mechanism freeze` writes it
    if lock == file or not lock.is_file():
        return hashlib.sha256(data).hexdigest()
    frozen = _read(lock)
    if _plan_in(frozen) not in {None, mine := hashlib.sha256(data).hexdigest()}:
        raise AnchorError(
            f"--plan: expected {file} as {lock} froze it, got a file that was changed since, with sha256"
            f" {mine}; undo the change or freeze it again, or give the lock itself"
        )
    return hashlib.sha256(frozen).hexdigest()


def require_plan(file: Path) -> None:
    """Raise AnchorError for what is neither a plan nor a lock. Needed only where the bundle is another's."""
    from ledger.canonical import CanonicalError, parse_canonical  # noqa: PLC0415 - seldom needed
    from ledger.fault import FaultsError  # noqa: PLC0415
    from ledger.lock import Lock  # noqa: PLC0415
    from ledger.model import read_json, read_yaml  # noqa: PLC0415
    from ledger.plan import Plan  # noqa: PLC0415
    from ledger.strict_yaml import load  # noqa: PLC0415

    for at in {file: None, file.with_suffix(".lock"): None}:
        data = _read(at) if at == file or at.is_file() else None
        try:
            if data is not None and (data.startswith(b"{") or at.suffix == ".lock"):
                read_json(Lock, parse_canonical(data), name=at.name)
            elif data is not None:
                read_yaml(Plan, load(data, name=at.name), name=at.name)
        except (CanonicalError, FaultsError) as fault:
            first, *_ = str(fault).splitlines()
            raise AnchorError(f"--plan: expected a plan or its lock in {at}, got neither: {first}") from fault


def _plan_in(lock: bytes) -> str | None:
    """The digest of the plan that a lock froze; None if it is no lock: then the bundle's is another."""
    try:
        found = json.loads(lock)["plan"]["sha256"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return found if isinstance(found, str) else None


def _read(file: Path) -> bytes:
    return read_own("--plan", file, MAX_BYTES["document"])


def read_own(option: str, file: Path, limit: int) -> bytes:
    """The bytes of a caller's own file. Raises AnchorError for what has no end, or more than the limit."""
    if not file.is_file():
        raise AnchorError(f"{option}: expected a file, got a FIFO or a device at {file}; copy it to a file")
    with file.open("rb") as opened:
        data = opened.read(limit + 1)
    if len(data) > limit:
        raise AnchorError(f"{option}: expected at most {limit} bytes in {file}, got more")
    return data


def key_of(file: Path) -> bytes:
    """The bytes of a public key's file. Raises AnchorError for what is none, whatever it is to check.

    Where no library for signatures is installed, the form alone is looked at: V124 says that it is missing.
    """
    from verifier.signature import NoCryptographyError, require_key  # noqa: PLC0415 - seldom needed

    data = read_own("--key", file, _KEY_BYTES)
    try:
        require_key(data)
    except NoCryptographyError:
        if b"-----BEGIN PUBLIC KEY-----" not in data:
            raise AnchorError(
                f"--key: {file}: expected a public key in PEM form, got something else"
            ) from None
    except ValueError as fault:
        raise AnchorError(f"--key: {file}: {fault}") from fault
    return data
