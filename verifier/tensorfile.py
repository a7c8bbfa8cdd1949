"""Reading a capture: a safetensors file, parsed here by its public format, as a stream and within bounds.

Eight bytes little-endian: the header's length; a JSON header: per tensor dtype, shape and data_offsets; the
data. Tensors lie one after another, without gaps or overlaps, to the end of the file.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from ledger.canonical import CanonicalError, parse
from verifier.found import several, show

MAX_HEADER = 2**20
MAX_TENSORS = 1000
METADATA = "__metadata__"
_DTYPES = {"F16": "float16", "BF16": "bfloat16"}
_WIDTH = 2
#: High bytes of values whose exponent is all ones, sign aside: infinity or NaN.
_SPECIAL = {"float16": re.compile(rb"[\x7c-\x7f\xfc-\xff]"), "bfloat16": re.compile(rb"[\x7f\xff]")}
#: All other high bytes: where nothing else is left, nothing needs a closer look.
_USUAL = {
    dtype: bytes(byte for byte in range(256) if not special.match(bytes([byte])))
    for dtype, special in _SPECIAL.items()
}


class TensorFileError(ValueError):
    """Bytes that are not a well-formed capture; the message says what was expected and got."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Tensor:
    """One captured tensor. `sha256` of its raw bytes; `has_nan`: whether any element is a NaN."""

    dtype: str
    shape: tuple[int, ...]
    sha256: str
    has_nan: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class _Place:
    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


def read_tensors(chunks: Iterator[bytes], size: int) -> Mapping[str, Tensor]:
    """All tensors of a file of `size` bytes. Raises TensorFileError for anything but a well-formed one."""
    source = _Source(chunks)
    length = int.from_bytes(source.take(8), "little")
    if length > min(MAX_HEADER, max(size - 8, 0)):
        raise TensorFileError(
            f"expected a header of at most {min(MAX_HEADER, max(size - 8, 0))} bytes, got {length}"
        )
    places = _places(source.take(length), size - 8 - length)
    return {place.name: _tensor(source, place) for place in places}


def first_tensor_byte(data: bytes | bytearray) -> int:
    """Where the data of a well-formed file starts: behind the header."""
    return 8 + int.from_bytes(data[:8], "little")


class _Source:
    """Chunks as a stream of which pieces of a given length are taken."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._rest = memoryview(b"")

    def pieces(self, length: int) -> Iterator[memoryview]:
        """The next `length` bytes, in pieces."""
        while length > 0:
            if not self._rest:
                self._rest = memoryview(next(self._chunks, b""))
                if not self._rest:
                    raise TensorFileError(f"expected {length} more bytes, got the end of the file")
            piece, self._rest = self._rest[:length], self._rest[length:]
            length -= len(piece)
            yield piece

    def take(self, length: int) -> bytes:
        """The next `length` bytes."""
        return b"".join(self.pieces(length))


def _places(header: bytes, data: int) -> tuple[_Place, ...]:
    """Where the tensors lie, in file order: together they must cover `data` bytes exactly."""
    try:
        value = parse(header)
    except CanonicalError as fault:
        raise TensorFileError(f"header: {fault}") from fault
    if not isinstance(value, dict):
        raise TensorFileError(f"expected a header that is a JSON object, got {type(value).__name__}")
    metadata = value.pop(METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(text, str) for text in metadata.values()):
        raise TensorFileError(f"expected {METADATA} of texts, got {show(metadata)}")
    if len(value) > MAX_TENSORS:
        raise TensorFileError(f"expected at most {MAX_TENSORS} tensors, got {len(value)}")
    places = sorted(
        (_place(name, item) for name, item in value.items()), key=lambda place: (place.begin, place.end)
    )
    reached = 0
    for place in places:
        if place.begin != reached:
            raise TensorFileError(f"{place.name}: expected data from byte {reached} on, got {place.begin}")
        reached = place.end
    if reached != data:
        raise TensorFileError(f"expected {reached} bytes of data, as the header says, got {data}")
    return tuple(places)


def _place(name: str, item: Any) -> _Place:
    name = show(name)
    if not isinstance(item, dict) or item.keys() != {"dtype", "shape", "data_offsets"}:
        raise TensorFileError(f"{name}: expected dtype, shape and data_offsets, got {show(item)}")
    dtype, shape, offsets = item["dtype"], item["shape"], item["data_offsets"]
    if not isinstance(dtype, str) or dtype not in _DTYPES:
        raise TensorFileError(f"{name}: expected a dtype of {several(_DTYPES)}, got {show(dtype)}")
    if not _counts(shape) or len(shape) > 8:
        raise TensorFileError(f"{name}: expected a shape of counts, got {show(shape)}")
    if not _counts(offsets) or len(offsets) != 2:
        raise TensorFileError(f"{name}: expected two data_offsets, got {show(offsets)}")
    begin, end = offsets
    if end - begin != prod(shape) * _WIDTH:
        raise TensorFileError(f"{name}: expected {prod(shape) * _WIDTH} bytes for {shape}, got {end - begin}")
    return _Place(name=name, dtype=_DTYPES[dtype], shape=tuple(shape), begin=begin, end=end)


def _counts(value: Any) -> bool:
    return isinstance(value, list) and all(type(item) is int and item >= 0 for item in value)


def _tensor(source: _Source, place: _Place) -> Tensor:
    state = hashlib.sha256()
    has_nan, carry = False, b""
    for piece in source.pieces(place.end - place.begin):
        state.update(piece)
        whole = carry + bytes(piece)
        cut = len(whole) - len(whole) % _WIDTH  # a chunk may end inside an element
        has_nan = has_nan or _has_nan(whole[:cut], place.dtype)
        carry = whole[cut:]
    return Tensor(dtype=place.dtype, shape=place.shape, sha256=state.hexdigest(), has_nan=has_nan)


def _has_nan(data: bytes, dtype: str) -> bool:
    """Whether any element is a NaN: exponent all ones, mantissa not zero."""
    high, low = data[1::2], data[::2]
    if not high.translate(None, _USUAL[dtype]):
        return False
    for match in _SPECIAL[dtype].finditer(high):
        place = match.start()
        if dtype == "float16":
            if high[place] & 0x03 or low[place]:
                return True
        elif low[place] & 0x80 and low[place] & 0x7F:
            return True
    return False
