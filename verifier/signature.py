"""DSSE signatures with Ed25519, by cryptography (extra `sign`); the base install does without.

Written from the DSSE specification, beside the library that signs: the two hold each other.
"""

import base64
import binascii
from typing import TYPE_CHECKING

from ledger.release import Envelope

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey


class NoCryptographyError(Exception):
    """The extra is not installed."""


def good(envelope: Envelope, key: bytes) -> bool:
    """Whether one of the envelope's signatures was made by an Ed25519 key, given as PEM.

    Raises NoCryptographyError, and ValueError if `key` is no such public key. Key ids are not looked at: they
    are hints (DSSE 1.0).
    """
    public = require_key(key)
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - it is there, or none is public

    try:
        message = pre_authentication(envelope.payload_type, base64.b64decode(envelope.payload, validate=True))
    except binascii.Error:
        return False
    for signature in envelope.signatures:
        try:
            public.verify(base64.b64decode(signature.sig, validate=True), message)
        except (InvalidSignature, binascii.Error):
            continue
        return True
    return False


def require_key(key: bytes) -> "Ed25519PublicKey":
    """The public key of a PEM. Raises NoCryptographyError, and ValueError if it is none, with the way out."""
    try:
        from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415
        from cryptography.hazmat.primitives.serialization import load_pem_public_key  # noqa: PLC0415
    except ImportError as fault:
        raise NoCryptographyError(
            "no library cryptography here; install the extra `sign`: in the project's folder:"
            " pip install -e '.[sign]'"
        ) from fault
    way_out = "give the PREFIX.pub.pem that `mechanism key new --out PREFIX` wrote"
    if b"PRIVATE KEY-----" in key:
        raise ValueError(f"expected a public key in PEM form, got a private one; {way_out}")
    try:
        public = load_pem_public_key(key)
    except (ValueError, UnsupportedAlgorithm) as fault:
        raise ValueError(f"expected a public key in PEM form, got something else; {way_out}") from fault
    if not isinstance(public, Ed25519PublicKey):
        raise ValueError(f"expected an Ed25519 public key, got another kind; {way_out}")  # noqa: TRY004 - PEM is text
    return public


def pre_authentication(payload_type: str, payload: bytes) -> bytes:
    """What DSSE signs: PAE(type, body) = "DSSEv1" SP LEN(type) SP type SP LEN(body) SP body."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)
