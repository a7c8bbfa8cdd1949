"""Whatever the bytes: a flip is found and named, and nothing raises."""

import json
import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ledger.canonical import canonical, parse_canonical
from ledger.verdict import EXIT_CODES
from tests.verifier import forge
from tests.verifier.conftest import Find, Overlay
from tests.verifier.forge import Files, Parts
from verifier.assess import assess
from verifier.codes import CODES
from verifier.judge import worst
from verifier.library import Library
from verifier.tensorfile import TensorFileError, read_tensors

LIBRARY = Library()


def quiet(examples: int) -> settings:
    """Bounded work, the same each time: CI must not go red by chance."""
    checks = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
    return settings(max_examples=examples, deadline=None, derandomize=True, suppress_health_check=checks)


@quiet(50)
@given(data=st.data())
def test_any_flipped_bit_is_found_and_named(good_files: Files, overlay: Overlay, data: st.DataObject) -> None:
    """One bit of one byte of any file: a finding that names the file, and exit 2 or 3."""
    path = data.draw(st.sampled_from(sorted(good_files)))
    place = data.draw(st.integers(0, len(good_files[path]) - 1))
    bit = data.draw(st.integers(0, 7))
    bent = bytearray(good_files[path])
    bent[place] ^= 1 << bit
    found = assess(overlay({**good_files, path: bytes(bent)}), LIBRARY, level="records", anchor=None).found
    assert [f for f in found if path in f.where + f.expected + f.got]
    assert EXIT_CODES[worst([CODES[f.code].verdict for f in found])] in {2, 3}
    assert not [f for f in found if f.code == "V999"]


@quiet(40)
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_random_bytes_never_raise(good_files: Files, find: Find, data: st.DataObject, seed: int) -> None:
    """Cut, repeated, overwritten or replaced, with a manifest that fits or one that does not."""
    draw = random.Random(seed)
    path = data.draw(st.sampled_from(sorted(good_files)))
    whole = good_files[path]
    cut = draw.randrange(len(whole))
    bent = data.draw(
        st.sampled_from([whole[:cut], whole[cut:], whole[:cut] + whole, draw.randbytes(cut % 500), whole * 2])
    )
    found = find({**good_files, path: bent}, level="raw")
    assert found or bent == whole
    assert "V999" not in {code for code, _ in found}


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all leaves of a JSON value."""
    items = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
    )
    if items is None:
        return [path]
    return [leaf for key, item in items for leaf in leaves(item, (*path, key))]


VALUES: list[Any] = [None, True, -1, 0, 2**53 - 1, "", "x", [], {}, "0" * 64]


@quiet(80)
@given(data=st.data())
def test_a_forgers_change_of_any_value_never_raises(good: Parts, find: Find, data: st.DataObject) -> None:
    """Any leaf of any document takes any value, and everything around it is made to fit."""
    parts = good.copy()
    documents: list[Any] = [parts.lock, parts.routing, parts.build, *parts.records.values()]
    documents += [*parts.alignments.values(), *parts.attempts]
    document = data.draw(st.sampled_from(documents))
    *keys, last = data.draw(st.sampled_from(leaves(document)))
    here = document
    for key in keys:
        here = here[key]
    here[last] = data.draw(st.sampled_from(VALUES))
    found = find(forge.seal(parts), level="raw")
    assert "V999" not in {code for code, _ in found}


PLAN_VALUES = ["0", "1", "-1", "9007199254740991", "null", "true", "[]", "{}", "x", '""', "[0, 1]", "1000000"]


@quiet(40)
@given(data=st.data())
def test_any_change_of_the_plan_never_raises(good: Parts, find: Find, data: st.DataObject) -> None:
    """A plan with any value anywhere, lock and records naming it: work stays bounded, nothing raises."""
    parts = good.copy()
    lines = parts.plan.decode().splitlines()
    numbers = [n for n, line in enumerate(lines) if ": " in line and not line.lstrip().startswith("#")]
    number = data.draw(st.sampled_from(numbers))
    key = lines[number].partition(": ")[0]
    lines[number] = f"{key}: {data.draw(st.sampled_from(PLAN_VALUES))}"
    parts.plan = "\n".join([*lines, ""]).encode()
    forge.relink(parts)
    assert "V999" not in {code for code, _ in find(forge.seal(parts))}


@given(st.binary(max_size=300))
def test_captures_of_any_bytes(data: bytes) -> None:
    """A capture is read or refused in words."""
    refused = ""
    try:
        read_tensors(iter([data]), len(data))
    except TensorFileError as fault:
        refused = str(fault)
    assert not refused or refused.startswith(("expected ", "header: ")) or ": expected " in refused


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@quiet(150)
@given(st.dictionaries(st.text(), JSON, max_size=4))
def test_the_quick_yes_is_right(value: dict[str, Any]) -> None:
    """What the C encoder writes of an ASCII document is its RFC 8785 form; of others nothing is assumed."""
    right = canonical(value)
    assert parse_canonical(right) == value
    plain = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()
    if plain.isascii():
        assert plain == right


@pytest.mark.parametrize("value", [{"\ue000": 1, "\U0001f600": 2}])
def test_keys_beyond_the_first_plane(value: dict[str, int]) -> None:
    """RFC 8785 sorts by UTF-16 unit: the quick way would not, and is not taken."""
    assert list(parse_canonical(canonical(value))) == ["\U0001f600", "\ue000"]
