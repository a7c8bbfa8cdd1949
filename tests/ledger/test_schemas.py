"""The committed JSON Schemas are the models', and the committed documents fit them."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from ledger import schemas, strict_yaml
from ledger.claim import Ledger
from ledger.fault import FaultsError
from ledger.model import read_yaml
from ledger.plan import Plan

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", sorted(schemas.MODELS))
def test_committed_schema_is_the_models(name: str) -> None:
    """`python -m ledger.schemas` writes them anew."""
    assert (schemas.FOLDER / f"{name}.schema.json").read_text(encoding="utf-8") == schemas.schema(name)


def test_no_other_schema_is_committed() -> None:
    assert sorted(path.name for path in schemas.FOLDER.iterdir()) == sorted(
        f"{n}.schema.json" for n in schemas.MODELS
    )


def _validate(name: str, value: Any) -> None:
    schema = json.loads(schemas.schema(name))
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator(schema).validate(value)


@pytest.mark.parametrize("path", sorted((ROOT / "plans").glob("*.yaml")), ids=lambda path: path.name)
def test_committed_plans_fit(path: Path) -> None:
    document = strict_yaml.load(path.read_bytes(), name=path.name)
    read_yaml(Plan, document, name=path.name)
    _validate("plan", document.data)


@pytest.mark.parametrize("path", sorted((ROOT / "ledger/claims").glob("*.yaml")), ids=lambda path: path.name)
def test_committed_ledgers_fit(path: Path) -> None:
    document = strict_yaml.load(path.read_bytes(), name=path.name)
    read_yaml(Ledger, document, name=path.name)
    _validate("ledger", document.data)


CLAIM = """\
schema_version: 1
name: x
title: t
claims:
  - id: C01
    statement: s
    scope: s
    kind: causal
    assumptions: []
    in_simulation: measured
    delivered: []
    outcome:
      - {kind: separate-cohorts}
    control: []
    known_bad: null
non_claims: [all else]
mutations:
  - {id: M1, operation: marker-removed, cell: a, history: H0, replicate: 1, level: records, code: V407}
"""


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            ("kind: structural", "kind: guess"),
            "x.yaml:8: claims[0].kind: expected 'causal' or 'structural', got 'guess'",
        ),
        (
            ("{kind: separate-cohorts}", "{kind: rejects, mutations: []}"),
            "x.yaml:13: claims[0].outcome[0].mutations: expected 1 or more items, got 0",
        ),
        (("non_claims: [all else]", "non_claims: [3]"), "x.yaml:16: non_claims[0]: expected text, got 3"),
    ],
    ids=["a fault in the only item", "no item", "a fault in the only word"],
)
def test_a_list_is_not_called_too_short_for_the_fault_of_an_item(
    change: tuple[str, str], message: str
) -> None:
    """Pydantic counts the items that it accepted."""
    text = CLAIM.replace("kind: causal", "kind: structural").replace(*change)
    with pytest.raises(FaultsError) as caught:
        read_yaml(Ledger, strict_yaml.load(text.encode(), name="x.yaml"), name="x.yaml")
    assert str(caught.value) == message


def test_what_is_there_twice_is_told_where_it_is_there_again() -> None:
    """And what is cited and never declared, where it is cited; all of them at once."""
    text = CLAIM.replace("kind: causal", "kind: structural")
    claim = text[text.index("  - id: C") : text.index("non_claims:")]
    again = claim.replace("kind: separate-cohorts", "kind: rejects, mutations: [M1, M9]")
    mutation = text[text.index("  - {id: M1") :]
    text = text.replace(claim, claim + again).replace(mutation, mutation + mutation)
    with pytest.raises(FaultsError) as caught:
        read_yaml(Ledger, strict_yaml.load(text.encode(), name="x.yaml"), name="x.yaml")
    assert str(caught.value).splitlines() == [
        "x.yaml:16: claims[1].id: expected each claim id once, got C01 again; give it another",
        "x.yaml:24: claims[1].outcome[0].mutations[1]: C01: expected mutations that are declared (M1), got M9; declare it under `mutations`, or leave it out here",
        "x.yaml:30: mutations[1].id: expected each mutation id once, got M1 again; give it another",
    ]


def test_an_arm_is_not_compared_with_itself() -> None:
    same = "kind: equal, left: {cell: a, history: H0}, right: {cell: a, history: H0}, surfaces: [w13]"
    text = CLAIM.replace("kind: causal", "kind: structural").replace("kind: separate-cohorts", same)
    with pytest.raises(FaultsError) as caught:
        read_yaml(Ledger, strict_yaml.load(text.encode(), name="x.yaml"), name="x.yaml")
    said = "x.yaml:13: claims[0].outcome[0].right: expected two arms to compare, got a under H0 twice; name another here"
    assert said in str(caught.value).splitlines()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            ("", ""),
            "x.yaml:8: claims[0].kind: expected delivered, control and known_bad in a causal claim, got none in delivered, control, known_bad; add what is lacking, or call the claim structural",
        ),
        (
            ("kind: causal", "kind: guess"),
            "x.yaml:8: claims[0].kind: expected 'causal' or 'structural', got 'guess'",
        ),
        (
            ("assumptions: []", "assumptions: [U3, U2]"),
            "x.yaml:9: claims[0].assumptions: expected assumptions in ascending order without repeats, got U3, U2",
        ),
        (
            ("separate-cohorts", "vibes"),
            "x.yaml:13: claims[0].outcome[0]: expected 'repeats', 'equal', 'differs', 'membership-equal', 'membership-exchanged', 'schedule-class', 'delivered', 'cardinality', 'separate-cohorts', 'anchored', 'rejects', got 'vibes'",
        ),
        (
            ("code: V407}", "code: V407,\n     donor: {cell: a, history: H0}}"),
            "x.yaml:19: mutations[0].donor: expected no donor with marker-removed, got one; take it out, or say surfaces-replaced",
        ),
        (
            ("{id: M1, operation: marker-removed", "{id: M1,\n     operation: surfaces-replaced"),
            "x.yaml:19: mutations[0].operation: expected a donor with surfaces-replaced, found none; add one, as `donor: {cell: ..., history: ...}`",
        ),
        (
            ("code: V407", "code: W7"),
            "x.yaml:18: mutations[0].code: expected text of the form ^V[0-9]{3}$, got 'W7'",
        ),
        (("replicate: 1", "replicate: 0"), "x.yaml:18: mutations[0].replicate: expected at least 1, got 0"),
        (("level: records, ", ""), "x.yaml:18: mutations[0].level: expected this key, found none"),
        (
            ("name: x", "nmae: x"),
            "x.yaml:1: name: expected this key, found none\nx.yaml:2: nmae: expected no such key; it is unknown here, check its spelling",
        ),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_faulty_ledger_says_where(change: tuple[str, str], message: str) -> None:
    text = CLAIM.replace(*change) if change[0] else CLAIM
    with pytest.raises(FaultsError) as caught:
        read_yaml(Ledger, strict_yaml.load(text.encode(), name="x.yaml"), name="x.yaml")
    lines = str(caught.value).splitlines()
    assert all(line in lines for line in message.splitlines()), lines
