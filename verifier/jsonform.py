"""The report as JSON, piece by piece: of a bundle of many records it is longer than what fits in memory."""

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

from ledger.verdict import Report
from verifier.paths import Paths

_AT_ONCE = 4096


def pieces(report: Report) -> Iterator[str]:
    """One JSON object with its last line feed; the keys are those of ledger/schemas/report.schema.json."""
    many = {place: claim.evidence for place, claim in enumerate(report.claims)}
    if not any(isinstance(paths, Paths) for paths in many.values()):
        yield json.dumps(report.model_dump(mode="json"), indent=1) + "\n"
        return
    short = tuple(claim.model_copy(update={"evidence": ()}) for claim in report.claims)
    value: dict[str, Any] = report.model_copy(update={"claims": short}).model_dump(mode="json")
    for place, paths in many.items():
        value["claims"][place]["evidence"] = paths  # the encoder goes through it as through any list
    told = json.JSONEncoder(indent=1).iterencode(value)
    while piece := "".join(islice(told, _AT_ONCE)):
        yield piece
    yield "\n"
