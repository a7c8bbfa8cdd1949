"""Canonical bytes: one byte string per JSON value (RFC 8785), and the digest of it."""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

import rfc8785

MAX_DEPTH = 64
MAX_SAFE_INTEGER = 2**53 - 1
NO_DIGEST = "0" * 64


class CanonicalError(ValueError):
    """Bytes that are not the canonical JSON document they should be; the message says why."""


def canonical(value: Mapping[str, Any] | list[Any]) -> bytes:
    """The RFC 8785 bytes of a JSON value; these bytes are the file and are what is hashed.

    Raises CanonicalError for NaN, infinities, integers beyond 2^53 - 1 and keys that are not strings.
    """
    if (plain := _plain_bytes(value)) is not None:
        return plain
    try:
        return rfc8785.dumps(value)
    except (rfc8785.CanonicalizationError, RecursionError, UnicodeEncodeError) as fault:
        raise CanonicalError(f"cannot be written as canonical JSON: {fault}") from fault


def sha256(data: bytes | memoryview) -> str:
    """Lower-case hexadecimal sha256 of raw bytes."""
    return hashlib.sha256(data).hexdigest()


def digest(value: Mapping[str, Any] | list[Any]) -> str:
    """The sha256 of a JSON value's canonical bytes."""
    return sha256(canonical(value))


def parse(data: bytes) -> Any:
    """One JSON value, strictly: UTF-8 without BOM, no duplicate key, no NaN, no fraction, bounded depth.

    No document of this project holds a decimal: times are integers and tensor values stay raw bytes.
    Raises CanonicalError naming the fault.
    """
    if data.startswith(b"\xef\xbb\xbf"):
        raise CanonicalError("expected UTF-8 JSON without a byte order mark, got one")
    if _depth(data) > MAX_DEPTH:
        raise CanonicalError(f"expected at most {MAX_DEPTH} nested levels, got more")
    try:
        return json.loads(
            data.decode("utf-8"),
            object_pairs_hook=_object,
            parse_constant=_refuse_number,
            parse_float=_refuse_number,
            parse_int=_integer,
        )
    except CanonicalError:
        raise
    except UnicodeDecodeError as fault:
        raise CanonicalError(
            f"expected UTF-8, got byte 0x{data[fault.start]:02x} at offset {fault.start}"
        ) from fault
    except (ValueError, RecursionError) as fault:
        raise CanonicalError(f"expected one JSON value, got something else: {fault}") from fault


def parse_canonical(data: bytes) -> Any:
    """`parse`, and the bytes must be the canonical ones. Raises CanonicalError otherwise."""
    if (plain := _plain_canonical(data)) is not None:
        return plain
    value = parse(data)
    if not isinstance(value, dict | list):
        raise CanonicalError(f"expected a JSON object or list, got {type(value).__name__}")
    if canonical(value) != data:
        raise CanonicalError("expected RFC 8785 canonical bytes, got the same value written another way")
    return value


def _plain_canonical(data: bytes) -> dict[str, Any] | list[Any] | None:
    """The value of an ASCII document that the C encoder writes back to the same bytes; None says nothing.

    In ASCII its bytes and RFC 8785's differ in nothing: keys sort alike by UTF-16 unit and by code point,
    and the same characters are escaped in the same way. What else `parse` refuses cannot come back the same
    (a key twice, another way to write a number) or is looked for here: depth, decimals, integers of 16
    digits. Held equal by a property test.
    """
    if not data.isascii() or _LONG_NUMBER.search(data) or _depth(data) > MAX_DEPTH:
        return None
    try:
        value = _DECODER.decode(data.decode("ascii"))
        # a lone surrogate has no UTF-8: here it is merely unequal, `canonical` refuses it
        same = _PLAIN.encode(value).encode("utf-8", "surrogatepass") == data
    except (ValueError, RecursionError):
        return None  # `parse` says what it is
    return value if same and isinstance(value, dict | list) else None


def _plain_bytes(value: Mapping[str, Any] | list[Any]) -> bytes | None:
    """The other way round: what the C encoder writes, if reading it gives the value back; None says nothing.

    A key that is no string, a decimal or NaN does not come back the same.
    """
    try:
        text = _PLAIN.encode(value)
        data = text.encode("ascii")
        return data if not _LONG_NUMBER.search(data) and _DECODER.decode(text) == value else None
    except (TypeError, ValueError, RecursionError):
        return None  # the library says what it is


#: Digits enough for a number above 2^53 - 1.
_LONG_NUMBER = re.compile(rb"(?:^|[:,[])-?[0-9]{16}")
_PLAIN = json.JSONEncoder(ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"))


def _refuse_number(text: str) -> Any:
    raise CanonicalError(f"expected integers only, got the number {text[:40]}")


_DECODER = json.JSONDecoder(parse_constant=_refuse_number, parse_float=_refuse_number)


def _depth(data: bytes) -> int:
    """An upper bound of the nesting, counted without recursion; brackets inside strings count too."""
    if (most := data.count(b"[") + data.count(b"{")) <= MAX_DEPTH:
        return most
    deepest = depth = 0
    for byte in data.translate(None, delete=_NOT_BRACKETS):
        depth += 1 if byte in b"[{" else -1
        deepest = max(deepest, depth)
    return deepest


_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise CanonicalError(f"expected each key once, got {twice!r} twice")
    return value


def _integer(text: str) -> int:
    if len(text) > 17 or abs(int(text)) > MAX_SAFE_INTEGER:
        raise CanonicalError(f"expected integers within 2^53 - 1, got {text[:40]}")
    return int(text)
