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
from tests.verifier import forge
from verifier.__main__ import cli

SMALL = Path(__file__).resolve().parents[1] / "evidence" / "base"
SCHEMA = Path(__file__).resolve().parents[2] / "ledger" / "schemas" / "report.schema.json"


@pytest.fixture(scope="module")
def bad(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small bundle with a file too many, whose name would end an attribute."""
    files = {p.relative_to(SMALL).as_posix(): p.read_bytes() for p in SMALL.rglob("*") if p.is_file()}
    return forge.write({**files, '<"&>': b"x"}, tmp_path_factory.mktemp("bad") / "bundle")


def said(folder: Path, form: str) -> str:
    return CliRunner().invoke(cli, ["check", str(folder), "--format", form], standalone_mode=False).output


@pytest.mark.parametrize("bundle", ["good", "bad", "nothing"])
def test_json_keeps_its_committed_schema(bundle: str, bad: Path, tmp_path: Path) -> None:
    folder = {"good": SMALL, "bad": bad, "nothing": tmp_path}[bundle]
    jsonschema.validate(json.loads(said(folder, "json")), json.loads(SCHEMA.read_bytes()))


def test_junit(bad: Path) -> None:
    """Claims and findings as test cases; the counts are those of the cases."""
    root = ET.fromstring(said(SMALL, "junit"))
    assert (root.get("tests"), root.get("failures")) == ("5", "0")
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
    assert json.loads(said(SMALL, "sarif"))["runs"][0]["results"] == []


def test_the_action_runs_the_verifier() -> None:
    """A composite action; inputs reach the shell as environment only."""
    action = yaml.safe_load((Path(verifier.__file__).parent / "action.yml").read_bytes())
    assert action["runs"]["using"] == "composite"
    scripts = [step["run"] for step in action["runs"]["steps"]]
    assert not [script for script in scripts if "${{" in script]
    assert "python3 -m verifier check" in scripts[-1]
