"""An interposer for one device attribute: what the operator reads as the number of multiprocessors.

The shared library stays as it was shipped, on disk and in its code. Its table of imported functions (the
procedure linkage slots, ELF gABI and the x86-64 supplement) has one entry for `cudaDeviceGetAttribute`; for
the time of a `with` block that entry points to a function here, which answers one attribute and passes on
every other. No other library's reads are touched, no compiler and no environment variable is needed.
"""

import ctypes
import mmap
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from mechanism.errors import EngineError

FUNCTION = "cudaDeviceGetAttribute"
MULTIPROCESSORS = 16  # cudaDevAttrMultiProcessorCount
_SIGNATURE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int), ctypes.c_int, ctypes.c_int)

_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT_PLTRELSZ, _DT_STRTAB, _DT_SYMTAB, _DT_RELA, _DT_RELASZ, _DT_JMPREL = 2, 5, 6, 7, 8, 23
_JUMP_SLOT, _GLOB_DAT = 7, 6  # R_X86_64_*
_RELA, _SYMBOL, _DYNAMIC, _PROGRAM = 24, 24, 16, 56  # bytes of one entry
_PAGE = mmap.PAGESIZE


@contextmanager
def multiprocessors(library: Path, count: int, real: object) -> Iterator[None]:
    """Have `library`, loaded in this process, read `count` multiprocessors inside the block.

    `real`: the runtime's own function (ctypes), asked for every other attribute. Raises EngineError if the
    library is not loaded, or does not import the function through a slot.
    """
    function = ctypes.cast(real, ctypes.c_void_p).value  # type: ignore[arg-type]
    if not function:
        raise EngineError(f"{FUNCTION}: expected the runtime's function, got none")
    ask = _SIGNATURE(function)

    def answer(value: "ctypes._Pointer[ctypes.c_int]", attribute: int, device: int) -> int:
        if attribute != MULTIPROCESSORS:
            return int(ask(value, attribute, device))
        value[0] = count
        return 0

    replaced = _SIGNATURE(answer)  # kept alive by this frame for as long as the slot points to it
    slots = [_writable(address) for address in slots_of(library, FUNCTION)]
    before = [slot.value for slot in slots]
    try:
        for slot in slots:
            slot.value = ctypes.cast(replaced, ctypes.c_void_p).value
        yield
    finally:
        for slot, old in zip(slots, before, strict=True):
            slot.value = old


def slots_of(library: Path, function: str) -> tuple[int, ...]:
    """Addresses, in this process, of the slots through which a loaded library calls `function`."""
    base = _base(library)
    found = tuple(base + offset for offset in _Image(library).offsets(function))
    if not found:
        raise EngineError(f"{library.name}: expected it to import {function}, found no slot for it")
    return found


def _writable(address: int) -> "ctypes.c_void_p":
    page = address // _PAGE * _PAGE
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mprotect(ctypes.c_void_p(page), _PAGE, mmap.PROT_READ | mmap.PROT_WRITE) != 0:
        raise EngineError(f"slot at {address:#x}: cannot be made writable, errno {ctypes.get_errno()}")
    return ctypes.c_void_p.from_address(address)


def _base(library: Path) -> int:
    """Where the library's first byte is mapped."""
    wanted = str(library.resolve())
    for line in Path("/proc/self/maps").read_text().splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and fields[5] == wanted and int(fields[2], 16) == 0:
            return int(fields[0].partition("-")[0], 16)
    raise EngineError(f"{library}: expected it loaded in this process, found no mapping of it")


@dataclass(frozen=True, slots=True)
class _Segment:
    address: int
    size: int
    offset: int


class _Image:
    """A 64-bit little-endian ELF file, as far as its dynamic relocations go."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self._data = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        if self._data[:6] != b"\x7fELF\x02\x01":
            raise EngineError(f"{path}: expected a 64-bit little-endian ELF file, got another")
        (start,) = struct.unpack_from("<Q", self._data, 32)
        (count,) = struct.unpack_from("<H", self._data, 56)
        self._loaded: list[_Segment] = []
        self._tags: dict[int, int] = {}
        for place in range(count):
            kind, _, offset, address, _, size = struct.unpack_from(
                "<IIQQQQ", self._data, start + place * _PROGRAM
            )
            if kind == _PT_LOAD:
                self._loaded.append(_Segment(address, size, offset))
            elif kind == _PT_DYNAMIC:
                pairs = struct.iter_unpack("<qQ", self._data[offset : offset + size // _DYNAMIC * _DYNAMIC])
                self._tags = dict(pairs)

    def offsets(self, function: str) -> Iterator[int]:
        """Where, from the library's first byte, the slots of an imported function lie."""
        tables = ((_DT_JMPREL, _DT_PLTRELSZ), (_DT_RELA, _DT_RELASZ))
        for table, length in tables:
            if table not in self._tags:
                continue
            start = self._at(self._tags[table])
            entries = self._data[start : start + self._tags[length] // _RELA * _RELA]
            for place, info, _ in struct.iter_unpack("<QQq", entries):
                kind, symbol = info & 0xFFFFFFFF, info >> 32
                if kind in (_JUMP_SLOT, _GLOB_DAT) and self._name(symbol) == function:
                    yield place

    def _name(self, symbol: int) -> str:
        entry = self._at(self._tags[_DT_SYMTAB]) + symbol * _SYMBOL
        (name,) = struct.unpack_from("<I", self._data, entry)
        start = self._at(self._tags[_DT_STRTAB]) + name
        return self._data[start : self._data.find(b"\0", start)].decode("ascii", "replace")

    def _at(self, address: int) -> int:
        """File offset of an address."""
        for segment in self._loaded:
            if segment.address <= address < segment.address + segment.size:
                return address - segment.address + segment.offset
        raise EngineError(f"ELF: address {address:#x} lies in no loaded segment")
