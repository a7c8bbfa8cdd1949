"""Documents parsed once per content, whichever bundle they came from.

A mutated bundle shares nearly all its files with the good one; what was parsed or worked out for equal
bytes is not done again. Everything kept is frozen.
"""

from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Any, TypeVar, cast

from pydantic import BaseModel, ValidationError

from ledger import strict_yaml
from ledger.canonical import CanonicalError, parse_canonical
from ledger.fault import Fault, FaultsError, key_path
from ledger.model import explain, read_yaml
from verifier.evidence import Evidence, EvidenceError, TooLargeError
from verifier.found import Found, show
from verifier.layout import limit_of

ModelT = TypeVar("ModelT", bound=BaseModel)
HashableT = TypeVar("HashableT", bound=Hashable)
T = TypeVar("T")

_MOST_KEPT = 20_000
_MOST_SHELVED = 2_000  # lines of one file
_NOTHING = object()
_MOST_FAULTS = 20  # of one document; the first ones say enough


class Library:
    """Parsed documents and worked-out values by content."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, Any] = {}
        self._shelves: dict[str, dict[bytes, Any]] = {}
        #: Of many files what was read of them, with the evidence it is of: for what is laid over that.
        self.below: dict[Hashable, tuple[Any, Any]] = {}

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """`make()`, or what it gave for the same key before."""
        kept = self._kept.get(key, _NOTHING)
        if kept is _NOTHING:
            kept = make()
            if len(self._kept) < _MOST_KEPT:
                self._kept[key] = kept
        return cast("T", kept)

    def shelf(self, name: str) -> dict[bytes, Any]:
        """What the lines of one file were read as, by their bytes; filled by `shelve`."""
        return self._shelves.setdefault(name, {})

    def shelve(self, shelf: dict[bytes, T], data: bytes, value: T) -> T:
        """Keep what a line was read as, while there is room; gives the value."""
        if len(shelf) < _MOST_SHELVED:
            shelf[data] = value
        return value

    def same(self, value: HashableT) -> HashableT:
        """The first value equal to this one: what many documents say is kept once."""
        return self.once(("same", value), lambda: value)

    def passing(
        self, evidence: Evidence, path: str, model: type[ModelT], unread: list[Found]
    ) -> tuple[ModelT | None, str]:
        """Like `json`, with the digest, of a document that is looked at once and not kept."""
        limit = limit_of(path)
        try:
            data = evidence.read(path, limit)
            digest = evidence.digest(path)  # taken as it was read
        except EvidenceError as fault:
            unread.append(unreadable(path, fault, limit))
            return None, ""
        value, found = read_json(data, path, model.model_validate_json)
        unread += found
        return value, digest

    def json(self, evidence: Evidence, path: str, model: type[ModelT], unread: list[Found]) -> ModelT | None:
        """One canonical JSON document; None, and findings appended, if it is not one."""
        return self._document(
            evidence, path, model, unread, lambda data: read_json(data, path, model.model_validate_json)
        )

    def yaml(self, evidence: Evidence, path: str, model: type[ModelT], unread: list[Found]) -> ModelT | None:
        """One strict YAML document; None, and findings appended, if it is not one."""
        return self._document(evidence, path, model, unread, lambda data: _read_yaml(data, path, model))

    def _document(
        self,
        evidence: Evidence,
        path: str,
        model: type[ModelT],
        unread: list[Found],
        read: Callable[[bytes], tuple[ModelT | None, tuple[Found, ...]]],
    ) -> ModelT | None:
        limit = limit_of(path)
        try:
            key = (model, evidence.digest(path))
            value, found = self.once(key, lambda: read(evidence.read(path, limit)))
        except EvidenceError as fault:
            unread.append(unreadable(path, fault, limit))
            return None
        unread += (item if item.file == path else replace(item, file=path) for item in found)
        return value


def unreadable(path: str, fault: EvidenceError, limit: int) -> Found:
    """The finding for a file that could not be read."""
    if isinstance(fault, TooLargeError):
        return Found(code="V110", file=path, expected=f"at most {limit} bytes", got=str(fault))
    return Found(code="V104", file=path, expected="a file that can be read", got=str(fault))


def read_json(data: bytes, path: str, validate: Callable[[bytes], T]) -> tuple[T | None, tuple[Found, ...]]:
    """One canonical JSON document from its bytes, or the findings that keep it from being one."""
    try:
        value = parse_canonical(data)
    except CanonicalError as fault:
        expected, got = _halves(str(fault))
        return None, (Found(code="V202", file=path, expected=expected, got=got),)
    try:
        return validate(data), ()
    except ValidationError as error:
        return None, tuple(
            _schema_fault("V203", path, Fault(file=path, line=1, path=keys, message=message))
            for keys, message in explain(error, value)[:_MOST_FAULTS]
        )


def _read_yaml(data: bytes, path: str, model: type[ModelT]) -> tuple[ModelT | None, tuple[Found, ...]]:
    try:
        return read_yaml(model, strict_yaml.load(data, name=path), name=path), ()
    except FaultsError as error:
        return None, tuple(_schema_fault("V204", path, fault) for fault in error.faults[:_MOST_FAULTS])
    except (ValueError, RecursionError) as error:  # text that JSON cannot carry on the way to the model
        return None, (Found(code="V204", file=path, expected="strict YAML", got=show(str(error))),)


def _schema_fault(code: str, path: str, fault: Fault) -> Found:
    expected, got = _halves(fault.message)
    keys = key_path(fault.path)
    key = keys if code == "V203" else f"{fault.line}{': ' + keys if keys else ''}"
    return Found(code=code, file=path, key=show(key), expected=expected, got=got)


def _halves(message: str) -> tuple[str, str]:
    """`expected a, got b` as (a, b); a message of another form is what was got."""
    if message.startswith("expected "):
        for link in (", got ", ", found "):
            expected, found, got = message.removeprefix("expected ").partition(link)
            if found:
                return show(expected), show(got)
        return show(message.removeprefix("expected ")), "something else"
    return "a document that keeps its schema", show(message)
