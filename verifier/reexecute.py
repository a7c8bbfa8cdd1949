"""Level reexecute: `mechanism reexecute` as a child program, and its answer turned into findings.

Never imports mechanism. The child is given a copy of what the verifier itself read: documents, records and
alignments, at places that a bundle has. What it answers is read strictly, and must be about these very bytes.
"""

import importlib.util
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ledger.canonical import CanonicalError, parse
from ledger.fault import FaultsError
from ledger.model import read_json
from ledger.reexecution import RecordAgain, Reexecution
from ledger.verdict import CheckResult
from verifier.evidence import Evidence, EvidenceError
from verifier.found import Found, plain, several, show
from verifier.layout import MAX_BYTES, alignment_path, kind_of

LIMIT_S = 3600
_MAX_ANSWER = 256 * 2**20
#: By kind of cohort, the codes that an answer decides.
RE_EXECUTION = ("V850", "V851", "V852", "V853", "V854", "V855")
AGREEMENT = ("V850", "V854", "V855", "V856")


class _NoAnswerError(Exception):
    """There is no answer to go by; the message says why."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reexecuted:
    """What re-execution gave. `notes` decide nothing: other source, agreement surface by surface."""

    findings: tuple[Found, ...]
    checked: tuple[str, ...]
    not_checked: Mapping[str, str]
    notes: tuple[CheckResult, ...]


def reexecute(
    evidence: Evidence, *, already: frozenset[str] = frozenset(), python: str = sys.executable
) -> Reexecuted:
    """Re-execute a bundle. `already`: files with findings, from which a missing answer follows.

    Without an answer there is one finding, V855, unless the bundle was found wanting before.
    """
    try:
        answer = _ask(evidence, python)
        _require_about(answer, evidence, already)
    except _NoAnswerError as fault:
        reason = plain(str(fault))
        wanted = "an answer of `mechanism reexecute` on this bundle"
        found = Found(code="V855", file=".", expected=wanted, got=reason)
        return Reexecuted(
            findings=() if already else (found,),
            checked=() if already else ("V855",),
            not_checked={code: reason for code in RE_EXECUTION if already or code != "V855"},
            notes=(),
        )
    simulated = answer.kind == "re-execution"
    findings = (
        *_fixture(answer),
        *_treatments(answer),
        *(_records(answer) if simulated else _agreement(answer)),
    )
    return Reexecuted(
        findings=findings,
        checked=RE_EXECUTION if simulated else AGREEMENT,
        not_checked={},
        notes=tuple(_notes(answer)),
    )


def _ask(evidence: Evidence, python: str) -> Reexecution:
    """The child's answer. Raises _NoAnswerError."""
    if importlib.util.find_spec("mechanism") is None:
        raise _NoAnswerError(
            "mechanism is not installed here; install the extra `run`: in the project's folder: pip install"
            " -e '.[run]'; then check again"
        )
    with tempfile.TemporaryDirectory(prefix="verifier-") as name, tempfile.TemporaryFile() as out:
        folder = Path(name) / "bundle"
        _lay_out(evidence, folder)
        # -P: a folder called mechanism where the verifier was started is not the program that is meant
        command = [python, "-P", "-m", "mechanism", "reexecute", str(folder), "--format", "json"]
        try:
            done = subprocess.run(command, check=False, stdout=out, stderr=subprocess.PIPE, timeout=LIMIT_S)
        except (OSError, subprocess.TimeoutExpired) as fault:
            raise _NoAnswerError(f"it could not be run to its end: {fault}") from fault
        said = done.stderr.decode("utf-8", "replace").replace(str(folder), "$BUNDLE").strip()
        if out.tell() > _MAX_ANSWER:
            raise _NoAnswerError(f"an answer of {out.tell()} bytes, more than {_MAX_ANSWER}")
        out.seek(0)
        data = out.read()
    if done.returncode not in {0, 1} or not data:
        raise _NoAnswerError(f"exit code {done.returncode}: {show(said[-600:] or 'nothing on stderr')}")
    try:
        answer = read_json(Reexecution, parse(data), name="answer")
    except (CanonicalError, FaultsError) as fault:
        raise _NoAnswerError(f"an answer that does not keep its schema: {show(str(fault))}") from fault
    if answer.equal != (done.returncode == 0):
        raise _NoAnswerError(f"exit code {done.returncode} with an answer that says equal: {answer.equal}")
    return answer


