"""What a check is: one code, one small function over a bundle or over one record, findings out."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ledger.record import Record
from verifier.bundle import Bundle
from verifier.found import Found


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """A check over the whole bundle. Raises bundle.Absent when what it needs could not be read.

    `frozen_only`: it looks at nothing but the frozen documents, so that its result is kept for equal ones.
    """

    code: str
    frozen_only: bool
    run: Callable[[Bundle], Iterator[Found]]


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordCheck:
    """A check of one record against the documents of its bundle, which may not look at other records.

    That bound is what lets its result be kept for equal bytes, and what lets records be streamed.
    """

    code: str
    run: Callable[[Bundle, Record], Iterator[Found]]


def check(code: str, *, frozen_only: bool = False) -> Callable[[Callable[[Bundle], Iterator[Found]]], Check]:
    """Make a bundle check of a function whose docstring starts with its code."""
    return lambda run: Check(code=code, frozen_only=frozen_only, run=run)


def record_check(code: str) -> Callable[[Callable[[Bundle, Record], Iterator[Found]]], RecordCheck]:
    """Make a record check of a function whose docstring starts with its code."""
    return lambda run: RecordCheck(code=code, run=run)
