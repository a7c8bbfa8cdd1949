"""plans/quick.yaml with every cell once: the smallest campaign that `mechanism freeze` takes, for tests of others."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def write_once_each(folder: Path, *, name: str) -> Path:
    """Write `<name>.yaml` and its ledger `<name>-claims.yaml` into `folder`; gives the plan.

    14 processes; where the ledger says that they repeat, it says here that they are one cohort.
    """
    plan = (ROOT / "plans" / "quick.yaml").read_text(encoding="utf-8")
    ledger = (ROOT / "ledger" / "claims" / "quick.yaml").read_text(encoding="utf-8")
    plan = _changed(plan, "\nreplicates: 5\n", "\nreplicates: 1\n")
    plan = _changed(plan, "\nledger: quick\n", f"\nledger: {name}-claims.yaml\n")
    ledger = _changed(ledger, "\nname: quick\n", f"\nname: {name}-claims\n")
    ledger = re.sub(r"\{kind: repeats[^}]*\}", "{kind: separate-cohorts}", ledger)
    ledger = re.sub(r"replicate: [1-5]", "replicate: 1", ledger)
    ledger = re.sub(r"processes: ([0-9]+)", lambda found: f"processes: {int(found[1]) // 5}", ledger)
    (folder / f"{name}-claims.yaml").write_text(ledger, encoding="utf-8")
    (folder / f"{name}.yaml").write_text(plan, encoding="utf-8")
    return folder / f"{name}.yaml"


def _changed(text: str, old: str, new: str) -> str:
    assert text.count(old) == 1, old
    return text.replace(old, new)
