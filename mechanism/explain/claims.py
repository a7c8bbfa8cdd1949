"""The quick plan's claims said of another geometry: same predicates, other routes, blocks, grid, scope."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from ledger.claim import Ledger
from ledger.model import read_yaml
from ledger.strict_yaml import load
from mechanism.explain.choice import Choice
from mechanism.explain.errors import ExplainError

_TEMPLATE = "quick"
_OLD_SCOPE = "One synthetic layer of a toy geometry"
_PLAIN = re.compile(r"^[A-Za-z][A-Za-z0-9_-]*$")
_TAKEN = frozenset({"y", "yes", "n", "no", "on", "off", "true", "false", "null"})


def ledger_text(chosen: Choice, *, name: str, scope: str, assumptions: tuple[str, ...]) -> str:
    """The ledger as YAML, one predicate a line.

    Raises:
        ExplainError: The template's claims no longer say what this module adapts.
    """
    data = (files("ledger") / "claims" / f"{_TEMPLATE}.yaml").read_bytes()
    template = read_yaml(Ledger, load(data, name=_TEMPLATE), name=_TEMPLATE)
    ledger = template.model_dump(mode="json", by_alias=True)
    statements = _statements(chosen)
    for claim in ledger["claims"]:
        claim["scope"] = _replaced(claim["scope"], _OLD_SCOPE, scope)
        for old, new in statements.get(claim["id"], ()):
            claim["statement"] = _replaced(claim["statement"], old, new)
        if claim["assumptions"]:
            claim["assumptions"] = list(assumptions)
        for part in ("delivered", "outcome", "control"):
            claim[part] = [_predicate(predicate, chosen) for predicate in claim[part]]
    lines = [
        "# Claims on the geometry of a plan that `mechanism explain --write-plan` wrote",
        "schema_version: 1",
        f"name: {name}",
        "title: The route-block claims on this plan's geometry",
        "",
        "claims:",
    ]
    for claim in ledger["claims"]:
        lines += [*_claim(claim), ""]
    lines += ["non_claims:", *(f"  - {_flow(text)}" for text in ledger["non_claims"]), ""]
    lines += ["mutations:", *(f"  - {_flow(mutation)}" for mutation in ledger["mutations"])]
    return "\n".join(lines) + "\n"


def _statements(chosen: Choice) -> dict[str, list[tuple[str, str]]]:
    """Per claim, the words of the template that name its geometry, and those that name this one."""
    i, j = chosen.pair.blocks
    w2 = "differ" if chosen.pair.w2_differs else "are equal"
    return {
        "C04": [("routes 6 and 9", "routes {} and {}".format(*chosen.within))],
        "C05": [
            ("routes 20 and 37", "routes {} and {}".format(*chosen.boundary)),
            ("padded blocks 7 and 8", f"padded blocks {i} and {j}"),
        ],
        "C06": [
            ("Padded blocks 7 and 8", f"Padded blocks {i} and {j}"),
            (
                "differ in schedule class at W13, direct against split",
                f"are cut differently at W13, {chosen.pair.w13[0]} against {chosen.pair.w13[1]}",
            ),
            ("at W2 their slice lists are equal", f"at W2 their slice lists {w2}"),
        ],
        "C07": [("grid of 12 CTAs", f"grid of {chosen.grid} CTAs")],
    }


def _predicate(predicate: dict[str, Any], chosen: Choice) -> dict[str, Any]:
    match predicate:
        case {"kind": "membership-exchanged"}:
            return {**predicate, "routes": list(chosen.boundary), "blocks": list(chosen.pair.blocks)}
        case {"kind": "delivered", "grid": int()}:
            return {**predicate, "grid": chosen.grid}
        case {"kind": "schedule-class", "arm": {"cell": cell}, "gemm": gemm}:
            forced = cell == "forced-grid"
            classes = ("direct", "direct") if forced else getattr(chosen.pair, gemm)
            differ = not forced and (gemm == "w13" or chosen.pair.w2_differs)
            blocks = [{"block": b, "class": c} for b, c in zip(chosen.pair.blocks, classes, strict=True)]
            return {**predicate, "blocks": blocks, "slice_lists": "differ" if differ else "equal"}
    return predicate


def _claim(claim: Mapping[str, Any]) -> list[str]:
    lines = [f"  - id: {claim['id']}"]
    keys = ("statement", "scope", "kind", "assumptions", "in_simulation")
    lines += [f"    {key}: {_flow(claim[key])}" for key in keys]
    for key in ("delivered", "outcome", "control"):
        if claim[key]:
            lines += [f"    {key}:", *(f"      - {_flow(predicate)}" for predicate in claim[key])]
        else:
            lines.append(f"    {key}: []")
    lines.append(f"    known_bad: {_flow(claim['known_bad'])}")
    return lines


def _flow(value: Any) -> str:
    """A value in flow style; text that could be read another way is quoted as in JSON."""
    if isinstance(value, Mapping):
        kept = {key: item for key, item in value.items() if not (key == "donor" and item is None)}
        return "{" + ", ".join(f"{key}: {_flow(item)}" for key, item in kept.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    if isinstance(value, str) and _PLAIN.match(value) and value.lower() not in _TAKEN:
        return value
    return json.dumps(value)


def _replaced(text: str, old: str, new: str) -> str:
    if old not in text:
        raise ExplainError(
            f"ledger/claims/{_TEMPLATE}.yaml: expected the words {old!r} in a claim, got {text!r}"
        )
    return text.replace(old, new)
