"""Bytes and entries that nobody should send: each a finding that names it, none followed, none a crash."""

from collections.abc import Callable
from typing import Any

from ledger.canonical import sha256
from tests.evidence.case import Case, Made, add, case, made_by
from tests.verifier import forge
from tests.verifier.edits import H0, counted
from tests.verifier.forge import Files, Parts

KEY = b'"schema_version":'


def _bytes(name: str, why: str, bend: Callable[[bytes], bytes], code: str = "V202", key: str = "") -> None:
    """A case of one record's bytes."""

    def make(parts: Parts) -> Files:
        parts.extra[H0] = bend(forge.canonical(parts.records[H0]))
        return forge.seal(parts)

    add(Case(name=name, why=why, make=made_by(make), found=[(code, H0 + key)]))


def _before(words: bytes) -> Callable[[bytes], bytes]:
    return lambda data: data.replace(KEY, KEY + words + b',"x":', 1)


_bytes(
    "byte-order-mark",
    "A BOM is three more bytes in the digest that nobody sees.",
    lambda d: b"\xef\xbb\xbf" + d,
)
_bytes("crlf", "A line end added on the way.", lambda d: d + b"\r\n")
_bytes(
    "nul-in-json",
    "A NUL in a key ends a string early in other readers.",
    lambda d: d.replace(KEY, b'"\0":1,' + KEY, 1),
)
_bytes(
    "duplicate-key",
    "Of two values for one key, readers choose differently.",
    lambda d: b'{"schema_version":1,' + d[1:],
)
_bytes("nan", "NaN is no JSON.", _before(b"NaN"))
_bytes("1e400", "A number that is infinite to one reader and an error to another.", _before(b"1e400"))
_bytes(
    "beyond-2-53",
    "An integer that doubles cannot hold is another integer elsewhere.",
    _before(b"9007199254740993"),
)
_bytes("five-thousand-digits", "An integer that takes quadratic time to read.", _before(b"9" * 5000))
_bytes("deep-json", "Nesting that overflows a recursive reader's stack.", lambda _d: b"[" * 60_000)
_bytes("not-utf-8", "A byte that is no text.", lambda d: d.replace(KEY, b'"\xff":1,' + KEY, 1))
_bytes(
    "lone-surrogate",
    "A surrogate that stands alone has no UTF-8.",
    lambda d: d.replace(KEY, b'"\\ud800":1,' + KEY, 1),
)
_bytes("empty-record", "No bytes at all.", lambda _d: b"")
_bytes("a-list-for-a-record", "JSON of another kind than expected.", lambda _d: b"[]", "V203")


def _yaml(name: str, why: str, line: int, bend: Callable[[bytes], bytes], key: str = "") -> None:
    """A case of the ledger's YAML; lock and summary are redone."""

    def make(parts: Parts) -> Files:
        parts.ledger = bend(parts.ledger)
        forge.relink(parts)
        return forge.seal(parts)

    add(Case(name=name, why=why, make=made_by(make), found=[("V204", f"ledger.yaml:{line}{key}")]))


_yaml(
    "yaml-tag",
    "A tag could name a type to be made.",
    2,
    lambda d: d.replace(b"schema_version: 1", b"schema_version: !!int 1"),
    ": schema_version",
)
_yaml("yaml-directive", "A directive changes how the rest is read.", 1, lambda d: b"%YAML 1.1\n---\n" + d)
_yaml(
    "yaml-norway",
    "`no` is False to one YAML and text to the next.",
    3,
    lambda d: d.replace(b"name: small", b"name: no"),
    ": name",
)
_yaml(
    "yaml-key-twice",
    "A key twice: the last wins, or the first.",
    3,
    lambda d: d.replace(b"schema_version: 1\n", b"schema_version: 1\nschema_version: 1\n"),
    ": schema_version",
)
_yaml("yaml-crlf", "Line ends are part of the digest.", 1, lambda d: d.replace(b"\n", b"\r\n"))
_yaml("yaml-nul", "A NUL in text.", 84, lambda d: d + b"\0")
_yaml(
    "yaml-two-documents",
    "A second document that one reader sees and another does not.",
    84,
    lambda d: d + b"---\na: b\n",
)


def _named(name: str, why: str, path: str) -> None:
    """A manifest line of a path that leaves the bundle, or of none that is canonical: refused, never opened."""

    def make(parts: Parts) -> Files:
        line = forge.canonical({"path": path, "size": 1, "sha256": sha256(b"x")}) + b"\n"
        return forge.seal(parts, manifest=lambda lines: [line, *lines])

    add(Case(name=name, why=why, make=made_by(make), found=[("V105", "files.jsonl:1, path")]))


_named(
    "manifest-climbs",
    "A path that steps out of the bundle is refused as a line; nothing there is opened.",
    "../../etc/passwd",
)
_named("manifest-absolute", "So is one from the root.", "/etc/passwd")
_named(
    "manifest-climbs-inside",
    "And one that steps out and in again: one file has one name.",
    "records/../plan.yaml",
)
_named("manifest-drive", "And one with another system's separators.", "..\\evil")
_named(
    "manifest-unicode-twin",
    "Names that look alike, or that file systems fold into one, cannot be listed.",
    "records/qualificatioñ.json",
)


@case("manifest-case-twin", "Two records whose names differ in case only are one file on some systems.",
      ("V102", "records/Qualification.native.H0.1.json"), ("V106", "files.jsonl:11"))  # fmt: skip
def manifest_case_twin(parts: Parts) -> Files:
    path = "records/Qualification.native.H0.1.json"
    line = forge.canonical({"path": path, "size": 1, "sha256": sha256(b"x")}) + b"\n"
    return forge.seal(
        parts, manifest=lambda lines: sorted([*lines, line]), summary=counted(files=1, records=1)
    )


def _special(name: str, why: str, path: bytes, found: list[tuple[str, str]], **entry: Any) -> None:
    """A case of an entry that the materialiser makes."""

    def make(parts: Parts) -> Made:
        return Made(files=forge.seal(parts), make=[{"name": path.hex(), **entry}])

    add(Case(name=name, why=why, make=make, found=found))


_special(
    "symlink-out",
    "A link out of the bundle is named, and not followed.",
    b"extra",
    [("V104", "extra")],
    kind="symlink",
    target="/etc/passwd",
)
_special("symlink-loop", "A link to itself.", b"extra", [("V104", "extra")], kind="symlink", target="extra")
_special("record-is-a-symlink", "A record's place taken by a link to its twin: a link all the same. With it the record is not there.",
         H0.encode(), [("V104", H0), ("V401", H0)], kind="symlink", target="qualification.native.H0.2.json")  # fmt: skip
_special("fifo", "A FIFO blocks whoever opens it.", b"records/fifo", [("V104", "records/fifo")], kind="fifo")
_special(
    "folder-for-a-file",
    "A folder where a bundle has none is not entered.",
    b"inner",
    [("V104", "inner")],
    kind="folder",
)
_special("a-terabyte", "A sparse record of a terabyte costs nothing to make; it is refused by its size, and never read.",
         H0.encode(), [("V110", H0)], kind="file", size=2**40)  # fmt: skip
_special("name-that-is-no-text", "A name in no encoding, with a terminal's escape in it.", b"\xff\x1b[2J",
         [("V109", "\\udcff\\x1b[2J")], kind="file")  # fmt: skip
_special("unicode-twin", "A name with a letter of two spellings; no place for it.", "plan.yam\u0142".encode(),
         [("V109", "plan.yam\u0142")], kind="file")  # fmt: skip
