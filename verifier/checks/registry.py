"""All checks, in the order in which they run and are reported."""

from ledger.claim import Level
from verifier.checks import (
    alignments,
    attempts,
    captures,
    claims,
    clocks,
    coverage,
    documents,
    frozen,
    integrity,
    process,
    references,
    software,
    treatment,
)
from verifier.checks.check import Check, RecordCheck

RECORDS: tuple[Check | RecordCheck, ...] = (
    *integrity.CHECKS,
    *documents.CHECKS,
    *claims.CHECKS,
    *references.CHECKS,
    *frozen.CHECKS,
    *coverage.CHECKS,
    *process.CHECKS,
    *attempts.CHECKS,
    *clocks.CHECKS,
    *alignments.CHECKS,
    *treatment.CHECKS,
    *software.CHECKS,
    *captures.CHECKS,
)
RAW: tuple[Check | RecordCheck, ...] = captures.RAW_CHECKS


def checks(level: Level) -> tuple[Check | RecordCheck, ...]:
    """The checks that a level carries out; a higher level carries out those of the lower ones too."""
    return RECORDS if level == "records" else RECORDS + RAW
