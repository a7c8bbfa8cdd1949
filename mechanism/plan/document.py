"""Reading a plan and the ledger it names from disk; every fault comes back with its line."""

import stat
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path

from ledger.canonical import sha256
from ledger.claim import Ledger
from ledger.fault import Fault, FaultsError
from ledger.fault import Path as KeyPath
from ledger.model import read_yaml
from ledger.plan import Plan
from ledger.strict_yaml import MAX_BYTES, Document, load
from mechanism.errors import PlanError
from mechanism.values import frozen


@frozen
class LoadedPlan:
    """A plan with the bytes it was read from; `name` is what messages call the file."""

    name: str
    data: bytes
    document: Document
    plan: Plan

    @property
    def sha256(self) -> str:
        """The plan's identity: the digest of the file's bytes."""
        return sha256(self.data)

    def faults(self, found: Iterable[tuple[KeyPath, str]]) -> list[Fault]:
        """Messages about keys of this plan, each with the line of its key."""
        return [
            Fault(file=self.name, line=self.document.line(path), path=path, message=message)
            for path, message in found
        ]


@frozen
class LoadedLedger:
    """A claim ledger with the bytes it was read from."""

    name: str
    data: bytes
    document: Document
    ledger: Ledger

    @property
    def sha256(self) -> str:
        """The ledger's identity: the digest of the file's bytes."""
        return sha256(self.data)


def load_plan(path: Path) -> LoadedPlan:
    """Read one plan. Raises PlanError if the file cannot be read, FaultsError with every fault in it."""
    data = _read(path, what="plan")
    document = load(data, name=path.name)
    _require_kind(document, path.name, "plan")
    plan = read_yaml(Plan, document, name=path.name)
    return LoadedPlan(name=path.name, data=data, document=document, plan=plan)


def load_ledger(plan: LoadedPlan, folder: Path) -> LoadedLedger:
    """The ledger a plan names: `<name>` is one of ledger/claims, `<path>.yaml` lies relative to the plan.

    Raises PlanError if there is no such ledger, FaultsError with every fault in it.
    """
    named = plan.plan.ledger
    if named.endswith(".yaml"):
        data = _read(folder / named, what="ledger, named relative to the plan's folder,")
    else:
        source = files("ledger") / "claims" / f"{named}.yaml"
        if not source.is_file():
            known = sorted(item.name.removesuffix(".yaml") for item in (files("ledger") / "claims").iterdir())
            message = f"expected one of {', '.join(known)} or a path that ends in .yaml, got {named}"
            raise FaultsError(plan.faults([(("ledger",), message)]))
        data = source.read_bytes()
    name = Path(named).name if named.endswith(".yaml") else f"{named}.yaml"
    document = load(data, name=name)
    _require_kind(document, name, "ledger")
    return LoadedLedger(
        name=name, data=data, document=document, ledger=read_yaml(Ledger, document, name=name)
    )


#: Keys by which a document of another kind is known, and what to do with it.
_KINDS = {
    "lock": ({"cells", "launches"}, "give the plan itself, which ends in .yaml"),
    "ledger": ({"claims", "mutations"}, "a plan names its ledger by `ledger:`; give the plan"),
    "plan": ({"engine", "phases"}, "give the file of claims"),
}


def _require_kind(document: Document, name: str, wanted: str) -> None:
    """Raise PlanError for a document that is of another kind as a whole: its keys would all be faults."""
    keys = document.data.keys() if isinstance(document.data, dict) else set[str]()
    for kind, (known, way_out) in _KINDS.items():
        if kind != wanted and known <= keys:
            raise PlanError(f"{name}: expected a {wanted}, got a {kind}; {way_out}")


def lock_path(plan: Path) -> Path:
    """Where a plan's lock lies: plans/quick.yaml has plans/quick.lock."""
    return plan.with_suffix(".lock")


def _read(path: Path, *, what: str) -> bytes:
    """A file's bytes, up to one more than a document may have; what could be read without end is refused."""
    try:
        kind = path.stat().st_mode
        if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):  # a folder says of itself that it is one
            raise PlanError(f"{what} {path}: expected a file, got a FIFO or a device; copy it to a file")
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except OSError as fault:
        raise PlanError(f"{what} {path}: cannot be read: {fault.strerror}; check the path") from fault
