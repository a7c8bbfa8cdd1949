"""The base of every schema: frozen, strict, unknown keys refused; and pydantic's errors in our words."""

import json
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from ledger.fault import Fault, FaultsError, Path
from ledger.strict_yaml import Document

Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Nonce = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")]
#: Names become parts of file names and of each other: no dots, no slashes, nothing to quote.
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9_-]*$", max_length=48)]
Text = Annotated[str, StringConstraints(min_length=1, max_length=2000)]
Count = Annotated[int, Field(ge=0, le=2**53 - 1)]
Positive = Annotated[int, Field(ge=1, le=2**53 - 1)]


def _in_order(values: tuple[str, ...]) -> tuple[str, ...]:
    numbers = [int(value[1:]) for value in values]
    if numbers != sorted(set(numbers)):
        raise ValueError(f"expected assumptions in ascending order without repeats, got {', '.join(values)}")
    return values


#: The assumptions of the specification (marlin-moe appendix C) that a document rests on.
Assumptions = Annotated[
    tuple[Annotated[str, StringConstraints(pattern=r"^U([1-9]|10)$")], ...], AfterValidator(_in_order)
]

ModelT = TypeVar("ModelT", bound=BaseModel)


class PlacedError(ValueError):
    """Faults of a value, each with the keys below it that lead to the fault's own place."""

    def __init__(self, *faults: tuple[Path, str]) -> None:
        self.faults = faults
        super().__init__("; ".join(message for _, message in faults))


class Frozen(BaseModel):
    """A frozen value read from a document: strict types, no unknown keys, no hidden defaults."""

    model_config = ConfigDict(
        frozen=True, strict=True, extra="forbid", validate_default=True, defer_build=True
    )


def read_yaml(model: type[ModelT], document: Document, *, name: str) -> ModelT:
    """Validate a YAML document. Raises FaultsError with every fault and its line."""
    try:
        return model.model_validate_json(_as_json(document.data))
    except ValidationError as error:
        faults = [
            Fault(file=name, line=document.line(path), path=path, message=message)
            for path, message in explain(error, document.data)
        ]
        raise FaultsError(faults) from error


def read_json(model: type[ModelT], value: Any, *, name: str) -> ModelT:
    """Validate a parsed JSON value. Raises FaultsError with every fault and its key."""
    try:
        return model.model_validate_json(_as_json(value))
    except ValidationError as error:
        faults = [Fault(file=name, line=1, path=path, message=text) for path, text in explain(error, value)]
        raise FaultsError(faults) from error


def _as_json(value: Any) -> bytes:
    """JSON mode is what strict pydantic needs to accept lists as tuples; the values are plain data."""
    return json.dumps(value).encode()


def explain(error: ValidationError, data: Any) -> list[tuple[Path, str]]:
    """Pydantic's errors as (path in the document, message in our words)."""
    return [
        ((*_real_path(item["loc"], data, missing=item["type"] == "missing"), *path), message)
        for item in error.errors(include_url=False)
        if not _is_echo(item)
        for path, message in _placed(item)
    ]


def _placed(item: Any) -> tuple[tuple[Path, str], ...]:
    """The faults that one of pydantic's errors stands for, below its own path."""
    cause = item.get("ctx", {}).get("error")
    return cause.faults if isinstance(cause, PlacedError) else (((), _message(item)),)


def _is_echo(item: Any) -> bool:
    """Whether a list or mapping is called too short only because what is in it has faults of its own."""
    value = item["input"]
    return (
        item["type"] == "too_short"
        and isinstance(value, list | dict)
        and len(value) >= item["ctx"]["min_length"]
    )


def _real_path(loc: tuple[str | int, ...], data: Any, *, missing: bool) -> Path:
    """`loc` without the union tags that pydantic puts between the keys; the last key may be a missing one."""
    path: list[str | int] = []
    here = data
    for position, part in enumerate(loc):
        last = position == len(loc) - 1
        if isinstance(here, Mapping) and (part in here or (last and missing)):
            here = here.get(part)
        elif isinstance(here, list) and isinstance(part, int):
            here = here[part] if part < len(here) else None
        else:
            continue
        path.append(part)
    return tuple(path)


def _message(item: Any) -> str:
    got = _show(item["input"])
    context = item.get("ctx", {})
    length = context.get("actual_length")
    words = {
        "missing": "expected this key, found none",
        "extra_forbidden": "expected no such key; it is unknown here, check its spelling",
        "string_type": f"expected text, got {got}",
        "int_type": f"expected an integer, got {got}",
        "bool_type": f"expected true or false, got {got}",
        "greater_than_equal": f"expected at least {context.get('ge')}, got {got}",
        "less_than_equal": f"expected at most {context.get('le')}, got {got}",
        "string_pattern_mismatch": f"expected text of the form {context.get('pattern')}, got {got}",
        "literal_error": f"expected {context.get('expected')}, got {got}",
        "union_tag_invalid": f"expected {context.get('expected_tags')}, got {_show(context.get('tag'))}",
        "union_tag_not_found": f"expected the key {context.get('discriminator')}, found none",
        "too_short": f"expected {context.get('min_length')} or more items, got {length}",
        "too_long": f"expected {context.get('max_length')} items or fewer, got {length}",
    }
    if item["type"] == "value_error":
        return str(context.get("error"))
    return words.get(item["type"], f"{item['msg']}, got {got}")


def _show(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
