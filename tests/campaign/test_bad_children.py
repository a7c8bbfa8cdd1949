"""Children that fail in every way: each is an attempt with its reason, none a valid process, none retried."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.campaign.campaign_setup import FAKE, QUICK, ends, read_events, run, set_fakes

Prepare = Callable[..., Path]
NATIVE = """
phases:
  - name: qualification
    cells:
      - {name: native, alignment: constructed, histories: [H0]}
"""
NATIVE_AND_GRID = NATIVE + "      - {name: forced, alignment: own, histories: [H0], grid: 12}\n"

CASES = {
    "exit=3": ("failed", "exit code 3: nothing on stderr"),
    "signal=11": ("killed", "ended by SIGSEGV (signal 11)"),
    "signal=9": ("killed", "ended by SIGKILL (signal 9)"),
    "crash": ("failed", "exit code 1: RuntimeError: no reason, in $BUNDLE/staging/1/request.json under "),
    "no-record": ("invalid", "it exited 0 without a record"),
    "exit=0": ("invalid", "it exited 0 without a record"),
    "two-records": (
        "invalid",
        "expected one record from one process, got 2:"
        " records/qualification.native.H0.1.json, records/transfer.canonical.H0.1.json",
    ),
    "extra-file": ("invalid", "expected the files "),
    "wrong-shape": (
        "failed",
        "exit code 3: CellError: the engine did not deliver the treatment:"
        " surface w2: expected float16 (48, 128), got float16 (47, 128)",
    ),
    "other-alignment": (
        "failed",
        "exit code 3: CellError: the engine did not deliver the treatment: alignment: ",
    ),
    "edit=attempt=7": ("invalid", "records/qualification.native.H0.1.json: attempt: expected 1, got 7"),
    'edit=history="H1"': ("invalid", "records/qualification.native.H0.1.json: history: expected H0, got H1"),
    'edit=software="' + "0" * 64 + '"': (
        "invalid",
        "records/qualification.native.H0.1.json: software: expected ",
    ),
    "edit=extra=1": (
        "invalid",
        "records/qualification.native.H0.1.json: records/qualification.native.H0.1.json:1: extra: expected no"
        " such key; it is unknown here, check its spelling",
    ),
    "markers-swapped": ("invalid", "records/qualification.native.H0.1.json: markers: expected "),
    "flip-capture": ("invalid", "objects/"),
    "into-bundle": (
        "failed",
        "exit code 1: OSError: [Errno 30] Read-only file system:"
        " '$BUNDLE/records/qualification.native.H0.1.json'",
    ),
    "die-at-record": ("killed", "ended by SIGKILL (signal 9)"),
}
#: Those that an engine is needed for.
ENGINES = {"wrong-shape", "other-alignment"}


@pytest.mark.parametrize("behaviour", CASES)
def test_one_bad_child(campaign: Prepare, tmp_path: Path, behaviour: str) -> None:
    """One process is started, and the log says how it ended; nothing of it is in the bundle."""
    folder = campaign(phases=NATIVE)
    set_fakes(folder, {"*": behaviour})
    outcome, reason = CASES[behaviour]
    result = run(folder, tmp_path / "out", module=FAKE if behaviour in ENGINES else QUICK)
    events = read_events(tmp_path / "out")
    assert [event["event"] for event in events] == ["started", "ended"], "retried"
    assert (events[1]["outcome"], events[1]["record"]) == (outcome, None)
    assert events[1]["reason"].startswith(reason)
    assert (result.complete, result.valid, result.exit_code) == (False, 0, 5)
    assert result.failed == (("qualification.native.H0.1", f"{outcome}: {events[1]['reason']}"),)
    assert not list((tmp_path / "out" / "objects").iterdir())
    assert not list((tmp_path / "out" / "records").iterdir())
    assert not (tmp_path / "out" / "bundle.json").exists()


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [
        (
            "ignore-grid",
            "exit code 3: CellError: the engine did not deliver the treatment:"
            " w13.grid: expected 12, got 24; w13: slices of tile ",
        ),
        (
            "lie-about-grid",
            "exit code 3: CellError: the engine did not deliver the treatment: w13: slices of tile ",
        ),
    ],
)
def test_engine_that_ignores_the_grid(campaign: Prepare, tmp_path: Path, behaviour: str, reason: str) -> None:
    """It never yields a record, whether it admits it or not; the other cells go on."""
    folder = campaign(phases=NATIVE_AND_GRID)
    set_fakes(folder, {"forced.H0.1": behaviour})
    result = run(folder, tmp_path / "out", module=FAKE)
    assert (result.valid, result.total) == (1, 2)
    assert ends(tmp_path / "out")["forced.H0.1"]["reason"].startswith(reason)


def test_other_cells_go_on_after_a_failure(campaign: Prepare, tmp_path: Path) -> None:
    """Case C2: a forced grid that dies by signal is kept with its signal, not retried; all others run."""
    folder = campaign()
    set_fakes(folder, {"forced-grid.H1.1": "signal=11"})
    result = run(folder, tmp_path / "out")
    end = ends(tmp_path / "out")["forced-grid.H1.1"]
    assert (end["outcome"], end["signal"], end["exit_code"]) == ("killed", 11, None)
    assert (result.valid, result.total, result.exit_code) == (7, 8, 5)
    assert result.failed == (("ablation.forced-grid.H1.1", "killed: ended by SIGSEGV (signal 11)"),)


def test_donor_that_fails_holds_what_injects_it(campaign: Prepare, tmp_path: Path) -> None:
    """Cells start in the lock's order; what is behind a cell without its donor waits for a resume."""
    folder = campaign()
    set_fakes(folder, {"native.H0.1": "exit=9"})
    result = run(folder, tmp_path / "out")
    assert (
        "injects the alignment of records/qualification.native.H0.1.json, which ended without"
        in result.stopped
    )
    assert result.exit_code == 5
    set_fakes(folder, {})
    again = run(folder, tmp_path / "out", resume=True)
    assert (again.complete, again.exit_code) == (True, 0)
    started = [event for event in read_events(tmp_path / "out") if event["event"] == "started"]
    assert len(started) == 9


