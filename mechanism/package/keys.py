"""Ed25519 keys in PEM files, by cryptography: made, and read."""

import os
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from mechanism.package.payload import PackageError


def new_pair(prefix: Path) -> tuple[Path, Path]:
    """Write PREFIX.pem, which only its owner can read, and PREFIX.pub.pem. Raises FileExistsError."""
    private, public = prefix.with_name(f"{prefix.name}.pem"), prefix.with_name(f"{prefix.name}.pub.pem")
    key = Ed25519PrivateKey.generate()
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    known = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    for path, data, mode in ((private, secret, 0o600), (public, known, 0o644)):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
    return private, public


def read_private(path: Path) -> Ed25519PrivateKey:
    """The private key in a PEM file. Raises PackageError for anything else."""
    way_out = "make a pair with `mechanism key new --out PREFIX`"
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as fault:
        raise PackageError(
            f"{path}: expected an unencrypted private key in PEM form, got something else; {way_out}"
        ) from fault
    if not isinstance(key, Ed25519PrivateKey):
        raise PackageError(f"{path}: expected an Ed25519 private key, got another kind; {way_out}")
    return key
