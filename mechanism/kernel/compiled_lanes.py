"""Eight 32-bit numbers at a time, for numba: what the inner loops are written in.

numba knows no vectors, and what its compiler makes of a loop over columns is not always what the machine
could do. Here are two kinds of value, LANES fp32 or int32 each, and the operations on them that the compiled
arithmetic needs. Each is one of LLVM's, lane by lane, rounded as the thread rounds; none checks its place.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.datamodel import models
from numba.core.imputils import lower_builtin
from numba.core.typing.templates import ConcreteTemplate, infer_global, signature
from numba.extending import intrinsic, register_model
from numba.np import arrayobj

LANES = 8

_INT, _FLOAT, _BYTE = ir.IntType(32), ir.FloatType(), ir.IntType(8)
_BYTES = ir.VectorType(_BYTE, 4 * LANES)
_WORDS = ir.VectorType(ir.IntType(16), 2 * LANES)
_WIDE = ir.VectorType(ir.DoubleType(), LANES)

Build = Callable[..., Any]


class Lanes(types.Type):
    """LANES numbers of one kind."""

    def __init__(self, name: str, of: ir.Type) -> None:
        super().__init__(name=name)
        self.vector = ir.VectorType(of, LANES)


FLOATS, INTS = Lanes("fp32 lanes", _FLOAT), Lanes("int32 lanes", _INT)


@register_model(Lanes)
class _Model(models.PrimitiveModel):
    """Held as LLVM's own vectors."""

    def __init__(self, manager: Any, kind: Lanes) -> None:
        super().__init__(manager, kind, kind.vector)  # type: ignore[no-untyped-call]


