"""The log alone: chained, read back whatever was cut, refused when it was changed."""

import json
import os
from pathlib import Path

import pytest

from ledger.bundle import AttemptEnded, AttemptStarted, StderrKept
from ledger.canonical import NO_DIGEST, sha256
from mechanism.campaign.attempts import Log, LogWriter, mend, read_log
from mechanism.errors import CampaignError

EMPTY = Log(events=(), whole=b"", torn=b"")


def started(attempt: int) -> AttemptStarted:
    return AttemptStarted(
        event="started",
        previous=NO_DIGEST,
        attempt=attempt,
        phase="p",
        cell="c",
        history="H0",
        replicate=attempt,
        nonce=f"{attempt:032x}",
        time_us=attempt,
    )


def ended(attempt: int) -> AttemptEnded:
    return AttemptEnded(
        event="ended",
        previous=NO_DIGEST,
        attempt=attempt,
        outcome="killed",
        reason="ended by SIGSEGV (signal 11), “so”",
        exit_code=None,
        signal=11,
        descendants_killed=0,
        stderr=StderrKept(size=3, sha256="0" * 64, tail="é\n\0"),
        record=None,
        time_us=attempt,
    )


def written(path: Path) -> bytes:
    writer = LogWriter(path, EMPTY)
    for attempt in (1, 2, 3):
        writer.append(started(attempt))
        writer.append(ended(attempt))
    writer.close()
    return path.read_bytes()


def test_lines_are_chained_and_numbered(tmp_path: Path) -> None:
    lines = written(tmp_path / "log").splitlines()
    assert [json.loads(line)["previous"] for line in lines] == [NO_DIGEST, *(sha256(x) for x in lines[:-1])]
    log = read_log(b"\n".join(lines) + b"\n", name="log")
    assert (len(log.events), log.torn, log.next_attempt, log.open_attempts()) == (6, b"", 4, ())
    assert log.last == sha256(lines[-1])


def test_log_cut_at_every_byte_is_read(tmp_path: Path) -> None:
    """Case C4: what is whole is read, what is torn is told, together they are all there was."""
    data = written(tmp_path / "log")
    for cut in range(len(data) + 1):
        log = read_log(data[:cut], name="log")
        assert log.whole + log.torn == data[:cut]
        assert len(log.events) == data[:cut].count(b"\n")
        assert not log.whole or log.whole.endswith(b"\n")
        assert len(log.open_attempts()) == len(log.events) % 2


def test_log_whose_tail_never_reached_the_disk(tmp_path: Path) -> None:
    """A file system may give the length of the last write without its bytes."""
    data = written(tmp_path / "log")
    head, tail = data[:-200], data[-200:]
    assert b"\n" not in tail[:-1]
    for lost in (bytes(200), bytes(199) + b"\n"):
        assert read_log(head + lost, name="log").torn.endswith(lost)


def test_mended_log_tells_what_was_torn_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "log"
    data = written(path)
    for cut in range(0, len(data), 41):
        path.write_bytes(data[:cut])
        log = mend(path, read_log(data[:cut], name="log"), time_us=99)
        writer = LogWriter(path, log)
        writer.append(started(9))
        writer.close()
        again = read_log(path.read_bytes(), name="log")
        resumed = json.loads(path.read_bytes().splitlines()[-2])
        assert (resumed["event"], again.torn, again.next_attempt) == ("resumed", b"", 10)
        torn = data[:cut].rpartition(b"\n")[2]
        assert resumed["torn"] == torn.decode("utf-8", "backslashreplace")


@pytest.mark.parametrize(
    ("number", "old", "new", "why"),
    [
        (
            2,
            b'"signal":11',
            b'"signal":12',
            "log:3: the log was changed after it was written: expected previous ",
        ),
        (
            1,
            b'"cell":"c"',
            b'"cell":"d"',
            "log:2: the log was changed after it was written: expected previous ",
        ),
        (
            4,
            b'"outcome":"killed"',
            b'"outcome":"fine"',
            "log:4: the log was changed after it was written: it is not",
        ),
        (
            3,
            b'"event"',
            b'"evil"',
            "log:3: the log was changed after it was written: it is not an event of a log",
        ),
    ],
)
def test_changed_log_is_refused(tmp_path: Path, number: int, old: bytes, new: bytes, why: str) -> None:
    lines = written(tmp_path / "log").splitlines(keepends=True)
    assert old in lines[number - 1]
    lines[number - 1] = lines[number - 1].replace(old, new)
    with pytest.raises(CampaignError) as refusal:
        read_log(b"".join(lines), name="log")
    assert str(refusal.value).startswith(why)
    assert str(refusal.value).endswith("; put it back from a copy, or run the plan again into another folder")


def test_line_taken_out_is_noticed(tmp_path: Path) -> None:
    lines = written(tmp_path / "log").splitlines(keepends=True)
    with pytest.raises(CampaignError, match=r"log:3: .*expected previous"):
        read_log(b"".join(lines[:2] + lines[3:]), name="log")


def test_failed_write_leaves_no_part_of_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that fills up in the middle of a line: the log still ends with the line before."""
    path = tmp_path / "log"
    writer = LogWriter(path, EMPTY)
    writer.append(started(1))
    good = path.read_bytes()
    real = os.write
    calls = iter([True, False])

    def full(descriptor: int, data: bytes) -> int:
        if next(calls):
            return real(descriptor, bytes(data)[:50])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("mechanism.campaign.attempts.os.write", full)
    with pytest.raises(OSError, match="No space left on device") as fault:
        writer.append(ended(1))
    monkeypatch.undo()
    assert fault.value.filename == str(path)
    assert path.read_bytes() == good
    writer.append(ended(1))
    writer.close()
    assert len(read_log(path.read_bytes(), name="log").events) == 2