def test_grandchild_in_its_own_session_is_gone_before_the_next_cell(
    campaign: Prepare, tmp_path: Path
) -> None:
    """Case C1: outcome timeout, and when the next cell starts no descendant lives."""
    folder = campaign(phases=NATIVE.replace("[H0]", "[H0, H1]"), time_limit_s=4)
    place = tmp_path / "pid"
    set_fakes(folder, {"native.H0.1": f"grandchild={place}", "native.H1.1": f"grandchild={place}"})
    lived: list[bool] = []

    def observer(event: object) -> None:
        if type(event).__name__ == "CellStarted" and place.exists():
            lived.append(Path(f"/proc/{place.read_text()}").exists())

    run(folder, tmp_path / "out", jobs=1, observer=observer)
    assert lived == [False]
    end = ends(tmp_path / "out")["native.H0.1"]
    assert (end["outcome"], end["descendants_killed"]) == ("timeout", 1)
    assert end["reason"] == "stopped at its limit of 4 s by TERM"


def test_child_that_ignores_term(campaign: Prepare, tmp_path: Path) -> None:
    folder = campaign(phases=NATIVE, time_limit_s=4)
    set_fakes(folder, {"*": f"ignore-term={tmp_path / 'ready'}"})
    run(folder, tmp_path / "out")
    end = ends(tmp_path / "out")["native.H0.1"]
    assert (end["outcome"], end["signal"]) == ("timeout", 9)
    assert end["reason"] == "stopped at its limit of 4 s by KILL, since it did not heed TERM"


