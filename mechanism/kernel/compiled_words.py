"""What the compiled arithmetic needs of the machine and numba has no name for: bits, rounding, turns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba
import numpy as np
import numpy.typing as npt
from llvmlite import binding, ir
from numba.core import cgutils, types
from numba.extending import intrinsic

_INT, _BYTES = ir.IntType(32), ir.PointerType(ir.IntType(8))
_X86 = binding.get_process_triple().startswith("x86_64")
_TO_ZERO = 3 << 13  # the two bits of MXCSR that say how to round; neither of them: to nearest
_FLUSHING = 1 << 15 | 1 << 6  # subnormal results, and operands, as zeros

Python = Callable[..., Any]
Scalar = TypeVar("Scalar", bound=np.generic)


def read_only(array: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
    """The array as one that is contiguous and not written to: code is compiled for one kind of array."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view


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
def roundings(_context: Any) -> Any:
    """Three int32 for `round_by`, of the thread that asks: toward zero, to nearest, and as it does now.

    The first two keep subnormals, whatever was asked of the thread before.
    """

    def build(context: Any, builder: Any, made: Any, _arguments: Any) -> Any:
        if _X86:
            place = cgutils.alloca_once(builder, _INT)
            _control(builder, "stmxcsr", place)
            now = builder.load(place)
            nearest = builder.and_(now, _INT(~(_TO_ZERO | _FLUSHING)))
            zero = builder.or_(nearest, _INT(_TO_ZERO))
        else:
            kind = ir.FunctionType(_INT, [])
            now = builder.call(builder.module.declare_intrinsic("llvm.get.rounding", (), kind), [])
            zero, nearest = _INT(0), _INT(1)  # as LLVM numbers them
        return context.make_tuple(builder, made.return_type, [zero, nearest, now])

    return types.UniTuple(types.int32, 3)(), build


@intrinsic
def round_by(_context: Any, how: Any) -> Any:
    """This thread rounds so from here on. ``how``: of `roundings`.

    On x86 it is written to MXCSR as it is: LLVM's own way reads it first, and turns the x87 unit too, which
    takes ten times as long.
    """

    def build(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        if _X86:
            place = cgutils.alloca_once(builder, _INT)
            builder.store(arguments[0], place)
            _control(builder, "ldmxcsr", place)
        else:
            kind = ir.FunctionType(ir.VoidType(), [_INT])
            builder.call(builder.module.declare_intrinsic("llvm.set.rounding", (), kind), arguments)
        return context.get_dummy_value()

    return types.void(how), build


def _control(builder: Any, instruction: str, place: Any) -> None:
    """MXCSR to, or from, an int32 in memory."""
    kind = ir.FunctionType(ir.VoidType(), [_BYTES])
    named = cgutils.get_or_insert_function(builder.module, kind, f"llvm.x86.sse.{instruction}")
    builder.call(named, [builder.bitcast(place, _BYTES)])


@intrinsic
def next_turn(_context: Any, turn: Any) -> Any:
    """What int64 (1,) ``turn`` holds; it is one more afterwards, and no thread gets the same."""

    def build(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        place = context.make_array(sig.args[0])(context, builder, arguments[0]).data
        return builder.atomic_rmw("add", place, ir.Constant(ir.IntType(64), 1), "monotonic")

    return types.int64(turn), build
