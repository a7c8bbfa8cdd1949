"""Strict YAML guesses nothing, reports every fault with its line, and never lets a surprise through."""

import contextlib
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ledger import strict_yaml
from ledger.fault import FaultsError
from ledger.strict_yaml import load

SURPRISES = {
    "no": 'expected a value with one reading, got no; quote it ("no") if text is meant',
    "Yes": 'expected a value with one reading, got Yes; quote it ("Yes") if text is meant',
    "010": 'expected a value with one reading, got 010; quote it ("010") if text is meant',
    "1:30": 'expected a value with one reading, got 1:30; quote it ("1:30") if text is meant',
    "1e3": 'expected a value with one reading, got 1e3; quote it ("1e3") if text is meant',
    "12_3": 'expected a value with one reading, got 12_3; quote it ("12_3") if text is meant',
    "0x1F": 'expected a value with one reading, got 0x1F; quote it ("0x1F") if text is meant',
    "1.5": 'expected a value with one reading, got 1.5; quote it ("1.5") if text is meant',
    ".inf": 'expected a value with one reading, got .inf; quote it (".inf") if text is meant',
    "+1": 'expected a value with one reading, got +1; quote it ("+1") if text is meant',
    "~": 'expected a value with one reading, got ~; quote it ("~") if text is meant',
    "2026-11-29": 'expected a value with one reading, got 2026-11-29; quote it ("2026-11-29") if text is meant',
    "99999999999999999999": "expected an integer of at most 17 digits, got 20",
    "": "expected a value, got nothing; write null if none is meant",
    "&a 1": "expected no YAML anchor, got &a; write the value out",
    "*a": "expected no YAML alias, got *a; write the value out",
    "!!int 3": "expected no YAML tag, got tag:yaml.org,2002:int; remove it",
}


def faults(text: str | bytes) -> list[str]:
    data = text if isinstance(text, bytes) else text.encode()
    with pytest.raises(FaultsError) as caught:
        load(data, name="plan.yaml")
    return [str(fault) for fault in caught.value.faults]


@pytest.mark.parametrize(("text", "message"), SURPRISES.items())
def test_a_value_with_two_readings_is_refused(text: str, message: str) -> None:
    assert faults(f"first: 1\nkey: {text}\n") == [f"plan.yaml:2: key: {message}"]


def test_quoted_text_is_text() -> None:
    assert load(b'a: "no"\nb: \'010\'\nc: "1:30"\n', name="x").data == {"a": "no", "b": "010", "c": "1:30"}


def test_plain_values_keep_their_one_reading() -> None:
    text = b"a: true\nb: false\nc: null\nd: -12\ne: 0\nf: vllm==0.22.0\ng: C.UTF-8\nh: sm_86\n"
    assert load(text, name="x").data == {
        "a": True,
        "b": False,
        "c": None,
        "d": -12,
        "e": 0,
        "f": "vllm==0.22.0",
        "g": "C.UTF-8",
        "h": "sm_86",
    }


def test_every_fault_is_reported_in_file_order() -> None:
    assert faults("a: 1\nb:\n  - no\n  - 010\na: 2\n") == [
        'plan.yaml:3: b[0]: expected a value with one reading, got no; quote it ("no") if text is meant',
        'plan.yaml:4: b[1]: expected a value with one reading, got 010; quote it ("010") if text is meant',
        "plan.yaml:5: a: expected each key once, got 'a' again (first on line 1)",
    ]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            b"\xef\xbb\xbfa: 1\n",
            "plan.yaml:1: expected UTF-8 without a byte order mark, got one; save the file without BOM",
        ),
        (
            b"a: 1\nb: 2\r\n",
            "plan.yaml:2: expected lines that end in LF, got CR; convert the line ends, they are part of the digest",
        ),
        (b"a: 1\nb: \0\n", "plan.yaml:2: expected text, got a NUL byte; is this another kind of file?"),
        (
            b"a: 1\n\nb: \xff\n",
            "plan.yaml:3: expected UTF-8, got byte 0xff at offset 9; save the file as UTF-8",
        ),
        (b"", "plan.yaml:1: expected a YAML document, got an empty file"),
        (b"a: 1\n---\nb: 2\n", "plan.yaml:2: expected one YAML document, got a second one"),
        (b"? [1]\n: 2\n", "plan.yaml:1: expected a text key, got [1]"),
        (b"1: 2\n", "plan.yaml:1: expected a text key, got 1"),
        (b"a: {<<: 1}\n", "plan.yaml:1: a: expected no merge key, got <<; write the values out"),
        (
            b"a: [1,\n",
            "plan.yaml:2: expected YAML, got a syntax error: expected the node content, but found '<stream end>'",
        ),
        (b"%YAML 1.1\n---\na: 1\n", "plan.yaml:1: expected no YAML directive, got one; remove the % line"),
        (
            b"a: " + b"[" * 40 + b"]" * 40,
            "plan.yaml:1: a" + "[0]" * 32 + ": expected at most 32 nested levels, got more",
        ),
        (b"# " + b"x" * 5_000_000, "plan.yaml:1: expected at most 4194304 bytes, got more"),
    ],
    ids=lambda value: repr(value)[:24],
)
def test_a_document_that_is_none_is_refused(data: bytes, message: str) -> None:
    assert faults(data) == [message]


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-(10**15), 10**15)
        | st.text(st.characters(codec="ascii", exclude_characters="\r")),
        lambda inner: (
            st.lists(inner) | st.dictionaries(st.text("abcxyz", min_size=1).map(lambda key: f"k{key}"), inner)
        ),
        max_leaves=12,
    ).filter(lambda value: isinstance(value, dict))
)
def test_what_a_careful_writer_quotes_comes_back(value: object) -> None:
    """PyYAML's own writer quotes all text when asked; then our reading is its reading."""
    text = yaml.safe_dump(value, default_style=None, allow_unicode=True)
    quoted = yaml.dump(value, Dumper=_Quoting, allow_unicode=True)
    assert load(quoted.encode(), name="x").data == yaml.safe_load(text)


class _Quoting(yaml.SafeDumper):
    """Quotes every text, keeps other scalars plain."""


def _quote(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style='"')


_Quoting.add_representer(str, _quote)


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_but_faults(data: bytes) -> None:
    with contextlib.suppress(FaultsError):
        load(data, name="x")


@pytest.mark.parametrize("name", ["plans/quick.yaml", "plans/route_block.yaml", "ledger/claims/quick.yaml"])
def test_both_parsers_give_one_document(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """libyaml's, where it is built in, and the one that everybody has: the same data on the same lines."""
    data = (Path(__file__).resolve().parents[2] / name).read_bytes()
    one = strict_yaml.load(data, name=name)
    monkeypatch.setattr(strict_yaml, "_C_LOADER", None)
    assert strict_yaml.load(data, name=name) == one