def test_child_that_leaves_a_process_behind(campaign: Prepare, tmp_path: Path) -> None:
    """A cold process is one process: the record is good, and is not taken."""
    folder = campaign(phases=NATIVE)
    set_fakes(folder, {"*": f"leave={tmp_path / 'pid'}"})
    run(folder, tmp_path / "out")
    end = ends(tmp_path / "out")["native.H0.1"]
    assert (end["outcome"], end["descendants_killed"]) == ("invalid", 1)
    assert end["reason"] == "it left 1 process behind, killed since"


def test_fifty_megabytes_of_stderr(campaign: Prepare, tmp_path: Path) -> None:
    folder = campaign(phases=NATIVE)
    set_fakes(folder, {"*": "flood"})
    run(folder, tmp_path / "out")
    stderr = ends(tmp_path / "out")["native.H0.1"]["stderr"]
    assert stderr["size"] == 50 * 2**20 + len("the end")
    assert (len(stderr["tail"]), stderr["tail"][-8:]) == (4000, "xthe end")
    assert (tmp_path / "out" / "attempts.jsonl").stat().st_size < 10_000


def test_no_committed_file_tells_where_it_was_made(campaign: Prepare, tmp_path: Path) -> None:
    """A traceback is full of real paths; none is kept."""
    folder = campaign(phases=NATIVE)
    set_fakes(folder, {"*": "crash"})
    run(folder, tmp_path / "out")
    tail = ends(tmp_path / "out")["native.H0.1"]["stderr"]["tail"]
    assert "$SOURCE/tests/campaign/quick_child.py" in tail
    root = str(Path(__file__).resolve().parents[2])
    for real in (root, str(tmp_path / "out"), str(Path.home()) + "/"):
        assert real not in tail


def test_other_software_stops_the_campaign(campaign: Prepare, tmp_path: Path) -> None:
    """The first valid process decides; a second identity is refused and nothing more is tried."""
    folder = campaign()
    set_fakes(folder, {"replay.H0.1": "other-software"})
    result = run(folder, tmp_path / "out", jobs=1)
    reason = ends(tmp_path / "out")["replay.H0.1"]["reason"]
    assert (
        reason == "its software is not the cohort's: expected what build.json has, got other versions (fake)"
    )
    assert result.stopped == f"{reason}; go on as it was then, or start a new run"
    assert result.exit_code == 5
    set_fakes(folder, {"*": ""})
    assert run(folder, tmp_path / "out", resume=True).complete


def test_cell_that_is_held_otherwise_stops_the_campaign(campaign: Prepare, tmp_path: Path) -> None:
    """The first valid process decides on containment as on software: the cohort shares both."""
    folder = campaign()
    set_fakes(folder, {"replay.H0.1": "otherwise-held"})
    result = run(folder, tmp_path / "out", jobs=1)
    (_, reason), *rest = result.failed
    assert not rest
    assert reason == "invalid: it was not held as the cohort was: expected network none, got host"
    assert result.stopped.endswith("; go on as it was then, or start a new run")


def test_bit_flipped_in_the_fixture_between_two_cells(
    campaign: Prepare, tmp_path: Path, built: tuple[Path, object]
) -> None:
    """Every process hashes what it maps: the second cell refuses, the first one's record stays."""
    folder = campaign(phases=NATIVE.replace("[H0]", "[H0, H1]"))
    (tensors,) = built[0].rglob("fixture.safetensors")
    good = tensors.read_bytes()

    def observer(event: object) -> None:
        if type(event).__name__ == "CellEnded":
            bad = bytearray(good)
            bad[len(bad) // 2] ^= 1
            tensors.chmod(0o644)
            tensors.write_bytes(bad)

    try:
        result = run(folder, tmp_path / "out", jobs=1, observer=observer, module=FAKE)
    finally:
        tensors.write_bytes(good)
    (_, reason), *rest = result.failed
    assert not rest
    assert result.valid == 1
    assert reason.startswith("failed: exit code 5: StoreError: $CACHE/fixture.safetensors: tensor ")
    assert ": sha256: expected " in reason
