"""The committed JSON Schemas, generated from the models: `python -m ledger.schemas [FOLDER]` writes them."""

import json
import sys
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from ledger import bundle, claim, lock, plan, record, reexecution, release, verdict

MODELS: dict[str, Any] = {
    "plan": plan.Plan,
    "lock": lock.Lock,
    "ledger": claim.Ledger,
    "record": record.Record,
    "alignment": record.AlignmentFile,
    "routing": record.RoutingFile,
    "build": record.BuildFile,
    "bundle": bundle.BundleFile,
    "manifest-line": bundle.ManifestLine,
    "attempt": bundle.Attempt,
    "report": verdict.Report,
    "reexecution": reexecution.Reexecution,
    "statement": release.Statement,
}
FOLDER = Path(__file__).parent / "schemas"


def schema(name: str) -> str:
    """The text of one schema file, as committed."""
    document = TypeAdapter(MODELS[name]).json_schema(mode="validation")
    return (
        json.dumps(
            {"$schema": "https://json-schema.org/draft/2020-12/schema", **document}, indent=1, sort_keys=True
        )
        + "\n"
    )


def write(folder: Path) -> None:
    """Write every schema as `<name>.schema.json`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in MODELS:
        (folder / f"{name}.schema.json").write_text(schema(name), encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
