"""The key pair of the signed cases: made from a fixed seed, so that signatures are the same every time."""

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

_PEM = serialization.Encoding.PEM


def private_pem(seed: bytes) -> bytes:
    """The private key of a seed of 32 bytes."""
    key = Ed25519PrivateKey.from_private_bytes(seed)
    return key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())


MINE, OTHERS = (
    private_pem(b"a key for tests and nothing else"),
    private_pem(b"somebody else's key, also a test"),
)
PUBLIC = (
    Ed25519PrivateKey.from_private_bytes(b"a key for tests and nothing else")
    .public_key()
    .public_bytes(_PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
)
