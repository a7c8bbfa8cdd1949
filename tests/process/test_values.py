"""Frozen values that cost no compiling: what a frozen dataclass with keyword-only fields and slots does."""

import copy
import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import FrozenInstanceError, asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import pytest

from mechanism.values import frozen

ROOT = Path(__file__).resolve().parents[2]


@frozen
class Slice:
    """One of ours."""

    cta: int
    begin: int = 0
    marks: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.cta < 0:
            raise ValueError(f"cta: expected 0 or more, got {self.cta}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Known:
    """The same by dataclasses alone."""

    cta: int
    begin: int = 0
    marks: list[str] = field(default_factory=list)


@frozen
class Other:
    """The fields of a slice and another class."""

    cta: int


@frozen(eq=False)
class Held:
    """Arrays inside: equal to itself only."""

    cta: int


@pytest.mark.parametrize("made", [Slice, Known])
def test_a_value_is_what_a_frozen_dataclass_is(made: Any) -> None:
    """One suite, both."""
    value = made(cta=1, begin=2)
    assert repr(value) == f"{made.__name__}(cta=1, begin=2, marks=[])"
    assert [item.name for item in fields(value)] == ["cta", "begin", "marks"]
    assert asdict(value) == {"cta": 1, "begin": 2, "marks": []}
    assert replace(value, cta=3) == made(cta=3, begin=2)
    assert value == made(cta=1, begin=2) != made(cta=1, begin=3)
    assert value != Other(cta=1)
    assert copy.deepcopy(value) == pickle.loads(pickle.dumps(value)) == value
    assert made(cta=1).marks is not made(cta=1).marks
    assert not hasattr(value, "__dict__")
    assert made.__slots__ == ("cta", "begin", "marks")


def test_values_of_equal_fields_hash_alike() -> None:
    assert hash(Other(cta=1)) == hash(Other(cta=1))
    assert len({Other(cta=1), Other(cta=1), Other(cta=2)}) == 2


def test_eq_false_compares_by_identity() -> None:
    one = Held(cta=1)
    assert one == one  # noqa: PLR0124 - that is the point
    assert one != Held(cta=1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda value: setattr(value, "begin", 3), "cannot assign to field 'begin'"),
        (lambda value: setattr(value, "end", 3), "cannot assign to field 'end'"),
        (lambda value: delattr(value, "begin"), "cannot delete field 'begin'"),
    ],
)
def test_nothing_changes_it(change: Callable[[Slice], None], message: str) -> None:
    value = Slice(cta=1, begin=2)
    with pytest.raises(FrozenInstanceError) as fault:
        change(value)
    assert str(fault.value) == message
    assert value == Slice(cta=1, begin=2)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "Slice: expected a value for cta, got none"),
        ({"cta": 1, "end": 2, "at": 3}, "Slice: expected no value for at, end, got one"),
    ],
)
def test_fields_too_few_and_too_many_are_named(given: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError) as fault:
        Slice(**given)
    assert str(fault.value) == message


def test_the_class_checks_what_it_is_given() -> None:
    with pytest.raises(ValueError, match=r"^cta: expected 0 or more, got -1$"):
        Slice(cta=-1)


def test_no_class_of_a_cold_process_compiles_its_methods() -> None:
    """Nor does one load more of what was installed than numpy and rfc8785: it pays for both 70 times."""
    code = """
import dataclasses, sys
real, found = dataclasses.dataclass, []
def watched(cls=None, /, **asked):
    def made(later):
        if asked.get("init", True) and later.__module__.startswith(("mechanism", "ledger")):
            found.append(f"{later.__module__}.{later.__name__}")
        return real(later, **asked)
    return made if cls is None else made(cls)
dataclasses.dataclass = watched
before = set(sys.modules)
import mechanism.process.child, mechanism.engine.simulated
names = {name.partition(".")[0] for name in sys.modules.keys() - before}
print(found, sorted(names - sys.stdlib_module_names))
"""
    argv = [sys.executable, "-s", "-P", "-c", code]
    environment = {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    told = subprocess.run(argv, env=environment, check=True, capture_output=True, text=True).stdout
    assert told == "[] ['ledger', 'mechanism', 'numpy', 'rfc8785']\n"
