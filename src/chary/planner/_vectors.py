"""Rows applied to several value functions at once, one per lane: the inner loop of `_batch`, as vectors.

A lane is one element of a vector; `half_row_into` has half as many. The sums of a lane are those of
`expected_backup`, in its order and with its roundings: a vector contains one sum per lane, and never adds
across lanes. numba does not turn such loops into vector code by itself (as of 0.68, where its SLP pass is
off), hence LLVM's own instructions.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import config, types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from chary.arrays import Floats

# Successors, 32 bits wide where they are read so often that it matters.
Places = NDArray[np.int64] | NDArray[np.int32]

LANES = 16
HALF = LANES // 2

VECTOR = ir.VectorType(ir.DoubleType(), LANES)
INT32, INT64 = ir.IntType(32), ir.IntType(64)
BYTE = ir.IntType(8).as_pointer()


def _splat(builder: Any, x: Any, lanes: int = LANES) -> Any:
    """Return a vector with x in every lane."""
    nothing = ir.Constant(ir.VectorType(ir.DoubleType(), lanes), ir.Undefined)
    first = builder.insert_element(nothing, x, ir.Constant(INT32, 0))
    places = ir.Constant(ir.VectorType(INT32, lanes), [0] * lanes)
    return builder.shuffle_vector(first, nothing, places)


def _vector_at(builder: Any, pointer: Any, row: Any, lanes: int = LANES) -> Any:
    """Return the address of row `row` of an array with `lanes` columns."""
    offset = builder.mul(row, ir.Constant(INT64, lanes))
    vector = ir.VectorType(pointer.type.pointee, lanes)
    return builder.bitcast(builder.gep(pointer, [offset]), vector.as_pointer())


def _load(builder: Any, pointer: Any, row: Any, lanes: int = LANES) -> Any:
    place = _vector_at(builder, pointer, row, lanes)
    return builder.load(place, align=8 if place.type.pointee.element == ir.DoubleType() else 4)


def _sums(
    builder: Any,
    begin: Any,
    end: Any,
    terms: Callable[[Any], list[Any]],
    starts: list[Any],
) -> list[Any]:
    """Emit the loop over entries begin..end-1; return `starts` with their terms added in turn.

    `terms(i)` gives the vectors of entry i, one per start.
    """
    before = builder.block
    loop = builder.append_basic_block("entries")
    done = builder.append_basic_block("summed")
    vector = starts[0].type
    builder.cbranch(builder.icmp_signed("<", begin, end), loop, done)
    builder.position_at_end(loop)
    i = builder.phi(INT64)
    i.add_incoming(begin, before)
    sums = [builder.phi(vector) for _ in starts]
    longer = []
    for total, start, term in zip(sums, starts, terms(i), strict=True):
        total.add_incoming(start, before)
        longer.append(builder.fadd(total, term))
    following = builder.add(i, ir.Constant(INT64, 1))
    i.add_incoming(following, builder.block)
    for total, new in zip(sums, longer, strict=True):
        total.add_incoming(new, builder.block)
    after = builder.block
    builder.cbranch(builder.icmp_signed("<", following, end), loop, done)
    builder.position_at_end(done)
    results = [builder.phi(vector) for _ in starts]
    for result, start, new in zip(results, starts, longer, strict=True):
        result.add_incoming(start, before)
        result.add_incoming(new, after)
    return results


def _row_sums(
    builder: Any,
    begin: Any,
    end: Any,
    successor: Any,
    weights: Callable[[Any], Any],
    values: list[Any],
    lanes: int = LANES,
) -> list[Any]:
    """Return, for each array of values, sum_i weight_i V(x_i) by lane, `weights(i)` being a vector."""
    terms = _terms(builder, successor, weights, values, lanes)
    return _sums(builder, begin, end, terms, [_zero(lanes)] * len(values))


def _terms(
    builder: Any, successor: Any, weights: Callable[[Any], Any], values: list[Any], lanes: int
) -> Callable[[Any], list[Any]]:
    def terms(i: Any) -> list[Any]:
        x = builder.load(builder.gep(successor, [i]))
        if x.type.width < INT64.width:
            x = builder.zext(x, INT64)
        weight = weights(i)
        return [builder.fmul(weight, _load(builder, v, x, lanes)) for v in values]

    return terms


def _zero(lanes: int = LANES) -> Any:
    return ir.Constant(ir.VectorType(ir.DoubleType(), lanes), [0.0] * lanes)


def _finish(builder: Any, future: Any, reward: Any, discount: Any, n: Any, shift: Any, top: Any) -> Any:
    """Emit min((reward + discount * future) / n + shift, top) on vectors."""
    value = builder.fdiv(builder.fadd(reward, builder.fmul(discount, future)), n)
    value = builder.fadd(value, shift)
    return builder.select(builder.fcmp_ordered("<", top, value), top, value)


def _floor(builder: Any, value: Any) -> Any:
    """Emit max(value, 0)."""
    zero = _zero()
    return builder.select(builder.fcmp_ordered(">", zero, value), zero, value)


def _data(context: Any, builder: Any, sig: Any, args: Any, place: int) -> Any:
    return context.make_array(sig.args[place])(context, builder, args[place]).data


def _store(context: Any, builder: Any, sig: Any, args: Any, row: int, value: Any, lanes: int = LANES) -> None:
    """Emit the store of a vector into the array that is the first argument, at the row of argument `row`."""
    target = _vector_at(builder, _data(context, builder, sig, args, 0), args[row], lanes)
    builder.store(value, target, align=8)


def _splat_weights(context: Any, builder: Any, sig: Any, args: Any, place: int, lanes: int = LANES) -> Any:
    weight = _data(context, builder, sig, args, place)
    return lambda i: _splat(builder, builder.load(builder.gep(weight, [i])), lanes)


def _emit_one_row(context: Any, builder: Any, sig: Any, args: Any, lanes: int = LANES) -> Any:
    successor, v = (_data(context, builder, sig, args, place) for place in (4, 6))
    weights = _splat_weights(context, builder, sig, args, 5, lanes)
    (future,) = _row_sums(builder, args[2], args[3], successor, weights, [v], lanes)
    value = _finish(builder, future, *(_splat(builder, x, lanes) for x in args[7:]))
    _store(context, builder, sig, args, 1, value, lanes)
    return context.get_dummy_value()


def _emit_half_row(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    return _emit_one_row(context, builder, sig, args, HALF)


def _emit_two_half_rows(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    successor, v = (_data(context, builder, sig, args, place) for place in (7, 9))
    terms = _terms(builder, successor, _splat_weights(context, builder, sig, args, 8, HALF), [v], HALF)
    begins, lengths = (args[3], args[5]), [builder.sub(args[4], args[3]), builder.sub(args[6], args[5])]
    both = builder.select(builder.icmp_signed("<", *lengths), *lengths)

    def pair(i: Any) -> list[Any]:
        return [term for begin in begins for term in terms(builder.add(begin, i))]

    sums = _sums(builder, ir.Constant(INT64, 0), both, pair, [_zero(HALF)] * 2)
    discount = _splat(builder, args[12], HALF)
    for place, begin, end, start in zip((0, 1), begins, (args[4], args[6]), sums, strict=True):
        (future,) = _sums(builder, builder.add(begin, both), end, terms, [start])
        reward = _splat(builder, args[10 + place], HALF)
        value = builder.fadd(reward, builder.fmul(discount, future))
        _store(context, builder, sig, args, 1 + place, value, HALF)
    return context.get_dummy_value()


def _emit_both_sides(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    successor, *values = (_data(context, builder, sig, args, place) for place in (5, 7, 8))
    weights = _splat_weights(context, builder, sig, args, 6)
    futures = _row_sums(builder, args[3], args[4], successor, weights, values)
    reward, discount, n, width, top = (_splat(builder, x) for x in args[9:])
    below = builder.fsub(ir.Constant(VECTOR, [-0.0] * LANES), width)
    for row, future, shift in zip((1, 2), futures, (below, width), strict=True):
        value = _finish(builder, future, reward, discount, n, shift, top)
        _store(context, builder, sig, args, row, _floor(builder, value))
    return context.get_dummy_value()


def _emit_versions(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    successor, weight, v = (_data(context, builder, sig, args, place) for place in (4, 5, 6))

    def weights(i: Any) -> Any:
        counts = _load(builder, weight, i)
        return counts if counts.type == VECTOR else builder.sitofp(counts, VECTOR)

    (future,) = _row_sums(builder, args[2], args[3], successor, weights, [v])
    reward, n, width = (
        _load(builder, _data(context, builder, sig, args, place), args[7]) for place in (8, 10, 12)
    )
    discount, sign, top = (_splat(builder, args[place]) for place in (9, 11, 13))
    value = _finish(builder, future, reward, discount, n, builder.fmul(sign, width), top)
    _store(context, builder, sig, args, 1, value)
    return context.get_dummy_value()


def _emit_largest(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    vector = _load(builder, _data(context, builder, sig, args, 0), args[1])
    left = [builder.extract_element(vector, ir.Constant(INT32, j)) for j in range(LANES)]
    while len(left) > 1:
        pairs = zip(left[::2], left[1::2], strict=True)
        left = [builder.select(builder.fcmp_ordered(">", b, a), b, a) for a, b in pairs]
    return left[0]


def _any_lane(builder: Any, lanes: Any) -> Any:
    mask = ir.IntType(LANES)
    return builder.icmp_unsigned("!=", builder.bitcast(lanes, mask), ir.Constant(mask, 0))


def _emit_reaches(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    room = _data(context, builder, sig, args, 0)
    value, best = (_load(builder, room, args[place]) for place in (1, 2))
    return _any_lane(builder, builder.fcmp_ordered(">=", value, best))


def _emit_exceeds(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    value = _load(builder, _data(context, builder, sig, args, 0), args[1])
    return builder.not_(_any_lane(builder, builder.fcmp_ordered("<=", value, _splat(builder, args[2]))))


def _emit_floor(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    value = _load(builder, _data(context, builder, sig, args, 0), args[1])
    _store(context, builder, sig, args, 1, _floor(builder, value))
    return context.get_dummy_value()


def _emit_fill(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    _store(context, builder, sig, args, 1, _splat(builder, args[2]))
    return context.get_dummy_value()


def _emit_gains(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    room, later = (_data(context, builder, sig, args, place) for place in (0, 4))
    value = _load(builder, room, args[3])
    for row, other in ((1, _load(builder, later, args[5])), (2, _splat(builder, args[6]))):
        gain, most = builder.fsub(value, other), _load(builder, room, args[row])
        larger = builder.select(builder.fcmp_ordered(">", gain, most), gain, most)
        _store(context, builder, sig, args, row, larger)
    return context.get_dummy_value()


def _emit_copy(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    _store(context, builder, sig, args, 1, _load(builder, _data(context, builder, sig, args, 2), args[3]))
    return context.get_dummy_value()


def _emit_fetch(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    near = builder.bitcast(builder.gep(_data(context, builder, sig, args, 0), [args[1]]), BYTE)
    kind = ir.FunctionType(ir.VoidType(), [BYTE, INT32, INT32, INT32])
    prefetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
    # To be read, and again soon, as data.
    builder.call(prefetch, [near, INT32(0), INT32(3), INT32(1)])
    return context.get_dummy_value()


F = TypeVar("F", bound=Callable[..., Any])


def _instruction(emit: Callable[..., Any], returns: types.Type = types.void) -> Callable[[F], F]:
    """Make an instruction of kernels out of its slow twin, which stays in its place where numba is off."""

    def decorate(twin: F) -> F:
        if config.DISABLE_JIT:  # type: ignore[attr-defined]
            return twin

        def typed(_: Any, *arguments: types.Type) -> tuple[Any, Callable[..., Any]]:
            return returns(*arguments), emit

        typed.__name__ = twin.__name__
        # numba reads the names of the arguments here, behind that of the typing context.
        context = inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        names = inspect.signature(twin).parameters.values()
        typed.__signature__ = inspect.Signature([context, *names])  # type: ignore[attr-defined]
        return cast(F, intrinsic(typed))

    return decorate


def _within(future: Floats, reward: Any, discount: float, n: Any, shift: Any, top: float) -> Floats:
    with np.errstate(invalid="ignore"):
        value: Floats = np.minimum((reward + discount * future) / n + shift, top)
    return value


def _row_into(
    out: Floats,
    row: int,
    begin: int,
    end: int,
    successor: Places,
    weight: Floats,
    v: Floats,
    reward: float,
    discount: float,
    n: float,
    shift: float,
    top: float,
) -> None:
    """Fill out[row] with (reward + discount * sum_i w_i V(x_i)) / n + shift per lane, at most `top`."""
    future = np.zeros(v.shape[1])
    for i in range(begin, end):
        future += weight[i] * v[successor[i]]
    out[row] = _within(future, reward, discount, n, shift, top)


# With values `v` of shape (S, LANES), and of shape (S, HALF).
one_row_into = _instruction(_emit_one_row)(_row_into)
half_row_into = _instruction(_emit_half_row)(_row_into)


@_instruction(_emit_two_half_rows)
def two_half_rows_into(
    out: Floats,
    row: int,
    other: int,
    begin: int,
    end: int,
    begin_other: int,
    end_other: int,
    successor: Places,
    weight: Floats,
    v: Floats,
    reward: float,
    reward_other: float,
    discount: float,
) -> None:
    """Fill out[row] and out[other], HALF lanes each: reward + discount * sum_i w_i V(x_i).

    A sum waits for each of its additions; two of them at a time wait half as long.
    """
    for place, first, last, r in ((row, begin, end, reward), (other, begin_other, end_other, reward_other)):
        future = np.zeros(HALF)
        for i in range(first, last):
            future += weight[i] * v[successor[i]]
        out[place] = r + discount * future


@_instruction(_emit_both_sides)
def both_sides_into(
    out: Floats,
    lower: int,
    upper: int,
    begin: int,
    end: int,
    successor: Places,
    weight: Floats,
    v_lower: Floats,
    v_upper: Floats,
    reward: float,
    discount: float,
    n: float,
    width: float,
    top: float,
) -> None:
    """Fill out[lower] and out[upper] from one reading: shifts of -width and +width, and nothing below 0."""
    for row, v, shift in ((lower, v_lower, -width), (upper, v_upper, width)):
        future = np.zeros(LANES)
        for i in range(begin, end):
            future += weight[i] * v[successor[i]]
        out[row] = np.maximum(_within(future, reward, discount, n, shift, top), 0.0)


@_instruction(_emit_versions)
def versions_into(
    out: Floats,
    row: int,
    begin: int,
    end: int,
    successor: Places,
    weight: Floats,
    v: Floats,
    version: int,
    reward: Floats,
    discount: float,
    n: Floats,
    sign: float,
    width: Floats,
    top: float,
) -> None:
    """Do what `one_row_into` does where every lane has its own counts.

    `weight` has shape (entries, LANES); `reward`, `n` and `width` have rows of LANES, of which `version` is
    read. Lanes with n = 0 are NaN.
    """
    future = np.zeros(LANES)
    for i in range(begin, end):
        future += weight[i] * v[successor[i]]
    out[row] = _within(future, reward[version], discount, n[version], sign * width[version], top)


@_instruction(_emit_largest, types.float64)
def largest(values: Floats, row: int) -> float:
    """Return the largest of values[row]."""
    return float(values[row].max())


@_instruction(_emit_exceeds, types.boolean)
def exceeds(values: Floats, row: int, x: float) -> bool:
    """Return whether values[row] exceeds x in every lane."""
    return bool((values[row] > x).all())


@_instruction(_emit_reaches, types.boolean)
def reaches(values: Floats, row: int, other: int) -> bool:
    """Return whether values[row] reaches values[other] in any lane."""
    return bool((values[row] >= values[other]).any())


@_instruction(_emit_floor)
def floor_into(values: Floats, row: int) -> None:
    """Raise values[row] to 0 where it lies below."""
    values[row] = np.maximum(values[row], 0.0)


@_instruction(_emit_fill)
def fill_into(values: Floats, row: int, x: float) -> None:
    """Set values[row] to x in every lane."""
    values[row] = x


@_instruction(_emit_gains)
def gains_into(
    values: Floats, over_later: int, over_before: int, best: int, later: Floats, s: int, before: float
) -> None:
    """Raise two rows to what values[best] has more than later[s], and more than `before` in every lane."""
    values[over_later] = np.maximum(values[over_later], values[best] - later[s])
    values[over_before] = np.maximum(values[over_before], values[best] - before)


@_instruction(_emit_copy)
def copy_into(out: Floats, row: int, values: Floats, other: int) -> None:
    """Copy values[other] to out[row]."""
    out[row] = values[other]


@_instruction(_emit_fetch)
def fetch(values: NDArray[Any], place: int) -> None:
    """Ask the memory for element `place` of an array as it lies there; it will be read soon."""
