"""Strict YAML: a loader over PyYAML's parser that keeps line numbers and guesses nothing.

YAML 1.1 reads `no` as False, `010` as 8 and `1:30` as 90. A frozen plan must not depend on that, so a
plain scalar that YAML 1.1, YAML 1.2 or a reader could take for something else is refused until quoted.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from ledger.fault import Fault, FaultsError, Path

MAX_DEPTH = 32
MAX_BYTES = 4 * 2**20

#: libyaml's parser where it was built in: the same events, several times sooner. For text on which the two
#: cannot differ: printable ASCII, no tabs.
_C_LOADER: Any = getattr(yaml, "CSafeLoader", None)
_PLAIN_TEXT = re.compile(r"[\n -~]*")

_MAX_DIGITS = 17
_CONSTANTS: dict[str, Any] = {"true": True, "false": False, "null": None}
_INTEGER = re.compile(r"-?(0|[1-9][0-9]*)")
_LOOKS_LIKE_NUMBER = re.compile(
    r"[-+]?\.?[0-9][0-9_]*([.:eExXoO_][-+0-9a-fA-F_.:]*)?|[-+]?\.(inf|nan)", re.IGNORECASE
)
_LOOKS_LIKE_DATE = re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt ].*)?")
_WORDS_WITH_MEANINGS = frozenset({"y", "yes", "n", "no", "on", "off", "true", "false", "null", "~"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Document:
    """A YAML document as plain data, with the line (from 1) on which every key or item starts."""

    data: Any
    lines: dict[Path, int]

    def line(self, path: Path) -> int:
        """The line of the deepest part of `path` that the document has."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


def load(data: bytes, *, name: str) -> Document:
    """Read one YAML document of mappings, lists, strings, integers, booleans and null.

    `name` is what messages call the file. Raises FaultsError with every fault found, each with its line.
    """
    text = _text(data, name)
    if _C_LOADER is not None and _PLAIN_TEXT.fullmatch(text):
        quick = _Reader(name)
        try:
            value = quick.document(iter(yaml.parse(text, Loader=_C_LOADER)))
        except yaml.YAMLError:
            pass  # told in the words of the parser below, which everybody has
        else:
            return _read(value, quick)
    reader = _Reader(name)
    try:
        value = reader.document(iter(yaml.parse(text, Loader=yaml.SafeLoader)))
    except yaml.MarkedYAMLError as fault:
        line = fault.problem_mark.line + 1 if fault.problem_mark else 1
        reader.fault((), line, f"expected YAML, got a syntax error: {fault.problem or fault.context}")
        raise FaultsError(reader.faults) from fault
    except yaml.YAMLError as fault:
        raise FaultsError(
            [Fault(file=name, line=1, path=(), message=f"expected YAML text, got {fault}")]
        ) from fault
    return _read(value, reader)


def _read(value: Any, reader: "_Reader") -> Document:
    if reader.faults:
        raise FaultsError(reader.faults)
    return Document(data=value, lines=reader.lines)


