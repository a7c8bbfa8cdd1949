"""The in-toto Statement about a release, and the DSSE envelope that signs it, by securesystemslib."""

from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from securesystemslib.dsse import Envelope
from securesystemslib.signer import CryptoSigner

from ledger.canonical import canonical, sha256
from ledger.release import PAYLOAD_TYPE, PREDICATE_TYPE, STATEMENT_TYPE, SUBJECTS
from mechanism.package.payload import Payload


def statement_bytes(payload: Payload, root: Path) -> bytes:
    """The Statement, canonical JSON. `root`: the payload folder, with the bundle and the crate in it."""
    summary = payload.summary
    return canonical(
        {
            "_type": STATEMENT_TYPE,
            "subject": [
                {"name": name, "digest": {"sha256": sha256((root / name).read_bytes())}} for name in SUBJECTS
            ],
            "predicateType": PREDICATE_TYPE,
            "predicate": {
                "name": summary.name,
                "engine": summary.engine,
                "evidence": summary.evidence,
                "plan": summary.plan,
                "lock": summary.lock,
                "ledger": summary.ledger,
                "software": payload.digest("build.json"),
                "raw": summary.raw,
            },
        }
    )


def envelope_bytes(statement: bytes, key: Ed25519PrivateKey) -> bytes:
    """The Statement in an envelope with one signature. Ed25519 draws nothing, so equal input, equal bytes."""
    envelope = Envelope(statement, PAYLOAD_TYPE, {})
    envelope.sign(CryptoSigner(key))
    return canonical(envelope.to_dict())
