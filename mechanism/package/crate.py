"""RO-Crate metadata by the Process Run Crate profile: one action for each cold process. By rocrate."""

from pathlib import PurePosixPath
from typing import Any

from rocrate.model.contextentity import ContextEntity
from rocrate.model.file import File
from rocrate.rocrate import ROCrate

from ledger.bundle import MANIFEST, SUMMARY
from ledger.canonical import CanonicalError, canonical, parse_canonical
from ledger.model import read_json
from ledger.record import Record
from mechanism.package.payload import WRONG, PackageError, Payload

PROFILE = "https://w3id.org/ro/wfrun/process/0.5"
LICENSE = "https://spdx.org/licenses/Apache-2.0"
_FORMATS = {
    ".json": "application/json",
    ".jsonl": "application/jsonl",
    ".lock": "application/json",
    ".yaml": "application/yaml",
    ".safetensors": "application/octet-stream",
}
#: What every process was given.
_OBJECTS = ("bundle/plan.yaml", "bundle/plan.lock", "bundle/routing.json")


def crate_bytes(payload: Payload, *, published: str) -> bytes:
    """`ro-crate-metadata.json`, canonical. `published`: the date that RO-Crate asks for, YYYY-MM-DD.

    Raises PackageError or FaultsError for a record that is none, or whose alignment is not there.
    """
    crate = ROCrate(version="1.1")
    crate.metadata.extra_terms["sha256"] = "http://schema.org/sha256"  # younger than the 1.1 context
    _root(crate, payload, published)
    engine = crate.add(ContextEntity(crate, "#engine", properties=_engine(payload)))
    files = {f"bundle/{line.path}": (line.size, line.sha256) for line in payload.lines}
    for name in (MANIFEST, SUMMARY):
        files[f"bundle/{name}"] = ((payload.folder / name).stat().st_size, payload.digest(name))
    entities = {path: crate.add(_file(crate, path, *files[path])) for path in sorted(files)}
    actions = [
        _action(crate, payload, line.path, engine, entities)
        for line in payload.lines
        if line.path.startswith("records/")
    ]
    crate.root_dataset["mentions"] = actions
    graph: dict[str, Any] = crate.metadata.generate()
    return canonical(graph)


def _root(crate: Any, payload: Payload, published: str) -> None:
    summary = payload.summary
    kind = "SIMULATED evidence; no GPU took part" if summary.evidence == "simulated" else "GPU evidence"
    crate.name = f"Evidence bundle {summary.name}"
    crate.description = (
        f"{kind}. {summary.counts.records} cold processes of plan {summary.plan}, engine {summary.engine}."
    )
    crate.root_dataset["datePublished"] = published
    license_ = {"@type": "CreativeWork", "name": "Apache License 2.0"}
    crate.root_dataset["license"] = crate.add(ContextEntity(crate, LICENSE, properties=license_))
    profile = {"@type": "CreativeWork", "name": "Process Run Crate", "version": "0.5"}
    crate.root_dataset["conformsTo"] = crate.add(ContextEntity(crate, PROFILE, properties=profile))


def _engine(payload: Payload) -> dict[str, Any]:
    """The software of the cohort; its version is the digest of what computed, file by file."""
    return {
        "@type": "SoftwareApplication",
        "name": f"marlin-mechanism, engine {payload.summary.engine}",
        "description": "Runs one MoE layer under one treatment; bundle/build.json names every file of code.",
        "softwareVersion": payload.digest("build.json"),
    }


def _file(crate: Any, path: str, size: int, digest: str) -> File:
    properties = {
        "name": path.removeprefix("bundle/"),
        "contentSize": str(size),
        "encodingFormat": _FORMATS.get(PurePosixPath(path).suffix, "text/plain"),
        "sha256": digest,
    }
    return File(crate, dest_path=path, properties=properties)


def _action(crate: Any, payload: Payload, path: str, engine: Any, entities: dict[str, Any]) -> Any:
    data = (payload.folder / path).read_bytes()
    try:
        record = read_json(Record, parse_canonical(data), name=path)
    except CanonicalError as fault:
        raise PackageError(f"{path}: {fault}{WRONG}") from fault
    name = f"alignments/{record.treatment.alignment.sha256}.json"
    if (alignment := entities.get(f"bundle/{name}")) is None:
        raise PackageError(f"{MANIFEST}: expected {name}, which {path} names, found none{WRONG}")
    given, made = [entities[name] for name in _OBJECTS], [entities[f"bundle/{path}"]]
    (made if record.treatment.alignment.source == "constructed" else given).append(alignment)
    if (capture := entities.get(f"bundle/objects/{record.capture}.safetensors")) is not None:
        made.append(capture)
    place = f"{record.cell} under {record.history}, replicate {record.replicate}"
    properties = {
        "name": f"Cold process: {place}",
        "actionStatus": "http://schema.org/CompletedActionStatus",
        "description": f"{record.evidence} run, phase {record.phase}, attempt {record.attempt}",
    }
    identifier = f"#{path.removeprefix('records/').removesuffix('.json')}"
    return crate.add_action(engine, identifier, object=given, result=made, properties=properties)
