"""V2xx, the documents as documents: canonical, schema-valid, strict. Found while reading, stated here."""

from collections.abc import Iterator

from verifier.bundle import Bundle
from verifier.checks.check import check
from verifier.found import Found


@check("V202")
def canonical_json(bundle: Bundle) -> Iterator[Found]:
    """V202: every JSON document is one value in its RFC 8785 bytes, without duplicate keys or decimals."""
    yield from bundle.unread.of("V202")


@check("V203")
def schemas(bundle: Bundle) -> Iterator[Found]:
    """V203: every JSON document has all the keys of its schema, of their types, and no others."""
    yield from bundle.unread.of("V203")


@check("V204")
def strict_yaml(bundle: Bundle) -> Iterator[Found]:
    """V204: plan.yaml and ledger.yaml are strict YAML and keep their schemas."""
    yield from bundle.unread.of("V204")


CHECKS = (canonical_json, schemas, strict_yaml)
