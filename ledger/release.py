"""A release: a bundle in one file, with metadata in standard forms; where its parts lie, what is signed.

The file is a zip or tar.gz of one folder, a BagIt bag. In its payload are the bundle, an RO-Crate that
describes it, and an in-toto Statement about both; if it is signed, the Statement lies in a DSSE envelope.
"""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from ledger.model import Frozen, Name, Sha256
from ledger.plan import EngineName
from ledger.record import Evidence

PAYLOAD = "data/"
BUNDLE = "data/bundle/"
CRATE = "data/ro-crate-metadata.json"
STATEMENT = "data/statement.json"
ENVELOPE = "data/statement.dsse.json"
BAG = ("bag-info.txt", "bagit.txt", "manifest-sha256.txt", "tagmanifest-sha256.txt")

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "urn:marlin-mechanism:evidence:v1"
PAYLOAD_TYPE = "application/vnd.in-toto+json"
#: What a Statement is about, by path below the payload: the rest hangs on bundle.json by digest.
SUBJECTS = (
    "bundle/attempts.jsonl",
    "bundle/build.json",
    "bundle/bundle.json",
    "bundle/files.jsonl",
    "bundle/ledger.yaml",
    "bundle/plan.lock",
    "bundle/plan.yaml",
    "bundle/routing.json",
    "ro-crate-metadata.json",
)


class Digests(Frozen):
    """A digest set of in-toto; sha256 alone is used."""

    sha256: Sha256


class Subject(Frozen):
    """A file that a Statement is about."""

    name: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z./-]*$", max_length=100)]
    digest: Digests


class Predicate(Frozen):
    """What a Statement says of its subjects: whose evidence, of which plan, and of which kind."""

    name: Name
    engine: EngineName
    evidence: Evidence
    plan: Sha256
    lock: Sha256
    ledger: Sha256
    software: Sha256
    raw: Literal["included", "left-out"]


class Statement(Frozen):
    """An in-toto Statement, canonical JSON; subjects in the order of SUBJECTS."""

    type_: Literal["https://in-toto.io/Statement/v1"] = Field(alias="_type")
    subject: Annotated[tuple[Subject, ...], Field(min_length=1)]
    predicate_type: Literal["urn:marlin-mechanism:evidence:v1"] = Field(alias="predicateType")
    predicate: Predicate


class Signature(Frozen):
    """One signature of an envelope; `keyid` is a hint, `sig` base64."""

    keyid: Annotated[str, StringConstraints(max_length=200)]
    sig: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9+/]+=*$", max_length=1000)]


class Envelope(Frozen):
    """A DSSE envelope around a Statement, canonical JSON; `payload` base64."""

    payload: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9+/]+=*$")]
    payload_type: Literal["application/vnd.in-toto+json"] = Field(alias="payloadType")
    signatures: Annotated[tuple[Signature, ...], Field(min_length=1, max_length=20)]
