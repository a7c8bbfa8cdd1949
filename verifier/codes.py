"""Every finding code: what it says of the evidence, what it does to a verdict, and the level that can see it.

A code never changes its meaning and is never reused. The table in README.md is this one, held equal by a
test (`python -m verifier.codes` prints it).
"""

import sys
from dataclasses import dataclass
from typing import Literal

from ledger.claim import Level
from ledger.verdict import Verdict

Sinks = Literal["malformed", "ambiguous", "missing", "not-run", "refuted"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Code:
    """One kind of finding. `verdict` is what it makes of the claims that rest on the file concerned."""

    code: str
    says: str
    verdict: Verdict
    level: Level


#: Family, verdict and level of each code, then its sentence. Blank level: `records`.
_TABLE = """
V100 missing    . there is no bundle here: nothing, an empty folder, or a file that is no archive
V101 malformed  . a file is not the bytes that the manifest lists
V102 missing    . a file that the manifest lists is not there
V103 malformed  . a file is there that the manifest does not list
V104 malformed  . an entry is no regular file (link, FIFO, device, folder), or cannot be read
V105 malformed  . a line of the manifest is not one canonical JSON object of path, size and sha256
V106 malformed  . the manifest is not sorted by path with each path once, or two paths differ in case only
V107 malformed  . the manifest is not the one that bundle.json names
V108 malformed  . the counts in bundle.json are not those of the manifest
V109 malformed  . a path has no place in a bundle
V110 malformed  . a file, a line or the number of files is larger than a verifier reads
V111 malformed  . a content-addressed file does not have the digest that its name says
V112 missing    . this is a run that is not finished: it has no summary of its files yet
V120 malformed  . an archive or a release holds what has no place in it, or cannot be read to its end
V121 malformed  . a release's bag does not list exactly its files, each with its sha256
V122 malformed  . a release's statement is not about its bundle
V123 malformed  . a release is not signed by the key that the caller gave
V124 missing    . a release's signature cannot be checked here
V201 missing    . a document that every bundle has is not there
V202 malformed  . a JSON document is not one canonical JSON value
V203 malformed  . a JSON document does not keep its schema
V204 malformed  . plan.yaml or ledger.yaml is not strict YAML or does not keep its schema
V301 malformed  . the plan is not the one that the caller expects
V302 malformed  . bundle.json or plan.lock names another plan than plan.yaml
V303 malformed  . a record was made under another plan
V304 malformed  . bundle.json, plan.lock or the plan names another ledger than ledger.yaml
V305 malformed  . bundle.json names another lock than plan.lock
V306 malformed  . name, engine or kind of evidence do not agree between bundle, plan, build and records
V307 malformed  . the lock's cells are not the plan's, in the plan's order
V308 malformed  . the lock's launches are not the plan's
V309 malformed  . the lock's count of padded blocks is not what the routing gives
V310 malformed  . the fixture's digest in the lock is not that of its description
V311 malformed  . routing.json is not the routing that the lock froze
V312 malformed  . routing.json is not a routing of the plan's fixture
V313 malformed  . the ledger cites what the plan does not have
V314 malformed  . the plan cannot be worked out: a rule of its geometry, names or histories is broken
V315 malformed  . a treatment of the plan cannot matter: its swap, transfer or grid changes nothing it claims
V316 malformed  . the fixture's tensors in the lock are not those of the plan's geometry and routing
V401 missing    . a cell of the plan has no record
V402 malformed  . a record belongs to no cell of the plan
V403 ambiguous  . two records claim the same cell
V404 malformed  . a record's file name is not the identity inside it
V405 malformed  . two records come from the same process
V406 malformed  . a process did not have the plan's environment, hash seed or isolation flags
V407 malformed  . markers are missing, out of order, or their times run backwards
V408 malformed  . the attempts log's chain of digests is broken
V409 malformed  . attempts are not numbered upwards, each started once and ended once
V410 malformed  . a record and its attempt do not agree
V411 ambiguous  . two valid attempts claim the same cell
V412 malformed  . a command line is not symbolic, or not an isolated interpreter's
V413 malformed  . an attempt belongs to no cell of the plan
V414 malformed  . an attempt's outcome does not agree with its exit, its signal or its record
V415 malformed  . processes were not started in the lock's order
V416 malformed  . a process was held otherwise than the others of its cohort
V417 malformed  . a process passed its markers before its attempt was started, or after it had ended
V418 malformed  . processes of one runner ran on several boots
V419 malformed  . a process was started at a time that the clock of its boot, as others show it, had not
V501 malformed  . an alignment is not a legal alignment of routing.json
V502 missing    . a record's alignment is not there
V503 malformed  . the delivered alignment is not the one that the treatment asks for
V504 malformed  . an alignment was injected where the plan constructs it, or the other way round
V505 malformed  . the alignment's buffers do not have the kernel's lengths
V506 malformed  . no record refers to an alignment
V601 malformed  . a GEMM was not launched with the lock's tile and threads
V602 malformed  . a GEMM was not launched on the cell's grid
V603 malformed  . the slices executed are not those of the schedule
V604 malformed  . the captured surfaces are not the plan's, in its order
V605 malformed  . a surface does not have the shape or type of the plan's geometry
V606 malformed  . a record was made from another fixture
V607 malformed  . a record rests on an assumption that its plan does not make, or hides one that it needs
V701 malformed  . a record's software identity is not build.json's digest
V702 malformed  . build.json is not the build that the plan pins
V703 malformed  . the cohort did not run one kernel per launch
V704 malformed  . the activation's candidate is not the engine's
V705 malformed  . a name of what computed (symbol, arithmetic, driver) is of another kind of evidence
V801 malformed  raw a captured tensor's bytes do not have the recorded digest
V802 missing    . a record's capture is not there, in a bundle that says it is included
V803 malformed  . captures are there, in a bundle that says they are left out
V804 malformed  . a trajectory is not the digest of the record's surfaces
V805 malformed  . no record refers to a capture
V806 malformed  raw a capture is not a well-formed safetensors file
V807 malformed  raw a capture does not hold exactly the record's surfaces, with their type and shape
V808 malformed  raw a capture holds a NaN, and its record does not say that it rests on U4
V809 missing    raw captures are left out of the bundle: nothing can be checked at this level
V810 malformed  . records share a capture and disagree about its trajectory
V850 malformed  reexecute the plan's recipe does not give the fixture that was run
V851 malformed  reexecute a surface re-executed has other bits than the record says
V852 malformed  reexecute the slices re-executed are not those of the record
V853 malformed  reexecute what else the record says of its computation is not what re-execution gives
V854 malformed  reexecute a treatment of the bundle cannot be executed
V855 missing    reexecute re-execution gave no answer about this bundle
V856 out-of-scope reexecute a simulated model does not agree with a GPU's bits; said, and no claim rests on it
V901 refuted    . a predicate of a claim does not hold
V902 refuted    . bad evidence made from this bundle was not refused with the code declared for it
V903 not-run    . a claim's treatment was not delivered, so there is no verdict on its outcome
V904 missing    . bad evidence could not be made from this bundle
V905 missing    . a claim has too few processes to be judged
V999 malformed  . a check could not be carried out on this evidence
"""


def _codes() -> dict[str, Code]:
    table: dict[str, Code] = {}
    for line in _TABLE.strip().splitlines():
        code, verdict, level, says = line.split(maxsplit=3)
        table[code] = Code(
            code=code,
            says=says,
            verdict=verdict,  # type: ignore[arg-type]  # held to the Literals by a test
            level="records" if level == "." else level,  # type: ignore[arg-type]
        )
    return table


CODES: dict[str, Code] = _codes()


def table() -> str:
    """The codes as the Markdown table of README.md."""
    rows = [f"| {c.code} | {c.says} | {c.verdict} | {c.level} |" for c in CODES.values()]
    return "\n".join(["| code | says | verdict | level |", "| --- | --- | --- | --- |", *rows]) + "\n"


if __name__ == "__main__":
    sys.stdout.write(table())
