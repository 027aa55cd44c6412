"""The simulator for JAX: one pure step, for whole batches of patients inside one compiled loop; needs JAX.

`step` treats one patient; `jax.vmap` of it treats a batch, and `lax.scan` may contain either. It computes in
float64, so it agrees with NumPy's `step` to rounding: call it inside `with jax.enable_x64(True):`, or
set `jax_enable_x64`. On a CPU one patient runs a loop of scalars, and the lanes of a batch one of vector
instructions, until the last of them is done. On an NVIDIA GPU the whole adaptive loop is one kernel, in which
no lane waits for another.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import custom_vmap
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as pltriton

from chary.envs.hiv import _arithmetic as rk
from chary.envs.hiv.parameters import EFFICACIES, LOG_HIGH, LOG_LOW, NAMES, OBSERVATION_MEAN, OBSERVATION_STD
from chary.errors import InvalidData, InvalidSetting

N_ACTIONS, N_CONSTANTS = len(EFFICACIES), 19
# Attempts of a loop of scalars between two checks whether it is done; a step takes about 20 attempts.
ATTEMPTS_A_TURN = 8


class StepResult(NamedTuple):
    """The result of a step: the six concentrations after it, the unscaled reward, and whether it succeeded.

    If `ok` is False, the concentrations and the reward are NaN: the action does not exist, a concentration
    was negative or not finite, or the equations could not be integrated.
    """

    state: jax.Array
    reward: jax.Array
    ok: jax.Array


def step(params: jax.Array, state: jax.Array, action: jax.Array) -> StepResult:
    """Treat one patient by `action` for five days.

    Args:
        params: A patient's numbers, float64, shape (20,): `patient(name).vector`.
        state: Concentrations, float64, shape (6,).
        action: A whole number in 0..3, shape ().

    Raises:
        InvalidSetting: if float64 is switched off in JAX.
        InvalidData: if a shape or type is wrong. Values are not checked: see `StepResult`.

    Example:
        >>> from chary.envs.hiv import START, patient
        >>> with jax.enable_x64(True):
        ...     after, reward, ok = jax.jit(step)(patient(5).vector, START, 3)
        >>> bool(ok), after.shape
        (True, (6,))
    """
    p, y, a = _checked(params, state, action)
    exists = (a >= 0) & (a < N_ACTIONS)
    efficacies = jnp.asarray(EFFICACIES)[jnp.where(exists, a, 0)]
    e1, e2 = efficacies[0], efficacies[1]
    valid = exists & jnp.all(jnp.isfinite(y) & (y >= 0.0))
    # An invalid lane must not keep the other lanes waiting.
    begin = jnp.where(valid, y, 1.0)
    constants = jnp.stack(rk.under_treatment(p, e1, e2))
    after, done = _flow(constants[:, None], begin[:, None])
    after = jnp.maximum(after[:, 0], 0.0)
    reward = rk.reward_of(after[4], after[5], e1, e2)
    ok = valid & (done[0] > 0.5) & jnp.isfinite(reward)
    return StepResult(jnp.where(ok, after, jnp.nan), jnp.where(ok, reward, jnp.nan), ok)


def observe(state: jax.Array, *, standardise: bool = True) -> jax.Array:
    """Return the observation of concentrations, shape (..., 6): `chary.envs.hiv.observe` without checks."""
    logs = jnp.log10(jnp.clip(state, 10.0**LOG_LOW, 10.0**LOG_HIGH))
    mean, std = OBSERVATION_MEAN.astype(logs.dtype), OBSERVATION_STD.astype(logs.dtype)
    return (logs - mean) / std if standardise else logs


def _checked(params: object, state: object, action: object) -> tuple[jax.Array, jax.Array, jax.Array]:
    if jnp.result_type(float) != jnp.float64:
        raise InvalidSetting(
            "'jax_enable_x64' must be on, got off: the equations are integrated in float64. "
            "Call inside `with jax.enable_x64(True):`."
        )
    try:
        p, y, a = jnp.asarray(params), jnp.asarray(state), jnp.asarray(action)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidData(f"'params', 'state' and 'action' must be arrays of numbers: {error}.") from None
    for name, value, shape in (("params", p, (len(NAMES),)), ("state", y, (6,))):
        if value.shape != shape or value.dtype != jnp.float64:
            raise InvalidData(
                f"{name!r} must be float64 of shape {shape}, got {value.dtype} of shape {value.shape}. "
                "Use jax.vmap for more than one patient."
            )
    if a.shape != () or not jnp.issubdtype(a.dtype, jnp.integer):
        raise InvalidData(f"'action' must be a whole number of shape (), got {a.dtype} of shape {a.shape}.")
    return p, y, a


@custom_vmap
def _flow(q: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Integrate B lanes over the days of an action: constants (19, B) and concentrations (6, B).

    Returns concentrations (6, B), and 1.0 for every lane that was integrated to the end, shape (B,).
    """
    result: tuple[jax.Array, jax.Array] = lax.platform_dependent(
        q, y, cuda=_flow_on_gpu, default=_flow_in_scalars if y.shape[-1] == 1 else _flow_in_vectors
    )
    return result