def _operator(symbol: Any, kind: Lanes, name: str) -> None:
    """An operator of two values of a kind: an instruction by its name, to numba's typing and to its code."""

    @lower_builtin(symbol, kind, kind)  # type: ignore[untyped-decorator]
    def lowered(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return getattr(builder, name)(*arguments)

    @infer_global(symbol)
    class _Typed(ConcreteTemplate):
        cases = (signature(kind, kind, kind),)


for _symbol, _name in ((operator.add, "fadd"), (operator.sub, "fsub"), (operator.mul, "fmul")):
    _operator(_symbol, FLOATS, _name)
for _symbol, _name in (
    (operator.add, "add"),  # modulo 2^32, and so is the difference
    (operator.sub, "sub"),
    (operator.and_, "and_"),
    (operator.or_, "or_"),
    (operator.lshift, "shl"),
    (operator.rshift, "lshr"),  # zeros come in
):
    _operator(_symbol, INTS, _name)


def _made(result: Any, *kinds: Any) -> Callable[[Build], Any]:
    """What the decorated function builds of values of these kinds, as a function for numba."""

    def decorate(build: Build) -> Any:
        def typed(_context: Any, *_arguments: Any) -> Any:
            return result(*kinds), lambda _context, builder, _signature, values: build(builder, *values)

        typed.__name__, typed.__doc__ = build.__name__, build.__doc__
        typed.__signature__ = inspect.signature(build)  # type: ignore[attr-defined]
        return intrinsic(typed)

    return decorate


def _spread(builder: Any, value: Any, vector: ir.VectorType) -> Any:
    empty = ir.Constant(vector, ir.Undefined)
    first = ir.Constant(ir.VectorType(_INT, vector.count), [0] * vector.count)
    return builder.shuffle_vector(builder.insert_element(empty, value, _INT(0)), empty, first)


@intrinsic
def spread(_context: Any, value: Any) -> Any:
    """One fp32 or int32 in every lane, or one int8 in all four bytes of every lane."""
    kind = FLOATS if value == types.float32 else INTS
    vector = _BYTES if value == types.int8 else kind.vector

    def build(_context: Any, builder: Any, _made: Any, values: Any) -> Any:
        return builder.bitcast(_spread(builder, values[0], vector), kind.vector)

    return kind(value), build


@_made(INTS, FLOATS)
def as_ints(builder: Any, value: Any) -> Any:
    """The bits of fp32."""
    return builder.bitcast(value, INTS.vector)


@_made(FLOATS, INTS)
def as_floats(builder: Any, value: Any) -> Any:
    """The fp32 that have these bits."""
    return builder.bitcast(value, FLOATS.vector)


@_made(INTS, FLOATS)
def cut(builder: Any, value: Any) -> Any:
    """fp32, below 2^31 in size, cut toward zero to int32."""
    return builder.fptosi(value, INTS.vector)


@_made(FLOATS, INTS)
def to_floats(builder: Any, value: Any) -> Any:
    """int32 as fp32, rounded."""
    return builder.sitofp(value, FLOATS.vector)


@_made(FLOATS, INTS, INTS)
def sum_to_floats(builder: Any, x: Any, y: Any) -> Any:
    """The sum of int32, which may leave int32, as fp32, rounded once."""
    total = builder.fadd(builder.sitofp(x, _WIDE), builder.sitofp(y, _WIDE))  # exact
    return builder.fptrunc(total, FLOATS.vector)


@_made(FLOATS, FLOATS, FLOATS, FLOATS)
def fma(builder: Any, x: Any, y: Any, z: Any) -> Any:
    """The product x * y plus z, rounded once."""
    kind = ir.FunctionType(FLOATS.vector, [FLOATS.vector] * 3)
    named = cgutils.get_or_insert_function(builder.module, kind, f"llvm.fma.v{LANES}f32")
    return builder.call(named, (x, y, z))


@_made(INTS, INTS, INTS)
def larger(builder: Any, x: Any, y: Any) -> Any:
    """The larger of two int32."""
    return builder.select(builder.icmp_signed(">", x, y), x, y)


@_made(FLOATS, INTS, INTS, FLOATS, FLOATS)
def chosen(builder: Any, x: Any, y: Any, below: Any, others: Any) -> Any:
    """``below`` where the int32 x is less than y, ``others`` elsewhere."""
    return builder.select(builder.icmp_signed("<", x, y), below, others)


@_made(INTS, INTS, INTS)
def add_bytes(builder: Any, x: Any, y: Any) -> Any:
    """The sums of bytes, modulo 256, four in a lane."""
    total = builder.add(builder.bitcast(x, _BYTES), builder.bitcast(y, _BYTES))
    return builder.bitcast(total, INTS.vector)


@_made(INTS, INTS, INTS)
def larger_bytes(builder: Any, x: Any, y: Any) -> Any:
    """The larger of two int8, four in a lane."""
    x, y = builder.bitcast(x, _BYTES), builder.bitcast(y, _BYTES)
    return builder.bitcast(builder.select(builder.icmp_signed(">", x, y), x, y), INTS.vector)


def _alternate(builder: Any, even: Any, odd: Any, vector: ir.VectorType) -> Any:
    """Elements 0, 2, 4 and so on of the one, 1, 3, 5 and so on of the other, each in its place."""
    places = [at + (at % 2) * vector.count for at in range(vector.count)]
    places = ir.Constant(ir.VectorType(_INT, vector.count), places)
    pair = builder.bitcast(even, vector), builder.bitcast(odd, vector)
    return builder.bitcast(builder.shuffle_vector(*pair, places), INTS.vector)


@_made(INTS, INTS, INTS)
def halves(builder: Any, low: Any, high: Any) -> Any:
    """The low 16 bits of each of the one, the high 16 bits of the other."""
    return _alternate(builder, low, high, _WORDS)


@_made(INTS, INTS, INTS)
def bytes_in_turn(builder: Any, even: Any, odd: Any) -> Any:
    """Bytes 0 and 2 of each of the one, 1 and 3 of the other."""
    return _alternate(builder, even, odd, _BYTES)


def _pointer(context: Any, builder: Any, kinds: Any, values: Any, to: ir.Type) -> Any:
    """``array[at]`` as a pointer; ``at`` is an integer, or a tuple of one for each dimension."""
    kind, at = kinds[:2]
    view = arrayobj.make_array(kind)(context, builder, values[0])
    several = isinstance(at, types.BaseTuple)
    parts = cgutils.unpack_tuple(builder, values[1]) if several else [values[1]]
    places = [
        context.cast(builder, part, of, types.intp)
        for part, of in zip(parts, at if several else [at], strict=True)
    ]
    pointer = cgutils.get_item_pointer(context, builder, kind, view, places, wraparound=False)
    return builder.bitcast(pointer, ir.PointerType(to))


@intrinsic
def load(_context: Any, array: Any, at: Any) -> Any:
    """LANES numbers from ``array[at]`` on, of an array of fp32, int32 or uint32."""
    kind = FLOATS if array.dtype == types.float32 else INTS

    def build(context: Any, builder: Any, made: Any, values: Any) -> Any:
        return builder.load(_pointer(context, builder, made.args, values, kind.vector), align=4)

    return kind(array, at), build


@intrinsic
def load_fours(_context: Any, array: Any, at: Any) -> Any:
    """4 * LANES int32 or uint32 from ``array[at]`` on, as four lanes: each takes every fourth number."""

    def build(context: Any, builder: Any, made: Any, values: Any) -> Any:
        whole = ir.VectorType(_INT, 4 * LANES)
        loaded = builder.load(_pointer(context, builder, made.args, values, whole), align=4)
        empty = ir.Constant(whole, ir.Undefined)
        parts = [
            builder.shuffle_vector(loaded, empty, ir.Constant(INTS.vector, list(range(part, 4 * LANES, 4))))
            for part in range(4)
        ]
        return context.make_tuple(builder, made.return_type, parts)

    return types.UniTuple(INTS, 4)(array, at), build


@intrinsic
def store(_context: Any, array: Any, at: Any, value: Any) -> Any:
    """Put lanes to ``array[at]`` and what follows."""

    def build(context: Any, builder: Any, made: Any, values: Any) -> Any:
        builder.store(values[2], _pointer(context, builder, made.args, values, value.vector), align=4)
        return context.get_dummy_value()

    return types.void(array, at, value), build


@intrinsic
def prefetch(_context: Any, array: Any, at: Any) -> Any:
    """Ask for the cache line of ``array[at]``: a hint, which reads nothing."""

    def build(context: Any, builder: Any, made: Any, values: Any) -> Any:
        byte = ir.PointerType(_BYTE)
        kind = ir.FunctionType(ir.VoidType(), [byte, _INT, _INT, _INT])
        hint = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
        builder.call(hint, [_pointer(context, builder, made.args, values, _BYTE), _INT(0), _INT(3), _INT(1)])
        return context.get_dummy_value()

    return types.void(array, at), build
