"""The safetensors reader: what it accepts, what it says of what it does not."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from ledger.canonical import sha256
from verifier.tensorfile import Tensor, TensorFileError, read_tensors


def file_of(header: Any, data: bytes = b"", pad: bytes = b"") -> bytes:
    """A file with a header and data."""
    text = (header if isinstance(header, bytes) else json.dumps(header).encode()) + pad
    return len(text).to_bytes(8, "little") + text + data


def entry(begin: int, end: int, **changes: Any) -> dict[str, Any]:
    """One tensor of the header."""
    return {"dtype": "F16", "shape": [(end - begin) // 2], "data_offsets": [begin, end], **changes}


def read(data: bytes, step: int = 2**20) -> dict[str, Tensor]:
    """The tensors of a file that arrives in pieces."""

    def pieces() -> Iterator[bytes]:
        yield from (data[at : at + step] for at in range(0, len(data), step))

    return dict(read_tensors(pieces(), len(data)))


@pytest.mark.parametrize("step", [1, 3, 2**20])
def test_a_good_file(step: int) -> None:
    """Digests, shapes and types, however the bytes arrive; metadata and padding are allowed."""
    header = {"b": entry(4, 8), "a": entry(0, 4, shape=[2, 1]), "__metadata__": {"x": "y"}}
    found = read(file_of(header, b"\1\2\3\4\5\6\7\7", pad=b"  "), step)
    assert found["a"] == Tensor(dtype="float16", shape=(2, 1), sha256=sha256(b"\1\2\3\4"), has_nan=False)
    assert found["b"].sha256 == sha256(b"\5\6\7\7")


@pytest.mark.parametrize(
    ("bits", "dtype", "nan"),
    [
        (b"\x00\x7c", "F16", False),
        (b"\x01\x7c", "F16", True),
        (b"\x00\xfe", "F16", True),
        (b"\xff\x7f", "F16", True),
        (b"\xff\x7b", "F16", False),
        (b"\x80\x7f", "BF16", False),
        (b"\x81\x7f", "BF16", True),
        (b"\xc0\xff", "BF16", True),
        (b"\x7f\x7f", "BF16", False),
    ],
)
@pytest.mark.parametrize("step", [1, 100])
def test_nans(bits: bytes, dtype: str, step: int, *, nan: bool) -> None:
    """Exponent all ones and a mantissa: infinity is none."""
    data = file_of({"a": entry(0, 6, dtype=dtype)}, b"\0\0" + bits + b"\0\0")
    assert read(data, step)["a"].has_nan is nan


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "expected 8 more bytes, got the end of the file"),
        (b"\xff" * 8, "expected a header of at most 0 bytes, got 18446744073709551615"),
        (file_of(b"[]"), "expected a header that is a JSON object, got list"),
        (file_of(b'{"a":1,"a":2}'), "header: expected each key once, got 'a' twice"),
        (file_of({"a": 1}), "a: expected dtype, shape and data_offsets, got 1"),
        (file_of({"a": entry(0, 4, dtype="F32")}), "a: expected a dtype of F16, BF16, got F32"),
        (file_of({"a": entry(0, 4, shape=[True])}), "a: expected a shape of counts, got [True]"),
        (file_of({"a": entry(0, 4, data_offsets=[0])}), "a: expected two data_offsets, got [0]"),
        (file_of({"a": entry(0, 4, shape=[3])}), "a: expected 6 bytes for [3], got 4"),
        (file_of({"a": entry(2, 4)}, b"1234"), "a: expected data from byte 0 on, got 2"),
        (file_of({"a": entry(0, 4), "b": entry(2, 6)}, b"123456"), "b: expected data from byte 4 on, got 2"),
        (file_of({"a": entry(0, 4)}, b"12345"), "expected 4 bytes of data, as the header says, got 5"),
        (file_of({"a": entry(0, 4)}, b"123"), "expected 4 bytes of data, as the header says, got 3"),
        (file_of({"__metadata__": {"a": 1}}), "expected __metadata__ of texts, got {'a': 1}"),
        (file_of({str(n): entry(0, 0) for n in range(1001)}), "expected at most 1000 tensors, got 1001"),
    ],
)
def test_what_is_none(data: bytes, message: str) -> None:
    """Expected, then got."""
    with pytest.raises(TensorFileError) as refused:
        read(data)
    assert str(refused.value) == message