@_flow.def_vmap
def _flow_of_a_batch(
    size: int, batched: list[bool], q: jax.Array, y: jax.Array
) -> tuple[tuple[jax.Array, jax.Array], tuple[bool, bool]]:
    """Put the lanes of a batch one after another: lanes are the last axis, in memory too."""
    inner = y.shape[-1]

    def joined(x: jax.Array, has_batch: bool) -> jax.Array:
        whole = x if has_batch else jnp.broadcast_to(x, (size, *x.shape))
        return jnp.moveaxis(whole, 0, 1).reshape(whole.shape[1], size * inner)

    after, done = _flow(joined(q, batched[0]), joined(y, batched[1]))
    return (jnp.moveaxis(after.reshape(6, size, inner), 1, 0), done.reshape(size, inner)), (True, True)


class _Lanes(NamedTuple):
    """The state of the integration of some lanes.

    The day, the length of the next step, concentrations and slopes, whether the last attempt was refused, and
    the number of attempts.
    """

    t: Any
    h: Any
    y: Any
    k1: Any
    refused: Any
    n: Any


def _begin(y: Any, k1: Any) -> _Lanes:
    h = jnp.sqrt(rk.first_step(y, k1))
    h = jnp.where(h >= rk.SHORTEST_FIRST, h, rk.SHORTEST_FIRST)
    return _Lanes(jnp.zeros_like(h), h, y, k1, h < 0.0, jnp.int32(0))


def _live(lanes: _Lanes) -> Any:
    """Return which lanes have days left and have not failed."""
    failed = lanes.refused & (lanes.h < rk.SHORTEST)
    return (lanes.t < rk.DAYS) & ~failed & (lanes.n < rk.MAX_ATTEMPTS)


def _move(lanes: _Lanes, h: Any, last: Any, z: Any, k7: Any, error: Any) -> _Lanes:
    """Return the lanes after an attempt: the same decisions as in `_kernels.step_into`, by selection."""
    factor = jnp.where(error <= rk.NO_ERROR, rk.GROWTH, rk.SAFETY * jnp.exp(-0.1 * jnp.log(error)))
    factor = jnp.where(factor >= rk.SHRINKAGE, factor, rk.SHRINKAGE)
    # Triton cannot compile a choice between two constants (JAX 0.11).
    factor = jnp.where(lanes.refused, jnp.minimum(factor, 1.0), jnp.minimum(factor, rk.GROWTH))
    live, fits = _live(lanes), error <= 1.0
    moves = live & fits
    return _Lanes(
        t=jnp.where(moves, jnp.where(last, rk.DAYS, lanes.t + h), lanes.t),
        h=jnp.where(live, h * factor, lanes.h),
        y=jax.tree.map(partial(jnp.where, moves), z, lanes.y),
        k1=jax.tree.map(partial(jnp.where, moves), k7, lanes.k1),
        refused=jnp.where(live, ~fits, lanes.refused),
        n=lanes.n + 1,
    )


def _attempted(q: Any, lanes: _Lanes) -> _Lanes:
    """Return the lanes after one attempt, for constants, concentrations and slopes that are tuples."""
    last = lanes.t + lanes.h >= rk.DAYS
    h = jnp.where(last, rk.DAYS - lanes.t, lanes.h)
    return _move(lanes, h, last, *rk.attempt(q, lanes.y, lanes.k1, h))


