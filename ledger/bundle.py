"""The bundle: its manifest, its summary, and the chained log of every process started."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from ledger.model import Count, Frozen, Name, Nonce, Positive, Sha256
from ledger.plan import EngineName
from ledger.record import Evidence

MANIFEST = "files.jsonl"
SUMMARY = "bundle.json"
ATTEMPTS = "attempts.jsonl"
#: Files a finished bundle holds besides records, alignments and objects.
DOCUMENTS = ("plan.yaml", "plan.lock", "ledger.yaml", "build.json", "routing.json", ATTEMPTS)

BundlePath = Annotated[
    str,
    StringConstraints(
        pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]*(/[A-Za-z0-9_][A-Za-z0-9._-]*)*$", max_length=255
    ),
]


class ManifestLine(Frozen):
    """One line of `files.jsonl`; lines are sorted by path. `size` in bytes."""

    path: BundlePath
    size: Count
    sha256: Sha256


class Counts(Frozen):
    """How much there is of each kind."""

    files: Count
    records: Count
    attempts: Count
    alignments: Count
    objects: Count


class BundleFile(Frozen):
    """`bundle.json`. `raw` says whether the captured objects travel with the bundle."""

    schema_version: Literal[1]
    name: Name
    engine: EngineName
    evidence: Evidence
    files: Sha256
    plan: Sha256
    lock: Sha256
    ledger: Sha256
    raw: Literal["included", "left-out"]
    counts: Counts


class StderrKept(Frozen):
    """What a process wrote to stderr: its length in bytes, its digest, and its last part as text."""

    size: Count
    sha256: Sha256
    tail: Annotated[str, StringConstraints(max_length=4000)]


Outcome = Literal["valid", "failed", "timeout", "killed", "interrupted", "invalid"]


class AttemptStarted(Frozen):
    """A cold process is about to start. `time_us`: monotonic clock of the runner, microseconds.

    `previous`, here and in every line: the sha256 of the line before, without its line feed; 64 zeros in
    the first. A line is the canonical JSON of one event, then a line feed.
    """

    event: Literal["started"]
    previous: Sha256
    attempt: Count
    phase: Name
    cell: Name
    history: Name
    replicate: Positive
    nonce: Nonce
    time_us: Count


class AttemptEnded(Frozen):
    """How it ended. `valid` alone has a record; every other outcome has a reason in words.

    `failed`: exited non-zero; `killed`: ended by a signal of its own; `timeout`: stopped at its limit;
    `invalid`: exited 0 without one good record; `interrupted`: the runner stopped before it ended.
    """

    event: Literal["ended"]
    previous: Sha256
    attempt: Count
    outcome: Outcome
    reason: Annotated[str, StringConstraints(max_length=2000)]
    exit_code: int | None
    signal: Annotated[int, Field(ge=1, le=64)] | None
    descendants_killed: Count
    stderr: StderrKept | None
    record: Sha256 | None
    time_us: Count


class LogResumed(Frozen):
    """Another runner went on with the campaign: its clock may read less than the lines before.

    `torn`: what followed the last whole line of the log, as text with escapes; empty if nothing did.
    """

    event: Literal["resumed"]
    previous: Sha256
    torn: Annotated[str, StringConstraints(max_length=40000)]
    time_us: Count


Attempt = Annotated[AttemptStarted | AttemptEnded | LogResumed, Field(discriminator="event")]