def _text(data: bytes, name: str) -> str:
    """The bytes as text; what a plan's digest must not hinge on unseen (BOM, CR, NUL) is refused here."""
    message, at = None, 0
    if len(data) > MAX_BYTES:
        message = f"expected at most {MAX_BYTES} bytes, got more"
    elif data.startswith((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")):
        message = "expected UTF-8 without a byte order mark, got one; save the file without BOM"
    elif b"\r" in data:
        at = data.index(b"\r")
        message = "expected lines that end in LF, got CR; convert the line ends, they are part of the digest"
    elif b"\0" in data:
        at = data.index(b"\0")
        message = "expected text, got a NUL byte; is this another kind of file?"
    if message is None:
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError as fault:
            at = fault.start
            message = f"expected UTF-8, got byte 0x{data[at]:02x} at offset {at}; save the file as UTF-8"
    line = data.count(b"\n", 0, at) + 1
    raise FaultsError([Fault(file=name, line=line, path=(), message=message)])


def _line(event: yaml.Event) -> int:
    return event.start_mark.line + 1 if event.start_mark else 1


class _Reader:
    """Builds data from parser events; collects faults instead of stopping at the first."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.faults: list[Fault] = []
        self.lines: dict[Path, int] = {}

    def fault(self, path: Path, line: int, message: str) -> None:
        self.faults.append(Fault(file=self.name, line=line, path=path, message=message))

    def document(self, events: Iterator[yaml.Event]) -> Any:
        value: Any = None
        documents = 0
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                line = _line(event)
                if documents > 1:
                    self.fault((), line, "expected one YAML document, got a second one")
                if event.version or event.tags:
                    self.fault((), line, "expected no YAML directive, got one; remove the % line")
            elif isinstance(event, yaml.NodeEvent):
                value = self.node(event, events, (), 0)
        if documents == 0:
            self.fault((), 1, "expected a YAML document, got an empty file")
        return value

    def node(self, event: yaml.Event, events: Iterator[yaml.Event], path: Path, depth: int) -> Any:
        line = _line(event)
        self.lines.setdefault(path, line)
        if depth > MAX_DEPTH:
            message = f"expected at most {MAX_DEPTH} nested levels, got more"
            raise FaultsError([Fault(file=self.name, line=line, path=path, message=message)])
        if isinstance(event, yaml.AliasEvent):
            self.fault(path, line, f"expected no YAML alias, got *{event.anchor}; write the value out")
            return None
        if (anchor := getattr(event, "anchor", None)) is not None:
            self.fault(path, line, f"expected no YAML anchor, got &{anchor}; write the value out")
        if (tag := getattr(event, "tag", None)) is not None:
            self.fault(path, line, f"expected no YAML tag, got {tag}; remove it")
        if isinstance(event, yaml.ScalarEvent):
            return self.scalar(event, path, line)
        if isinstance(event, yaml.SequenceStartEvent):
            return self.sequence(events, path, depth)
        return self.mapping(events, path, depth)

    def sequence(self, events: Iterator[yaml.Event], path: Path, depth: int) -> list[Any]:
        items: list[Any] = []
        while not isinstance(event := next(events), yaml.SequenceEndEvent):
            items.append(self.node(event, events, (*path, len(items)), depth + 1))
        return items

    def mapping(self, events: Iterator[yaml.Event], path: Path, depth: int) -> dict[str, Any]:
        items: dict[str, Any] = {}
        while not isinstance(event := next(events), yaml.MappingEndEvent):
            line = _line(event)
            key = self.node(event, events, (*path, "<key>"), depth + 1)
            self.lines.pop((*path, "<key>"), None)
            if not isinstance(key, str):
                self.fault(path, line, f"expected a text key, got {key!r}")
                key = repr(key)
            if key == "<<":
                self.fault(path, line, "expected no merge key, got <<; write the values out")
            here = (*path, key)
            if key in items:
                first = self.lines[here]
                self.fault(here, line, f"expected each key once, got {key!r} again (first on line {first})")
                here = (*path, f"{key} (again)")
            self.lines[here] = line
            items[key] = self.node(next(events), events, here, depth + 1)
        return items

    def scalar(self, event: yaml.ScalarEvent, path: Path, line: int) -> Any:
        if not event.implicit[0]:  # quoted or block style: text, whatever it says
            return event.value
        value, fault = _plain(event.value)
        if fault:
            self.fault(path, line, fault)
        return value


def _plain(text: str) -> tuple[Any, str | None]:
    """A plain scalar's one reading, or the text itself and why it has more than one."""
    if text in _CONSTANTS:
        return _CONSTANTS[text], None
    if text == "":
        return None, "expected a value, got nothing; write null if none is meant"
    if _INTEGER.fullmatch(text):
        if len(text) > _MAX_DIGITS:
            return text, f"expected an integer of at most {_MAX_DIGITS} digits, got {len(text)}"
        return int(text), None
    guessed = _LOOKS_LIKE_NUMBER.fullmatch(text) or _LOOKS_LIKE_DATE.fullmatch(text)
    if guessed or text.lower() in _WORDS_WITH_MEANINGS:
        return text, f'expected a value with one reading, got {text}; quote it ("{text}") if text is meant'
    return text, None