def _flow_in_scalars(q: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Integrate one lane with scalars only, some attempts at a time.

    XLA compiles the body of a loop on a CPU into many kernels, whose calls cost more than such an attempt
    does (jaxlib 0.10). The function of a reduction becomes one kernel, so the attempts of a turn are made as
    a reduction over copies of the lane, which attempts on its left argument and ignores the right one. In
    whatever order XLA combines them, the result is the lane after some attempts, at least one: the number of
    turns may differ, the final result does not.
    """
    constants = tuple(q[i, 0] for i in range(N_CONSTANTS))
    first = tuple(y[i, 0] for i in range(6))
    begin, shape = jax.tree.flatten(_begin(first, rk.slope(constants, first)))
    size = len(begin)

    def lane(values: Any) -> _Lanes:
        unflattened: _Lanes = jax.tree.unflatten(shape, values[:size])
        return unflattened

    def combined(left: Any, _: Any) -> Any:
        return (*jax.tree.leaves(_attempted(left[size:], lane(left))), *left[size:])

    def turn(values: Any) -> Any:
        copies = tuple(jnp.broadcast_to(value, (ATTEMPTS_A_TURN,)) for value in values)
        return tuple(lax.reduce(copies, values, combined, (0,)))

    # The constants are part of the lane: a reduction may not close over them.
    end = lane(lax.while_loop(lambda values: _live(lane(values)), turn, (*begin, *constants)))
    return jnp.stack(end.y)[:, None], (end.t >= rk.DAYS).astype(jnp.float64)[None]


def _flow_in_vectors(q: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Integrate all lanes together, until the last of them is done."""

    def stacked_slope(y: jax.Array) -> jax.Array:
        return jnp.stack(rk.slope(tuple(q), y))

    def tried(y: jax.Array, k1: jax.Array, h: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        # As `attempt`, with the slopes of each stage put together into one array: XLA would otherwise fuse
        # the stages, and compute the early ones again for each of the later (jaxlib 0.10, 30 times slower).
        ks = [k1]
        z = y
        for weights in rk.TABLEAU:
            z = y + h * sum(w * k for w, k in zip(weights, ks, strict=True) if w != 0.0)
            ks.append(stacked_slope(z))
        e = h * sum(w * k for w, k in zip(rk.ERROR, ks, strict=True) if w != 0.0)
        return z, ks[-1], rk.norm2(e, y, z)

    def body(lanes: _Lanes) -> _Lanes:
        last = lanes.t + lanes.h >= rk.DAYS
        h = jnp.where(last, rk.DAYS - lanes.t, lanes.h)
        return _move(lanes, h, last, *tried(lanes.y, lanes.k1, h))

    end = lax.while_loop(lambda lanes: jnp.any(_live(lanes)), body, _begin(y, stacked_slope(y)))
    return end.y, (end.t >= rk.DAYS).astype(jnp.float64)


def _flow_on_gpu(q: jax.Array, y: jax.Array, *, interpret: bool = False) -> tuple[jax.Array, jax.Array]:
    """Integrate every lane in its own program, by one kernel that contains the adaptive loop."""
    lanes = y.shape[-1]
    after, done = pl.pallas_call(
        _kernel,
        out_shape=(
            jax.ShapeDtypeStruct((6, lanes), jnp.float64),  # type: ignore[no-untyped-call]
            jax.ShapeDtypeStruct((lanes,), jnp.float64),  # type: ignore[no-untyped-call]
        ),
        grid=(lanes,),
        # One warp: a lane is one thread's work. JAX 0.11 warns that Triton will be dropped; Mosaic, its
        # successor, supports only Hopper and later.
        compiler_params=pltriton.CompilerParams(num_warps=1, num_stages=1),
        interpret=interpret,
    )(q, y)
    return after, done


def _kernel(q_ref: Any, y_ref: Any, after_ref: Any, done_ref: Any) -> None:
    lane = pl.program_id(0)
    q = tuple(q_ref[i, lane] for i in range(N_CONSTANTS))
    y = tuple(y_ref[i, lane] for i in range(6))

    end = lax.while_loop(_live, partial(_attempted, q), _begin(y, rk.slope(q, y)))
    for i in range(6):
        after_ref[i, lane] = end.y[i]
    done_ref[lane] = (end.t >= rk.DAYS).astype(jnp.float64)
