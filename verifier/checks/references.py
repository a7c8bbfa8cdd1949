"""V301 to V306, who names whom: plan, lock, ledger, build and bundle are one set, every record is of it."""

from collections.abc import Iterator
from pathlib import PurePosixPath

from ledger.bundle import SUMMARY
from ledger.record import Record
from verifier.bundle import Absent, Bundle
from verifier.checks.check import check, record_check
from verifier.found import Found


@check("V302")
def plan_digest(bundle: Bundle) -> Iterator[Found]:
    """V302: bundle.json and plan.lock name the sha256 of plan.yaml, and the lock its name."""
    digest = bundle.digest("plan.yaml")
    for file, key, said in (
        (SUMMARY, "plan", _attribute(bundle, "summary", "plan")),
        ("plan.lock", "plan.sha256", _attribute(bundle, "lock", "plan", "sha256")),
    ):
        if said not in {None, digest}:
            yield Found(
                code="V302", file=file, key=key, expected=f"{digest}, the sha256 of plan.yaml", got=said
            )
    if bundle.lock.plan.name != bundle.plan.name:
        yield Found(
            code="V302",
            file="plan.lock",
            key="plan.name",
            expected=bundle.plan.name,
            got=bundle.lock.plan.name,
        )


@record_check("V303")
def plan_of_record(bundle: Bundle, record: Record) -> Iterator[Found]:
    """V303: a record names the sha256 of plan.yaml."""
    if record.plan != (digest := bundle.digest("plan.yaml")):
        yield Found(
            code="V303",
            file=record.path,
            key="plan",
            expected=f"{digest}, the sha256 of plan.yaml",
            got=record.plan,
        )


@check("V304")
def ledger_digest(bundle: Bundle) -> Iterator[Found]:
    """V304: bundle.json and plan.lock name the sha256 of ledger.yaml; plan and lock name it by its name."""
    digest = bundle.digest("ledger.yaml")
    for file, key, said in (
        (SUMMARY, "ledger", _attribute(bundle, "summary", "ledger")),
        ("plan.lock", "ledger.sha256", _attribute(bundle, "lock", "ledger", "sha256")),
    ):
        if said not in {None, digest}:
            yield Found(
                code="V304", file=file, key=key, expected=f"{digest}, the sha256 of ledger.yaml", got=said
            )
    name = bundle.ledger.name
    for file, said in (
        ("plan.lock", _attribute(bundle, "lock", "ledger", "name")),
        ("plan.yaml", _attribute(bundle, "plan", "ledger")),
    ):
        # a plan may name its ledger by path; what it is called is the path's last part
        if said is not None and PurePosixPath(said).stem != name:
            key = "ledger.name" if file == "plan.lock" else "ledger"
            yield Found(
                code="V304", file=file, key=key, expected=f"{name}, the name in ledger.yaml", got=said
            )


@check("V305")
def lock_digest(bundle: Bundle) -> Iterator[Found]:
    """V305: bundle.json names the sha256 of plan.lock."""
    if bundle.summary.lock != (digest := bundle.digest("plan.lock")):
        yield Found(
            code="V305",
            file=SUMMARY,
            key="lock",
            expected=f"{digest}, the sha256 of plan.lock",
            got=bundle.summary.lock,
        )


@check("V306")
def one_kind_of_evidence(bundle: Bundle) -> Iterator[Found]:
    """V306: bundle and build have the plan's engine, the engine's kind of evidence, and the plan's name."""
    plan = bundle.plan
    wanted = {"engine": plan.engine, "evidence": evidence_of(plan.engine)}
    for file, name in ((SUMMARY, "summary"), ("build.json", "build")):
        for key, expected in wanted.items():
            said = _attribute(bundle, name, key)
            if said not in {None, expected}:
                yield Found(
                    code="V306", file=file, key=key, expected=f"{expected}, as plan.yaml has it", got=said
                )
    if bundle.summary.name != plan.name:
        yield Found(
            code="V306",
            file=SUMMARY,
            key="name",
            expected=f"{plan.name}, the plan's name",
            got=bundle.summary.name,
        )


@record_check("V306")
def kind_of_record(bundle: Bundle, record: Record) -> Iterator[Found]:
    """V306: a record has the plan's engine and that engine's kind of evidence: simulated is never a GPU's."""
    engine = bundle.plan.engine
    for key, expected in (("engine", engine), ("evidence", evidence_of(engine))):
        if (said := getattr(record, key)) != expected:
            yield Found(
                code="V306", file=record.path, key=key, expected=f"{expected}, as plan.yaml has it", got=said
            )


def evidence_of(engine: str) -> str:
    """The kind of evidence an engine makes."""
    return "simulated" if engine == "simulated" else "gpu"


def _attribute(bundle: Bundle, document: str, *keys: str) -> str | None:
    """A value of a document, None if the document could not be read: then a finding says that instead."""
    try:
        value = getattr(bundle, document)
    except Absent:
        return None
    for key in keys:
        value = getattr(value, key)
    return str(value)


CHECKS = (plan_digest, plan_of_record, ledger_digest, lock_digest, one_kind_of_evidence, kind_of_record)
