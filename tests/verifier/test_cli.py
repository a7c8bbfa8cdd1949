"""The command line: exit codes, forms of the report, messages, and what it imports."""

import errno
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ledger.canonical import sha256
from ledger.claim import Level
from ledger.verdict import Report
from tests.verifier import forge
from tests.verifier.edits import H0
from tests.verifier.forge import Files, Parts
from verifier.__main__ import cli, main
from verifier.render import text
from verifier.report import check

KEYS = [
    "verdict",
    "engine",
    "evidence",
    "level",
    "plan",
    "claims",
    "non_claims",
    "findings",
    "checked",
    "not_checked",
]


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """The program as a user starts it."""
    argv = [sys.executable, "-m", "verifier", *map(str, arguments)]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)


def quick(*arguments: str | Path) -> Result:
    """The command inside this process; its exit code is its return value."""
    return CliRunner().invoke(cli, list(map(str, arguments)), standalone_mode=False)


def test_json_is_one_object(good_folder: Path) -> None:
    """Exactly the documented keys, and the ledger's model accepts it."""
    done = run("check", good_folder, "--format", "json", "--level", "raw")
    assert (done.returncode, done.stderr) == (0, "")
    assert [key for key in json.loads(done.stdout) if key != "schema_version"] == KEYS
    report = Report.model_validate_json(done.stdout)
    assert (report.verdict, report.engine, report.evidence, report.level) == (
        "supported",
        "simulated",
        "simulated",
        "raw",
    )


def test_text_says_what_matters(good_folder: Path) -> None:
    """Verdict first, SIMULATED, claims with scope, non-claims, what was not checked."""
    said = quick("check", good_folder).output
    lock = sha256((good_folder / "plan.lock").read_bytes())
    assert said.startswith(
        f"""verdict: SUPPORTED   (level records)
evidence: SIMULATED - recomputed arithmetic of the kernel on a CPU; no GPU took part
bits: as captured, not recomputed at this level; --level reexecute recomputes them
plan: self-declared, and the claims with it
      The bundle itself says what it ran and claims: anchor it with --plan FILE, or with
      --expect-plan and the sha256 of the lock that you froze.
lock: sha256 {lock}
signature: unsigned
"""
    )
    for words in (
        "C01  SUPPORTED  History selects the trajectory",
        "scope: One synthetic layer",
        "follows from the model",
        "Not claimed, whatever the verdicts:",
        "  - One instruction as the cause.",
        "C11: needs --level raw",
        "Findings: none",
    ):
        assert words in said
    assert said.count("scope:") == 1


def test_text_says_what_an_anchor_holds(good_folder: Path) -> None:
    """A plan's digest anchors no claim: an edited one must not pass for anchored."""
    plan, lock = (sha256((good_folder / name).read_bytes()) for name in ("plan.yaml", "plan.lock"))
    said = {
        anchor: quick("check", good_folder, "--expect-plan", anchor).output.splitlines()[3:6]
        for anchor in (plan, lock)
    }
    assert said == {
        plan: [
            "plan: anchored; claims: self-declared",
            "      A plan's digest says nothing of its claims: anchor it with --plan FILE, or with --expect-plan",
            "      and the sha256 of the lock that you froze.",
        ],
        lock: ["plan: anchored, and the claims with it", f"lock: sha256 {lock}", "signature: unsigned"],
    }


@pytest.mark.parametrize(
    ("evidence", "level", "said"),
    [
        (
            "simulated",
            "raw",
            ["bits: as captured, not recomputed at this level; --level reexecute recomputes them"],
        ),
        (
            "gpu",
            "records",
            [
                "bits: as captured, not recomputed at this level; --level reexecute says whether the simulated"
                " model agrees"
            ],
        ),
        (None, "records", ["bits: as captured, not recomputed at this level"]),
        ("simulated", "reexecute", []),
    ],
)
def test_text_says_whether_bits_were_recomputed(
    good_folder: Path, evidence: str | None, level: Level, said: list[str]
) -> None:
    checked = check(good_folder, level="records", anchor=None)
    report = checked.report.model_copy(update={"evidence": evidence, "level": level})
    lines = text(replace(checked, report=report)).splitlines()
    assert [line for line in lines if line.startswith("bits: ")] == said


def test_verbose_says_what_decided_each_claim_and_all_that_went_unchecked(good_folder: Path) -> None:
    said = quick("check", good_folder, "--verbose").output
    for words in (
        "delivered: supported: native under H0, H1",
        "known-bad: supported:",
        "V801: needs --level raw",
    ):
        assert words in said
    assert said.count("\n     scope:") == 11


