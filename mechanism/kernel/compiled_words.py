"""What the compiled arithmetic needs of the machine and numba has no name for: bits, rounding, turns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

TO_ZERO, TO_NEAREST = 0, 1  # for set_rounding, as LLVM numbers them


Python = Callable[..., Any]


def compiled(function: Python) -> Python:
    """``function`` as machine code that lets go of the interpreter, kept where numba keeps it."""
    return _machine_code(function, cache=True)


def part(function: Python) -> Python:
    """``function`` as machine code that is kept only inside of what calls it, a `compiled` one."""
    return _machine_code(function)


def inlined(function: Python) -> Python:
    """``function`` as part of the machine code of whatever calls it: it may take and give lanes."""
    return _machine_code(function, forceinline=True)


def _machine_code(function: Python, **how: bool) -> Python:
    make: Any = numba.njit
    made: Python = make(nogil=True, error_model="numpy", boundscheck=False, **how)(function)
    return made


def _bitcast(result: Any, argument: Any, to: ir.Type) -> Any:
    def build(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], to)

    return result(argument), build


@intrinsic
def bits32(_context: Any, value: Any) -> Any:
    """The int32 whose bits an fp32 value has."""
    return _bitcast(types.int32, value, ir.IntType(32))


@intrinsic
def value32(_context: Any, bits: Any) -> Any:
    """The fp32 value that has the bits of an int32."""
    return _bitcast(types.float32, bits, ir.FloatType())


@intrinsic
def set_rounding(_context: Any, mode: Any) -> Any:  # noqa: ARG001 - numba matches it by name
    """How this thread rounds from here on: TO_ZERO or TO_NEAREST, int32."""

    def build(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [ir.IntType(32)])
        builder.call(builder.module.declare_intrinsic("llvm.set.rounding", (), kind), arguments)
        return context.get_dummy_value()

    return types.void(types.int32), build


@intrinsic
def next_turn(_context: Any, turn: Any) -> Any:
    """What int64 (1,) ``turn`` holds; it is one more afterwards, and no thread gets the same."""

    def build(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        place = context.make_array(sig.args[0])(context, builder, arguments[0]).data
        return builder.atomic_rmw("add", place, ir.Constant(ir.IntType(64), 1), "monotonic")

    return types.int64(turn), build
