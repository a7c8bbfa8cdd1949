"""Frozen values: `dataclass(frozen=True, kw_only=True, slots=True)`, without compiling code at import.

dataclasses writes the methods of every class as text and has Python compile them: for the thirty classes of
a cold process a tenth of its time, seventy times a campaign. Here the methods are the same few functions for
all classes; what makes a class a dataclass stays, so `dataclasses.replace`, `asdict` and `fields` work.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, dataclass_transform, overload

T = TypeVar("T")
_FIELDS = "__dataclass_fields__"


@overload
def frozen(cls: type[T], /) -> type[T]: ...
@overload
def frozen(*, eq: bool = True) -> Callable[[type[T]], type[T]]: ...
@dataclass_transform(
    eq_default=True, kw_only_default=True, frozen_default=True, field_specifiers=(dataclasses.field,)
)
def frozen(cls: type[T] | None = None, /, *, eq: bool = True) -> Any:
    """Make a class a frozen value: keyword-only, with slots. `eq=False`: equal to itself only."""
    return _made(cls, eq=eq) if cls is not None else lambda later: _made(later, eq=eq)


def _made(cls: type[T], *, eq: bool) -> type[T]:
    made = dataclasses.dataclass(init=False, repr=False, eq=False, kw_only=True, slots=True)(cls)
    methods: dict[str, Callable[..., Any]] = {
        "__init__": _init_of(made),
        "__repr__": _repr,
        "__setattr__": _set,
        "__delattr__": _delete,
        "__getstate__": _state,  # frozen slots are copied and pickled as these two say
        "__setstate__": _restore,
    }
    if eq:
        methods |= {"__eq__": _equal, "__hash__": _hash}
    for name, method in methods.items():
        setattr(made, name, method)
    return made


def _init_of(made: type[Any]) -> Callable[..., None]:
    """The class's `__init__`: quick when every field is given, as thousands of tiles and slices are."""
    fields = getattr(made, _FIELDS)
    puts = tuple([(name, getattr(made, name).__set__) for name in fields])  # those of the slots
    check = getattr(made, "__post_init__", None)

    def init(self: Any, /, **given: Any) -> None:
        if given.keys() != fields.keys():
            given = _complete(made.__name__, fields, given)
        for name, put in puts:
            put(self, given[name])
        if check is not None:
            check(self)

    return init


def _complete(
    cls: str, fields: Mapping[str, dataclasses.Field[Any]], given: dict[str, Any]
) -> dict[str, Any]:
    """What is given, and defaults for the rest. Raises TypeError naming a field too many or too few."""
    if unknown := given.keys() - fields.keys():
        raise TypeError(f"{cls}: expected no value for {', '.join(sorted(unknown))}, got one")
    full = dict(given)
    for name, field in fields.items():
        if name in given:
            continue
        if field.default is not dataclasses.MISSING:
            full[name] = field.default
        elif field.default_factory is not dataclasses.MISSING:
            full[name] = field.default_factory()
        else:
            raise TypeError(f"{cls}: expected a value for {name}, got none")
    return full


def _values(self: Any) -> tuple[Any, ...]:
    return tuple([getattr(self, name) for name in getattr(self, _FIELDS)])


def _repr(self: Any) -> str:
    shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in getattr(self, _FIELDS))
    return f"{type(self).__qualname__}({shown})"


def _equal(self: Any, other: object) -> bool:
    return _values(self) == _values(other) if type(other) is type(self) else NotImplemented


def _hash(self: Any) -> int:
    return hash(_values(self))


def _set(_self: Any, name: str, _value: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _delete(_self: Any, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> Mapping[str, Any]:
    return {name: getattr(self, name) for name in getattr(self, _FIELDS)}


def _restore(self: Any, state: Mapping[str, Any]) -> None:
    for name, value in state.items():
        object.__setattr__(self, name, value)