def test_text_of_a_finding(parts: Parts, tmp_path: Path) -> None:
    """Code, place, what it says, expected, got, and the claims that it sinks."""
    parts.records[H0]["process"]["environment"]["TZ"] = "CET\x1b[31m"
    result = quick("check", forge.write(forge.seal(parts), tmp_path / "bundle"))
    assert result.return_value == 2
    finding = result.output[result.output.index("Findings: 1") :]
    assert finding.splitlines()[1:6] == [
        f"  V406 {H0}:process.environment.TZ",
        "       a process did not have the plan's environment, hash seed or isolation flags",
        "       expected UTC",
        "       got CET\\x1b[31m",
        "       sinks C01, C02, C03, C04, C05, C06, C07, C08, C09, C10, C11 (malformed)",
    ]
    assert "\x1b" not in result.output


def test_exit_codes(good_files: Files, tmp_path: Path, good: Parts) -> None:
    """0 supported, 1 refuted, 2 malformed, 3 missing; 2 wins over 3."""
    good_one = forge.write(good_files, tmp_path / "good")
    assert quick("check", good_one).return_value == 0
    shutil.copytree(good_one, tmp_path / "missing")
    (tmp_path / "missing" / H0).unlink()
    assert quick("check", tmp_path / "missing").return_value == 3
    (tmp_path / "missing" / "build.json").write_bytes(b"{}")
    assert quick("check", tmp_path / "missing").return_value == 2
    assert quick("check", tmp_path / "nothing").return_value == 3
    assert quick("check", good_one / "plan.yaml").return_value == 3
    weak = good.copy()
    weak.ledger = weak.ledger.replace(b"kind: equal", b"kind: differs", 1)
    forge.relink(weak)
    assert quick("check", forge.write(forge.seal(weak), tmp_path / "weak")).return_value == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "Usage:"),
        (("check",), "Missing argument 'BUNDLE'"),
        (("check", "x", "--level", "gpu"), "'gpu' is not one of 'records', 'raw'"),
        (
            ("check", "x", "--expect-plan", "abc"),
            "--expect-plan: expected 64 lower-case hexadecimal digits, got 'abc'",
        ),
        (("check", "x", "--plan", "/no/such"), "File '/no/such' does not exist"),
        (
            ("check", "x", "--plan", __file__, "--expect-plan", "0" * 64),
            "expected one of --expect-plan and --plan, got both",
        ),
        (("judge", "x"), "No such command 'judge'"),
        (("mutate", "/no/such"), "Directory '/no/such' does not exist"),
        (("check", ""), "Invalid value for 'BUNDLE': expected a folder or a file, got an empty text"),
        (("mutate", ""), "Invalid value for 'BUNDLE': expected a folder or a file, got an empty text"),
        (("diff", __file__, ""), "Invalid value for 'OTHER': expected a folder or a file, got an empty text"),
    ],
)
def test_usage_is_4(
    arguments: tuple[str, ...],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Mistakes of the caller are neither evidence nor a verdict."""
    monkeypatch.setattr(sys, "argv", ["verifier", *arguments])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 4
    said = capsys.readouterr()
    assert message in said.err + said.out


def test_what_is_no_bundle_is_named(good_folder: Path, tmp_path: Path) -> None:
    """Which of the two to compare; and where to learn what is wrong."""
    fault = CliRunner().invoke(cli, ["diff", str(good_folder), str(tmp_path)], standalone_mode=False)
    assert (fault.return_value, fault.stderr) == (
        3,
        f"expected two bundles, got an empty folder at {tmp_path}; check the path\n",
    )
    fault = CliRunner().invoke(cli, ["mutate", str(tmp_path)], standalone_mode=False)
    assert (fault.return_value, fault.stderr) == (
        3,
        "expected a bundle that the mutations can be made from, got: there is no readable ledger.yaml; `verifier"
        " check` says what is wrong\n",
    )
    fault = CliRunner().invoke(cli, ["mutate", str(tmp_path), "--sweep"], standalone_mode=False)
    assert (fault.return_value, fault.stderr) == (
        3,
        "expected a bundle without findings, got V201 bundle.json; `verifier check` says what is wrong\n",
    )


def test_a_place_that_cannot_be_written_is_named(
    good_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["verifier", "mutate", str(good_folder), "--out", "/proc/no/such"])
    with pytest.raises(SystemExit) as left:
        main()
    assert (left.value.code, capsys.readouterr().err) == (
        4,
        "--out: /proc/no/such cannot be written: No such file or directory; name another place\n",
    )


class FullFile(io.BytesIO):
    """A temporary file on a disk without room: found when it is written, or when what was written is kept."""

    def __init__(self, *, late: bool) -> None:
        super().__init__()
        self._late = late

    def write(self, data: Any) -> int:
        """As a file with a buffer or one without."""
        if not self._late:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(data)

    def flush(self) -> None:
        """Nothing to keep at the end of the test itself."""
        if self._late and self.getvalue():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def close(self) -> None:
        """As the context ends."""
        self._late = False
        super().close()


@pytest.mark.parametrize("late", [False, True], ids=["at once", "when it is flushed"])
def test_no_room_to_unpack_is_no_fault_of_an_archive(
    good_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *,
    late: bool,
) -> None:
    """It says nothing of the evidence: exit 4, with the folder and the way out."""
    path = shutil.make_archive(str(tmp_path / "b"), "zip", good_folder)
    monkeypatch.setattr("verifier.archive.tempfile.TemporaryFile", lambda: FullFile(late=late))
    monkeypatch.setattr(sys, "argv", ["verifier", "check", path])
    with pytest.raises(SystemExit) as left:
        main()
    assert (left.value.code, capsys.readouterr().err) == (
        4,
        f"cannot go on: {tempfile.gettempdir()}: No space left on device for what an archive holds; name a folder"
        " with room in TMPDIR\n",
    )


def test_help_and_version() -> None:
    """Both are worth reading."""
    help_text = run("--help")
    assert help_text.returncode == 0
    assert "Exit codes: 0 every checked claim supported; 1 a claim refuted" in " ".join(
        help_text.stdout.split()
    )
    assert "anchors the bundle" in " ".join(run("check", "--help").stdout.split())
    assert run("--version").stdout == "verifier 0.1.0\n"


def test_plan_file_anchors(good_folder: Path, tmp_path: Path) -> None:
    """--plan FILE takes the digest of a file of one's own."""
    result = quick("check", good_folder, "--plan", good_folder / "plan.yaml", "--format", "json")
    assert (result.return_value, json.loads(result.output)["plan"]["identity"]) == (0, "anchored")
    other = tmp_path / "plan.yaml"
    other.write_bytes((forge.ROOT / "plans" / "route_block.yaml").read_bytes())
    result = quick("check", good_folder, "--plan", other, "--format", "json")
    assert [f["code"] for f in json.loads(result.output)["findings"]] == ["V301"]


def test_mutate_writes_the_seven(good_folder: Path, tmp_path: Path) -> None:
    """Each is a bundle that the verifier refuses with the code its ledger declares; the good one stays."""
    before = {path: path.read_bytes() for path in good_folder.rglob("*") if path.is_file()}
    out = tmp_path / "mutated"
    result = quick("mutate", good_folder, "--out", out)
    assert result.return_value == 0
    assert len(result.output.splitlines()) == 7
    want = {"M-route-duplicated": "V501", "M-tensor-bit": "V801", "M-surface-digest": "V804"}
    assert len(list(out.iterdir())) == 7
    for name, code in want.items():
        checked = quick("check", out / name, "--level", "raw", "--format", "json")
        assert checked.return_value == 2
        assert code in {f["code"] for f in json.loads(checked.output)["findings"]}
    assert before == {path: path.read_bytes() for path in good_folder.rglob("*") if path.is_file()}
    again = run("mutate", good_folder, "--out", out)
    assert again.returncode == 4
    assert "exists; give a folder that does not, with --out" in again.stderr


def test_mutate_says_what_it_lacks(good_files: Files, tmp_path: Path) -> None:
    """A bundle without captures has no bit to flip."""
    files = {path: data for path, data in good_files.items() if not path.startswith("objects/")}
    result = run("mutate", forge.write(files, tmp_path / "bundle"), "--out", tmp_path / "out")
    assert result.returncode == 3
    assert "got: objects/" in result.stderr


_IMPORTS = """
import sys
from verifier.__main__ import main
try:
    main()
finally:
    print(sorted({name.partition(".")[0] for name in sys.modules}), file=sys.stderr)
"""


def test_what_the_program_imports(good_folder: Path) -> None:
    """Neither numpy nor torch nor safetensors nor mechanism, whatever is installed."""
    argv = [sys.executable, "-c", _IMPORTS, "check", str(good_folder), "--level", "raw"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    loaded = done.stderr
    assert "'verifier'" in loaded
    for name in ("numpy", "torch", "safetensors", "mechanism", "rich", "hypothesis"):
        assert f"'{name}'" not in loaded


@pytest.mark.slow
def test_memory(good_folder: Path) -> None:
    """At raw, mutations included: at most 200 MB. How long it takes is for `make bench`."""
    child = subprocess.Popen(
        [sys.executable, "-m", "verifier", "check", str(good_folder), "--level", "raw"],
        stdout=subprocess.DEVNULL,
    )
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0
    assert usage.ru_maxrss < 200 * 1024  # kilobytes on Linux
