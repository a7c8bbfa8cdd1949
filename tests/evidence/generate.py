"""Write the committed cases anew: `python -m tests.evidence.generate [FOLDER]`; CI diffs the result.

Every case of the plan (`plan_*.py`) bends the base bundle; what differs from it is stored, and nothing else.
"""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

from ledger.verdict import EXIT_CODES
from tests.evidence.base_bundle import HERE, base_parts
from tests.evidence.case import CASES, Case, Made
from tests.evidence.signing import PUBLIC
from tests.evidence.splice import splice_of
from tests.verifier import forge
from tests.verifier.forge import Files
from verifier.codes import CODES
from verifier.judge import worst


def generate(out: Path) -> None:
    """Write base/, key.pub.pem and cases/ below a folder, removing what is there of them."""
    from tests.evidence import (  # noqa: F401, PLC0415 - importing them lists their cases
        plan_anchor,
        plan_archives,
        plan_edits,
        plan_good,
        plan_hostile,
        plan_semantics,
    )

    base = base_parts()
    files = forge.seal(base)
    for name in ("base", "cases"):
        shutil.rmtree(out / name, ignore_errors=True)
    forge.write(files, out / "base")
    (out / "key.pub.pem").write_bytes(PUBLIC)
    for case in CASES:
        _write(case, case.make(base.copy()), files, out / "cases" / case.folder)


def _write(case: Case, made: Made, base: Files, folder: Path) -> None:
    folder.mkdir(parents=True)
    found = case.found() if callable(case.found) else case.found
    expected = {
        "level": case.level,
        "expect_plan": case.anchor() if case.anchor else None,
        "key": "key.pub.pem" if case.key else None,
        "exit_code": EXIT_CODES[worst([CODES[code].verdict for code, _ in found])] if found else 0,
        "findings": [{"code": code, "where": where} for code, where in found],
    }
    (folder / "expected.json").write_text(_json(expected), encoding="utf-8")
    (folder / "README.md").write_text(_readme(case, expected), encoding="utf-8")
    patch, kept = _patch(made, base)
    (folder / "patch.json").write_text(_json(patch), encoding="utf-8")
    for path, data in kept.items():
        target = folder / "files" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)


def _patch(made: Made, base: Files) -> tuple[dict[str, Any], Files]:
    """What to do to the base, and the files to lay over it; captures are spliced from those of the base."""
    patch: dict[str, Any] = {}
    kept: Files = {}
    if not made.files:
        patch["base"] = False
    else:
        patch["remove"] = sorted(base.keys() - made.files.keys())
    for path, data in sorted(made.files.items()):
        if base.get(path) == data:
            continue
        splice = splice_of(path, data, base)
        if splice is None:
            kept[path] = data
        else:
            patch.setdefault("splice", []).append(splice)
    if made.make:
        patch["make"] = made.make
    if made.archive:
        patch["archive"] = made.archive
    return patch, kept


def _readme(case: Case, expected: dict[str, Any]) -> str:
    title = case.name.replace("-", " ")
    lines = [f"# {title[0].upper()}{title[1:]}", "", case.why, ""]
    found = expected["findings"]
    if found:
        lines += ["Must be found, and nothing else:", ""]
        codes = list(dict.fromkeys(item["code"] for item in found))
        lines += [f"- {code}: {CODES[code].says} ({CODES[code].verdict})" for code in codes]
    else:
        lines += ["Must be accepted without a finding."]
    asked = f"level {expected['level']}"
    if expected["expect_plan"]:
        asked += ", anchored with `--expect-plan`"
    if expected["key"]:
        asked += ", with `--key`"
    return "\n".join([*lines, "", f"Asked at {asked}; exit code {expected['exit_code']}.", ""])


def _json(value: Any) -> str:
    return json.dumps(value, indent=1, sort_keys=False, ensure_ascii=True) + "\n"


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
