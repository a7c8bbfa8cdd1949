"""Try a verifier on every case: `python tests/evidence/run.py [--case NAME]... -- COMMAND...`. Standard library only.

COMMAND is started as `COMMAND check PATH --format json --level LEVEL [--expect-plan SHA256] [--key FILE]`. It must
exit with the case's code and print one JSON object whose `findings` are the case's, as a list of `code` and `where`.
Exits 0 if all cases agree, 1 if one does not.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
Expected = dict[str, Any]
#: Exit code, and findings as sorted pairs of code and where.
Answer = tuple[int, list[list[str]]]

from materialise import materialise  # type: ignore[import-not-found]  # noqa: E402 - found beside this file wherever it is started


def arguments(path: Path, expected: Expected) -> list[str]:
    """What a verifier is asked about a case."""
    words = ["check", str(path), "--format", "json", "--level", expected["level"]]
    if expected["expect_plan"]:
        words += ["--expect-plan", expected["expect_plan"]]
    if expected["key"]:
        words += ["--key", str(HERE / expected["key"])]
    return words


def answer(command: list[str], case: Path, expected: Expected, limit: float) -> Answer:
    """(exit code, sorted findings) of a verifier on a case."""
    with tempfile.TemporaryDirectory(prefix="evidence-") as name:
        path = materialise(case, Path(name) / "bundle")
        done = subprocess.run(
            command + arguments(path, expected), capture_output=True, timeout=limit, check=False
        )
    try:
        found = [[item["code"], item["where"]] for item in json.loads(done.stdout)["findings"]]
    except (ValueError, KeyError, TypeError) as fault:
        found = [["no report", f"{type(fault).__name__}: {done.stderr.decode('utf-8', 'replace')[-300:]}"]]
    return done.returncode, sorted(found)


def wanted(expected: Expected) -> Answer:
    return expected["exit_code"], sorted([item["code"], item["where"]] for item in expected["findings"])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--case", action="append", help="only this case; may be given again")
    parser.add_argument("--skip-level", action="append", default=[], help="leave out the cases of a level")
    parser.add_argument("--limit", type=float, default=120, help="seconds per case")
    parser.add_argument("command", nargs="+", help="the verifier, after --")
    asked = parser.parse_args()
    cases = sorted(path for path in (HERE / "cases").iterdir() if not asked.case or path.name in asked.case)
    tried = wrong = 0
    for case in cases:
        expected = json.loads((case / "expected.json").read_text(encoding="utf-8"))
        if expected["level"] in asked.skip_level:
            continue
        tried += 1
        got, want = answer(asked.command, case, expected, asked.limit), wanted(expected)
        if got != want:
            wrong += 1
            print(f"{case.name}: expected exit code {want[0]} and {want[1]},\n  got {got[0]} and {got[1]}")
    print(f"{tried} cases, {wrong} wrong")
    sys.exit(bool(wrong or not tried))


if __name__ == "__main__":
    main()
