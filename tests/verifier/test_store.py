"""What is kept on disk is what was put there: sequences, mappings and tables against Python's own."""

import errno
import os
import tempfile
from array import array
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verifier.evidence import Written
from verifier.store import disk, table
from verifier.store.disk import Disk, NoRoomError
from verifier.store.listing import Digests, Entry, Overlaid
from verifier.store.mostly import Mostly
from verifier.store.names import Names, Sorted
from verifier.store.rows import Patched, Picked, Rows
from verifier.store.shared import Shared
from verifier.store.table import Firsts, Seen, Table, hashed

#: Names of files as the system gives them: any text, also what is no UTF-8.
NAMES = st.text(st.characters(codec=None), max_size=4)
LISTS = st.lists(st.tuples(NAMES, st.none() | st.integers(-(2**62), 2**62)), max_size=40)


@pytest.fixture(autouse=True)
def _on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything goes to disk, in blocks of a few names."""
    monkeypatch.setattr(disk, "MANY", 3)
    monkeypatch.setattr("verifier.store.names._BLOCK", 4)
    monkeypatch.setattr("verifier.store.rows._AT_ONCE", 5)


def same(value: Any) -> Any:
    return value


@settings(deadline=None)
@given(LISTS, st.data())
def test_rows_are_the_list(values: list[tuple[str, int | None]], data: st.DataObject) -> None:
    rows: Rows[tuple[str, int | None]] = Rows(values, same, tuple)
    assert (len(rows), list(rows), rows.many) == (len(values), values, len(values) > 3)
    for place in range(-len(values), len(values)):
        assert rows[place] == values[place]
    assert rows[1:-1] == values[1:-1]
    with pytest.raises(IndexError):
        rows[len(values)]
    places = sorted(data.draw(st.sets(st.integers(0, len(values) - 1)))) if values else []
    picked: Picked[object] = Picked(rows, array("I", places))
    assert (list(picked), len(picked)) == ([values[place] for place in places], len(places))
    assert [picked[at] for at in range(len(places))] == list(picked)


@settings(deadline=None)
@given(LISTS, st.data())
def test_patched_is_the_list_with_the_changes(
    values: list[tuple[str, int | None]], data: st.DataObject
) -> None:
    places = st.integers(0, len(values) - 1)
    dropped = data.draw(st.sets(places)) if values else set()
    replaced = {place: ("new", place) for place in data.draw(st.sets(places))} if values else {}
    replaced = {place: value for place, value in replaced.items() if place not in dropped}
    added = data.draw(LISTS)
    wanted = [
        replaced.get(place, value) for place, value in enumerate(values) if place not in dropped
    ] + added
    patched = Patched(Rows(values, same, tuple), replaced, dropped, added)
    assert (list(patched), len(patched)) == (wanted, len(wanted))
    assert [patched[at] for at in range(-len(wanted), len(wanted))] == wanted + wanted


@settings(deadline=None)
@given(LISTS)
def test_sorted_names_are_the_sorted_dict(values: list[tuple[str, int | None]]) -> None:
    wanted = dict(sorted(dict(values).items()))
    maker: Sorted[int | None] = Sorted(same, same)
    for name, value in dict(values).items():
        maker.add(name, value)
    assert len(maker) == len(wanted)
    names = maker.names()
    assert list(names.items()) == list(wanted.items())
    assert (list(names), len(names)) == (list(wanted), len(wanted))
    for name in [*wanted, "a", "\udcff", ""]:
        assert (names.get(name, "none"), name in names) == (wanted.get(name, "none"), name in wanted)
        if isinstance(names, Names):
            assert names.place(name) == (list(wanted).index(name) if name in wanted else None)
    if isinstance(names, Names):
        assert [names.at(place) for place in range(len(wanted))] == list(wanted)


@settings(deadline=None)
@given(LISTS)
def test_names_in_any_order_are_the_dict(values: list[tuple[str, int | None]]) -> None:
    """In the order in which they came, the first of each; and which came before but for case."""
    mostly: Mostly[int | None] = Mostly(same, same)
    wanted: dict[str, int | None] = {}
    for name, value in values:
        if name:
            twin = next((other for other in wanted if other.lower() == name.lower()), None)
            assert mostly.twin(name) == twin
            mostly.add(name, value)
            wanted.setdefault(name, value)
            assert (mostly.get(name), name in mostly) == (wanted[name], True)
    assert list(mostly.items()) == list(wanted.items())
    assert (list(mostly), len(mostly)) == (list(wanted), len(wanted))
    assert list(mostly.ascending()) == sorted(wanted)
    assert [mostly[name] for name in wanted] == list(wanted.values())


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2**63 - 2) | st.integers(0, 30), st.integers(0, 2**32 - 1))))
def test_a_table_is_the_dict(pairs: list[tuple[int, int]]) -> None:
    made, wanted = Table(), dict[int, int]()
    for key, value in pairs:
        assert made.first(key, value) == wanted.get(key, 0)
        wanted[key] = wanted.get(key) or value
        assert made.get(key) == wanted[key]
        made.set(key + 1, value)
        wanted[key + 1] = value
    assert {key: made.get(key) for key in wanted} == wanted


def test_a_table_of_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "_DENSE", 0)
    made = Table()
    for number in range(1, 5000):
        made.set(hashed(str(number)), number)
    assert [made.get(hashed(str(number))) for number in range(1, 5000)] == list(range(1, 5000))
    assert made.get(hashed("none")) == 0


@given(st.lists(NAMES))
def test_seen_is_the_set(texts: list[str]) -> None:
    seen, wanted = Seen(), set[str]()
    for text in texts:
        assert seen.add(text) == (text not in wanted)
        wanted.add(text)
        assert (text in seen, len(seen)) == (True, len(wanted))
    assert ("none of them" in seen) == ("none of them" in wanted)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers())))
def test_firsts_are_the_first_ones(values: list[tuple[int, int]]) -> None:
    firsts, wanted = Firsts(values), dict[int, tuple[int, int]]()
    for place, value in enumerate(values):
        assert firsts.of(value[0], place) == wanted.setdefault(value[0], value)


@settings(deadline=None)
@given(st.dictionaries(NAMES, st.integers(0, 9), min_size=4), st.data())
def test_what_is_laid_over_is_the_dict(sizes: dict[str, int], data: st.DataObject) -> None:
    base = Names[Entry](tuple, Entry._make)
    below = {name: Entry("file", size) for name, size in sorted(sizes.items())}
    for name, entry in below.items():
        base.add(name, entry)
    changed = {name: Entry("link", 0) for name in data.draw(st.lists(st.sampled_from([*sizes, "x", "yy"])))}
    removed = frozenset(data.draw(st.lists(st.sampled_from([*sizes, "zz"]))))
    wanted = {name: entry for name, entry in below.items() if name not in removed} | changed
    mine = Overlaid(base, changed, removed)
    assert list(mine.items()) == list(wanted.items())
    assert (list(mine), len(mine)) == (list(wanted), len(wanted))
    assert {name: mine[name] for name in wanted} == wanted
    assert all((name in mine) == (name in wanted) for name in {*sizes, "x", "zz"})


def test_what_rows_share_is_kept_once_and_beyond_some_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("verifier.store.shared._MOST", 2)
    shared, values = Shared(), [(str(number), number) for number in range(1000, 1005)]
    numbers = [shared.number(value) for value in values]
    assert numbers[:2] == [0, 1]
    assert [shared.number(value) for value in values[:2]] == [0, 1]
    assert [shared.value(number) for number in numbers] == values


def test_digests_are_kept_by_name() -> None:
    names = Names[Entry](tuple, Entry._make)
    for name in "abcdef":
        names.add(name, Entry("file", 1))
    digests = Digests(names)
    digests.keep("e", "5" * 64)
    assert [digests.get(name) for name in "aefg"] == [None, "5" * 64, None, None]


def test_nothing_lies_in_the_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever ends the process, there is no name that could be left behind."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    kept = Disk()
    kept.put(b"x" * 2**20)
    assert kept.get(2, 5) == b"xxx"
    assert list(tmp_path.iterdir()) == []


def full(*_: object) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    said = (
        f"expected room for temporary files, got No space left on device in {tmp_path};"
        " free some, or name another folder in TMPDIR"
    )
    kept = Disk()
    monkeypatch.setattr("os.write", full)
    monkeypatch.setattr("os.pwrite", full)
    for attempt in (
        lambda: kept.put(b"x" * 2**20),
        lambda: kept.write_at(0, b"x"),
        lambda: Written(b"y" * 2**20 for _ in range(1024)),
        lambda: list(Rows([str(number) * 100 for number in range(2000)], same, str)),
    ):
        with pytest.raises(NoRoomError) as fault:
            attempt()
        assert str(fault.value) == said


def test_a_temporary_folder_that_is_none_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    monkeypatch.setattr(tempfile, "tempdir", str(gone))
    with pytest.raises(NoRoomError) as fault:
        Disk()
    assert str(fault.value) == (
        f"expected room for temporary files, got No such file or directory in {gone};"
        " free some, or name another folder in TMPDIR"
    )
