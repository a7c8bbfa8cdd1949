"""Canonical bytes follow RFC 8785, and reading is as strict as writing."""

import contextlib
import json
import re

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from ledger.canonical import CanonicalError, canonical, digest, parse, parse_canonical, sha256

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=15,
).filter(lambda value: isinstance(value, dict | list))


@given(JSON)
def test_reading_undoes_writing(value: dict[str, object]) -> None:
    assert parse_canonical(canonical(value)) == value


@given(JSON)
def test_one_value_has_one_byte_string(value: dict[str, object]) -> None:
    spaced = json.dumps(value, indent=1, ensure_ascii=True).encode()
    assert canonical(parse(spaced)) == canonical(value)
    if spaced != canonical(value):
        with pytest.raises(CanonicalError, match="canonical bytes, got the same value"):
            parse_canonical(spaced)


@given(JSON, st.integers(0, 200), st.integers(0, 127))
def test_one_changed_byte_is_read_as_the_rules_say(value: dict[str, object], place: int, byte: int) -> None:
    """The quick way through plain documents gives what the slow one gives, refusals included."""
    data = bytearray(json.dumps(value, sort_keys=True, separators=(",", ":")).encode())
    data[place % len(data)] = byte
    try:
        wanted = parse(bytes(data))
    except CanonicalError as fault:
        with pytest.raises(CanonicalError, match=re.escape(str(fault))):
            parse_canonical(bytes(data))
        return
    if isinstance(wanted, dict | list) and _written(wanted) == bytes(data):
        assert repr(parse_canonical(bytes(data))) == repr(wanted)
    else:
        with pytest.raises(CanonicalError):
            parse_canonical(bytes(data))


def _written(value: dict[str, object] | list[object]) -> bytes | None:
    try:
        return canonical(value)
    except CanonicalError:
        return None


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"[9007199254740991]", [9007199254740991]),
        (b'["9007199254740992"]', ["9007199254740992"]),
        (b'["a:9007199254740992"]', ["a:9007199254740992"]),
        (b"[" * 64 + b"]" * 64, None),
        (b"[" + b"[]," * 99 + b"[]]", [[]] * 100),
    ],
    ids=["largest", "in text", "after a colon in text", "deepest", "many brackets"],
)
def test_what_looks_too_large_and_is_not(data: bytes, value: object) -> None:
    got = parse_canonical(data)
    assert got == value or value is None
    assert canonical(got) == data


@given(JSON)
def test_writing_is_the_librarys(value: dict[str, object]) -> None:
    assert canonical(value) == rfc8785.dumps(value)  # type: ignore[arg-type]  # any JSON value


@pytest.mark.parametrize("value", [{1: 2}, {None: 1}, {True: 1, "true": 1}, [{"a": {2.0: 1}}]])
def test_keys_that_are_no_strings_are_refused(value: dict[str, object]) -> None:
    """The C encoder would write them as text."""
    with pytest.raises(CanonicalError, match=r"^cannot be written as canonical JSON"):
        canonical(value)


def test_keys_are_sorted_by_utf16_unit() -> None:
    """Case Q4: U+1F600 sorts before U+E000, since its first UTF-16 unit is 0xD83D."""
    assert canonical({"\ue000": 1, "\U0001f600": 2}) == '{"\U0001f600":2,"\ue000":1}'.encode()


@pytest.mark.parametrize(
    ("value", "text"),
    [(10.0, b"[10]"), (-0.0, b"[0]"), (1e-07, b"[1e-7]"), (1e20, b"[100000000000000000000]")],
)
def test_numbers_are_written_as_rfc_8785_says(value: float, text: bytes) -> None:
    """Case Q4."""
    assert canonical([value]) == text


@pytest.mark.parametrize("value", [2**60, float("nan"), float("inf")])
def test_numbers_that_json_cannot_hold_are_refused(value: float) -> None:
    with pytest.raises(CanonicalError, match=r"^cannot be written as canonical JSON"):
        canonical([value])
    with pytest.raises(CanonicalError, match=r"^cannot be written as canonical JSON"):
        canonical(value)  # type: ignore[arg-type] # alone, against the signature, it is refused as well


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"a":1,"a":2}', "expected each key once, got 'a' twice"),
        (b'{"a":NaN}', "expected integers only, got the number NaN"),
        (b'{"a":1e400}', "expected integers only, got the number 1e400"),
        (b'{"a":1.5}', "expected integers only, got the number 1.5"),
        (b'{"a":9007199254740992}', "expected integers within 2^53 - 1, got 9007199254740992"),
        (b"\xef\xbb\xbf{}", "expected UTF-8 JSON without a byte order mark, got one"),
        (b'{"a":"\xff"}', "expected UTF-8, got byte 0xff at offset 6"),
        (b"[" * 65 + b"]" * 65, "expected at most 64 nested levels, got more"),
        (
            b'{"a"',
            "expected one JSON value, got something else: Expecting ':' delimiter: line 1 column 5 (char 4)",
        ),
        (b"", "expected one JSON value, got something else: Expecting value: line 1 column 1 (char 0)"),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_what_is_not_strict_json_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(CanonicalError) as caught:
        parse(data)
    assert str(caught.value) == message


@given(st.binary(max_size=100))
def test_no_bytes_raise_anything_but_the_named_error(data: bytes) -> None:
    with contextlib.suppress(CanonicalError):
        parse_canonical(data)


def test_a_digest_is_that_of_the_bytes() -> None:
    assert digest({"b": 1, "a": []}) == sha256(b'{"a":[],"b":1}')