def _lay_out(evidence: Evidence, folder: Path) -> None:
    """Copy what decides trajectories; a path that a bundle has no place for is never written."""
    folder.mkdir()
    for path, entry in evidence.entries.items():
        kind = kind_of(path)
        if entry.kind != "file" or kind is None or kind == "object":
            continue
        try:
            data = evidence.read(path, MAX_BYTES[kind])
        except EvidenceError:
            continue  # a finding of its own; the child then says what it lacks
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_bytes(data)


def _require_about(answer: Reexecution, evidence: Evidence, already: frozenset[str]) -> None:
    """Raise _NoAnswerError unless the answer is about these bytes, all of them."""
    read = {again.path: again.sha256 for again in answer.records}
    pairs = {"plan.yaml": answer.cohort.plan, "build.json": answer.cohort.software, **read}
    for path, digest in pairs.items():
        entry = evidence.entries.get(path)
        try:
            got = evidence.digest(path) if entry is not None and entry.kind == "file" else "no file"
        except EvidenceError as fault:
            got = str(fault)
        if got != digest:
            raise _NoAnswerError(f"an answer about {path} with sha256 {digest}, which here is {got}")
    if not answer.fixture.equal:
        return  # then no record was looked at
    there = {path for path in evidence.entries if kind_of(path) == "record"}
    if left := sorted(there - read.keys() - already):
        reasons = {item.path: item.reason for item in answer.unread}
        raise _NoAnswerError(
            f"nothing about {several(left)}: {show(reasons.get(left[0], 'not in the lock'))}"
        )


def _fixture(answer: Reexecution) -> Iterator[Found]:
    if not answer.fixture.equal:
        yield Found(
            code="V850",
            file="plan.lock",
            key="fixture.digest",
            expected=f"{answer.fixture.rebuilt}, which the plan's recipe gives here",
            got=answer.fixture.recorded,
        )


def _treatments(answer: Reexecution) -> Iterator[Found]:
    for item in answer.treatments:
        if item.fault is not None:
            yield Found(
                code="V854",
                file=alignment_path(item.alignment),
                key=f"grids {list(item.grids)}",
                expected="a treatment that can be executed",
                got=show(item.fault),
            )


def _records(answer: Reexecution) -> Iterator[Found]:
    """A trajectory is a finding only where its surfaces agree: otherwise it follows from them."""
    for again in answer.records:
        surfaces = any(not item.equal and item.quantity.startswith("surfaces.") for item in again.compared)
        for item in again.compared:
            if item.equal or (item.quantity == "trajectory" and surfaces):
                continue
            yield Found(
                code=_code(item.quantity),
                file=again.path,
                key=item.quantity,
                expected=f"{show(item.recomputed)}, recomputed",
                got=show(item.recorded),
            )


def _code(quantity: str) -> str:
    if quantity.startswith("surfaces.") or quantity == "trajectory":
        return "V851"
    return "V852" if quantity.endswith(".slices") else "V853"


def _agreement(answer: Reexecution) -> Iterator[Found]:
    """Of a GPU cohort: what a model says besides. Concerns no claim, whichever way it comes out."""
    for surface in answer.surfaces:
        if surface.equal != surface.compared:
            first = next(again for again in answer.records if _differs(again, f"surfaces.{surface.surface}"))
            yield Found(
                code="V856",
                file=first.path,
                key=f"surfaces.{surface.surface}",
                expected="the bits of the simulated engine",
                got=f"others; equal on {surface.equal} of {surface.compared} records",
                claims=frozenset(),
            )


def _differs(again: RecordAgain, quantity: str) -> bool:
    return any(item.quantity == quantity and not item.equal for item in again.compared)


def _notes(answer: Reexecution) -> Iterator[CheckResult]:
    what = "re-execution, simulated" if answer.kind == "re-execution" else "agreement of a model, no evidence"
    for surface in answer.surfaces:
        yield CheckResult(
            name=f"{answer.kind} {surface.surface}",
            says=what,
            findings=surface.compared - surface.equal,
            reason=f"equal on {surface.equal} of {surface.compared} records, {answer.arithmetic}",
        )
    if answer.source:
        names = several(item.path for item in answer.source)
        yield CheckResult(
            name="source",
            says="files of code that are others here than in build.json; said, and no finding",
            findings=0,
            reason=plain(f"{len(answer.source)}: {names}"),
        )
