"""The forms that machines read, each valid, each saying what the report says; the action that runs it."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import jsonschema
import pytest
import yaml
from click.testing import CliRunner

import verifier
from ledger.canonical import sha256
from tests.verifier import forge
from verifier.__main__ import cli

SMALL = Path(__file__).resolve().parents[1] / "evidence" / "base"
SCHEMA = Path(__file__).resolve().parents[2] / "ledger" / "schemas" / "report.schema.json"


@pytest.fixture(scope="module")
def bad(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small bundle with a file too many, whose name would end an attribute."""
    files = {p.relative_to(SMALL).as_posix(): p.read_bytes() for p in SMALL.rglob("*") if p.is_file()}
    return forge.write({**files, '<"&>': b"x"}, tmp_path_factory.mktemp("bad") / "bundle")


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


def closed(required: list[str], **properties: Any) -> dict[str, Any]:
    """An object as SARIF has them: these keys, some of them required, no others."""
    return {
        "type": "object",
        "additionalProperties": False,
        "required": required,
        "properties": properties,
    }


TEXT = {"type": "string"}
#: What the 2.1.0 schema says of the parts that are written here; it lets no object have other keys than its own.
MESSAGE = closed(["text"], text={**TEXT, "minLength": 1})
ARTIFACT = closed(["uri"], uri={**TEXT, "format": "uri-reference", "pattern": "^[A-Za-z0-9._~%/-]+$"})
LOCATION = closed(
    ["physicalLocation"], physicalLocation=closed(["artifactLocation"], artifactLocation=ARTIFACT)
)
RULE = closed(["id"], id={**TEXT, "pattern": "^V[0-9]{3}$"}, shortDescription=MESSAGE)
RESULT = closed(
    ["message"],
    ruleId=TEXT,
    ruleIndex={"type": "integer", "minimum": -1},
    level={"enum": ["none", "note", "warning", "error"]},
    message=MESSAGE,
    locations={"type": "array", "items": LOCATION},
)
DRIVER = closed(["name"], name=TEXT, rules={"type": "array", "uniqueItems": True, "items": RULE})
RUN = closed(
    ["tool"],
    tool=closed(["driver"], driver=DRIVER),
    results={"type": "array", "items": RESULT},
    properties={"type": "object"},
)
SARIF = closed(
    ["version", "runs"],
    **{
        "$schema": {
            "const": "https://docs.oasis-open.org/sarif/sarif/v2.1.0/os/schemas/sarif-schema-2.1.0.json"
        }
    },
    version={"const": "2.1.0"},
    runs={"type": "array", "items": RUN},
)


@pytest.mark.parametrize("bundle", ["good", "bad", "nothing", "gone"])
def test_sarif_has_the_parts_that_its_schema_wants(bundle: str, bad: Path, tmp_path: Path) -> None:
    """And a rule for every result."""
    folder = {"good": SMALL, "bad": bad, "nothing": tmp_path, "gone": tmp_path / "gone"}[bundle]
    log = json.loads(said(folder, "sarif"))
    jsonschema.validate(log, SARIF)
    (run,) = log["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert [rules[item["ruleIndex"]]["id"] for item in run["results"]] == [
        r["ruleId"] for r in run["results"]
    ]
    assert bool(run["results"]) == (bundle != "good")


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


def test_the_action_runs_the_verifier() -> None:
    """A composite action; inputs reach the shell as environment only."""
    action = yaml.safe_load((Path(verifier.__file__).parent / "action.yml").read_bytes())
    assert action["runs"]["using"] == "composite"
    scripts = [step["run"] for step in action["runs"]["steps"]]
    assert not [script for script in scripts if "${{" in script]
    assert "python3 -m verifier check" in scripts[-1]
