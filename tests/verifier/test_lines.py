"""Lines read by a pattern are what the schema makes of them; what no pattern matches is left to the schema."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.bundle import MANIFEST, ManifestLine
from ledger.canonical import canonical
from tests.verifier.test_fuzz import quiet
from verifier.bundle import Listed
from verifier.library import Library, read_json
from verifier.lines import plain_attempt, plain_listed
from verifier.logs import _ATTEMPT, _event

COUNT = st.integers(0, 2**53 - 1) | st.integers(0, 12)
NAME = st.from_regex(r"\A[A-Za-z][A-Za-z0-9_-]{0,47}\Z")
SHA = st.from_regex(r"\A[0-9a-f]{64}\Z")
TEXT = st.text(max_size=8)
STEP = st.from_regex(r"\A[A-Za-z0-9_][A-Za-z0-9._-]{0,9}\Z")
LISTED = st.fixed_dictionaries(
    {"path": st.lists(STEP, min_size=1, max_size=30).map("/".join), "size": COUNT, "sha256": SHA}
)
STARTED = st.fixed_dictionaries(
    {
        "event": st.just("started"),
        "previous": SHA,
        "attempt": COUNT,
        "phase": NAME,
        "cell": NAME,
        "history": NAME,
        "replicate": COUNT,
        "nonce": st.from_regex(r"\A[0-9a-f]{32}\Z"),
        "time_us": COUNT,
    }
)
ENDED = st.fixed_dictionaries(
    {
        "event": st.just("ended"),
        "previous": SHA,
        "attempt": COUNT,
        "outcome": st.sampled_from(["valid", "valid", "valid", "failed"]),
        "reason": st.just("") | TEXT,
        "exit_code": st.just(0) | st.none() | st.integers(-9, 9),
        "signal": st.none() | st.integers(0, 65),
        "descendants_killed": COUNT,
        "stderr": st.none()
        | st.fixed_dictionaries({"sha256": SHA, "size": COUNT, "tail": st.just("") | TEXT}),
        "record": SHA | st.none(),
        "time_us": COUNT,
    }
)


def bent(data: bytes, draw: st.DataObject) -> bytes:
    """The bytes, or the same with one of them changed, doubled or left out."""
    place = draw.draw(st.integers(0, len(data) - 1))
    middle = draw.draw(
        st.sampled_from([data[place : place + 1], b"", data[place : place + 1] * 2, b"0", b"\n"])
    )
    return data[:place] + middle + data[place + 1 :]


@settings(parent=quiet(300))
@given(LISTED, st.data())
def test_a_plain_line_of_the_manifest_is_what_the_schema_reads(
    value: dict[str, Any], draw: st.DataObject
) -> None:
    for data in (whole := canonical(value) + b"\n", bent(whole, draw)):
        if (plain := plain_listed(data)) is not None:
            line, found = read_json(data[:-1], MANIFEST, ManifestLine.model_validate_json)
            assert line is not None, found
            assert plain == (line.path, Listed(line.size, line.sha256))


@settings(parent=quiet(300))
@given(STARTED | ENDED, st.data())
def test_a_plain_line_of_the_log_is_what_the_schema_reads(value: dict[str, Any], draw: st.DataObject) -> None:
    for data in (whole := canonical(value) + b"\n", bent(whole, draw)):
        if (plain := plain_attempt(data)) is not None:
            line, found = read_json(data[:-1], "attempts.jsonl", _ATTEMPT.validate_json)
            assert line is not None, found
            assert plain == (line.previous, _event(line, Library()))


def test_the_lines_of_a_good_bundle_are_plain(good_files: dict[str, bytes]) -> None:
    for path, read in (("files.jsonl", plain_listed), ("attempts.jsonl", plain_attempt)):
        for line in good_files[path].splitlines(keepends=True):
            assert read(line) is not None, line
