"""The truth about episodes played: what their deviations from the baseline cost, exactly.

Environment and baseline pi_bar are deterministic, so V^pi_bar(s_t, t) is the discounted sum of rewards of one
rollout, in float64, and Q^pi_bar(s_t, t, a_t) = r_t + gamma V^pi_bar(s_t+1, t+1). Only a step at which some
other action than the baseline's was played needs a rollout: elsewhere V = r + gamma V(next) as played.

Rollouts have two paths. The environment's own step inside JAX makes a pure function: put it under `jax.jit`,
and `jax.vmap` over runs or episodes. On a CPU a `step_many` for NumPy, where a problem has one, is quicker:
lanes of one JAX loop wait for the slowest (benchmarks/deep_audit.py). Both ask the same network in JAX.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import NDArray

from chary.deep.environment import Environment, check_static, observation_size
from chary.deep.loop import StepLog
from chary.deep.networks import LOWER, Networks, forward, one, with_time
from chary.deep.options import DeepOptions
from chary.errors import InvalidData, InvalidSetting, check_integer

__all__ = ["EpisodeAudit", "StepAudit", "audit_episode", "audit_steps", "value_of_baseline"]

# Rollouts of one loop inside JAX. More fill wider vectors, but wait for the slowest, and the latest to begin.
LANES = 24
# Lanes that the network is asked about outside JAX's loops: this, doubled as need be, so that few shapes are
# compiled.
FEWEST_LANES = 32

StepMany = Callable[[Any, NDArray[np.int32]], tuple[Any, Any, Any]]


class StepAudit(NamedTuple):
    """The truth of every step of an episode, shape (H,), 0 after an early end.

    Args:
        deficit: z*_t = V^pi_bar(s_t, t) - Q^pi_bar(s_t, t, a_t), and exactly 0 where `a_t` is the baseline's.
        value: V^pi_bar(s_t, t).
    """

    deficit: jax.Array
    value: jax.Array


class EpisodeAudit(NamedTuple):
    """The truth of an episode, each of shape (); NaN where the environment gave NaN.

    Args:
        deficit: The sum of z*_t, each discounted from its own step.
        largest: The largest z*_t.
        loss: V^pi_bar(s_0, 0) less the discounted return, which is the sum of gamma^t z*_t.
        baseline_value: V^pi_bar(s_0, 0).
        deviations: Steps at which another action than the baseline's was played.
        covered: Those among them whose charge was at least z*_t.
        booked: Deviations that the shield authorised.
        booked_covered: Those among them whose charge was at least z*_t.
    """

    deficit: jax.Array
    largest: jax.Array
    loss: jax.Array
    baseline_value: jax.Array
    deviations: jax.Array
    covered: jax.Array
    booked: jax.Array
    booked_covered: jax.Array


class _Rollouts(NamedTuple):
    """Where some rollouts of the baseline are; `weight` is gamma to the power of a lane's steps so far."""

    state: Any
    action: jax.Array
    live: jax.Array
    weight: jax.Array
    value: jax.Array


def audit_episode(
    environment: Environment,
    options: DeepOptions,
    plan: Networks,
    steps: StepLog,
    *,
    step_many: StepMany | None = None,
    lanes: int = LANES,
) -> EpisodeAudit:
    """Return what an episode's deviations from the baseline cost in truth, eq. (1).

    Charges count as they were booked: with `charge_from="start"` they are held against gamma^t z*_t.

    Args:
        environment: What was played.
        options: What it was played with.
        plan: The networks it was played by: `state.plan` after the episode.
        steps: The episode's steps, leading axis (H,): one row of what `proceed(record=True)` returns.
        step_many: The environment's step for NumPy: from states and actions, both with a leading axis (B,),
            to states, rewards (B,) and ends (B,). With it the call cannot be compiled.
        lanes: Rollouts that one loop inside JAX computes, >= 1; no result depends on it but for rounding.

    Raises:
        InvalidSetting: if a type, shape or number is wrong, or `jax_enable_x64` is off.
        InvalidData: if `plan` or `steps` are not of this environment, or `step_many` returns other shapes.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from chary.deep.loop import begin, proceed
        >>> walk = Environment(
        ...     reset=lambda key: jnp.zeros(1),
        ...     observe=lambda state: state,
        ...     step=lambda state, a: (state + a - 0.5, -jnp.abs(state[0]), jnp.bool_(False)),
        ...     n_actions=2,
        ...     horizon=3,
        ... )
        >>> options = DeepOptions(agent="cql", warm_up=1, pretraining=0, batch=4, width=4, features=4)
        >>> with jax.enable_x64(True):
        ...     state = begin(walk, options, jax.random.key(1))
        ...     state, log, steps = proceed(walk, options, state, 1, record=True)
        ...     found = audit_episode(walk, options, state.plan, jax.tree.map(lambda x: x[0], steps))
        ...     float(found.deficit), int(found.deviations), abs(float(found.loss)) < 1e-12
        (0.0, 0, True)
    """
    truth = audit_steps(environment, options, plan, steps, step_many=step_many, lanes=lanes)
    found: EpisodeAudit = _summed(options, steps, truth)
    return found


def audit_steps(
    environment: Environment,
    options: DeepOptions,
    plan: Networks,
    steps: StepLog,
    *,
    step_many: StepMany | None = None,
    lanes: int = LANES,
) -> StepAudit:
    """Return z*_t and V^pi_bar(s_t, t) of every step, eq. (1); arguments and errors as `audit_episode`."""
    lower = _checked(environment, options, plan)
    size = min(check_integer("lanes", lanes, minimum=1), environment.horizon)
    rows = _checked_steps(environment, steps)
    needed = _deviated(rows)
    if step_many is None:
        rolled = _values_where(environment, options.discount, lower, rows, needed, size)
    else:
        _check_outside(environment, step_many, (plan, steps))
        starts = np.flatnonzero(np.asarray(needed))
        states, actions = jax.tree.map(lambda leaf: np.asarray(leaf)[starts], (rows.state, rows.baseline))
        found = _rollouts_outside(environment, step_many, options.discount, lower, states, starts, actions)
        whole = np.zeros(environment.horizon)
        whole[starts] = found
        rolled = jnp.asarray(whole)
    truth: StepAudit = _telescoped(rows.reward, rows.played, needed, rolled, options.discount)
    return truth


def value_of_baseline(
    environment: Environment, options: DeepOptions, plan: Networks, key: jax.Array
) -> jax.Array:
    """Return V^pi_bar(s_0, 0), the discounted return of the plan's baseline from the start that `key` gives.

    Raises:
        InvalidSetting: if a type or shape is wrong, or `jax_enable_x64` is off.
        InvalidData: if `plan` is not of this environment.
    """
    lower = _checked(environment, options, plan)
    if (
        not isinstance(key, jax.Array)
        or key.shape != ()
        or not jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
    ):
        raise InvalidSetting(f"'key' must be one key of jax.random.key, got {type(key).__name__}.")
    states = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], environment.reset(key))
    actions = _baseline(environment, lower, states, jnp.int32(0))
    starts, live = jnp.zeros(1, jnp.int32), jnp.ones(1, bool)
    return _rollouts(environment, options.discount, lower, states, starts, actions, live)[0]


def _deviated(steps: StepLog) -> jax.Array:
    return jnp.asarray(steps.played, bool) & (jnp.asarray(steps.action) != jnp.asarray(steps.baseline))


@jax.jit
def _telescoped(
    reward: jax.Array, played: jax.Array, deviated: jax.Array, rolled: jax.Array, discount: jax.Array | float
) -> StepAudit:
    """Return the truth of every step from the values `rolled` out where another action was played."""

    def back(after: jax.Array, at: tuple[jax.Array, ...]) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        earned, plays, deviates, rollout = at
        q = earned + discount * after
        value = jnp.where(deviates, rollout, jnp.where(plays, q, 0.0))
        return value, (jnp.where(deviates, rollout - q, 0.0), value)

    # What was not played is not read: its reward may be anything.
    rewards = jnp.where(played, reward, 0.0).astype(jnp.float64)
    at = (rewards, played, deviated, rolled)
    _, (deficit, value) = lax.scan(back, jnp.float64(0.0), at, reverse=True)
    return StepAudit(deficit, value)


@partial(jax.jit, static_argnums=0)
def _summed(options: DeepOptions, steps: StepLog, truth: StepAudit) -> EpisodeAudit:
    played = jnp.asarray(steps.played, bool)
    weights = jnp.power(jnp.float64(options.discount), jnp.arange(played.shape[0]))
    earned = jnp.where(played, steps.reward, 0.0).astype(jnp.float64)
    deviated = _deviated(steps)
    booked = deviated & jnp.asarray(steps.explored, bool)
    due = truth.deficit * weights if options.charge_from == "start" else truth.deficit
    enough = jnp.asarray(steps.charge, jnp.float64) >= due
    return EpisodeAudit(
        deficit=jnp.sum(truth.deficit),
        largest=jnp.max(truth.deficit),
        loss=truth.value[0] - jnp.sum(weights * earned),
        baseline_value=truth.value[0],
        deviations=jnp.sum(deviated, dtype=jnp.int32),
        covered=jnp.sum(deviated & enough, dtype=jnp.int32),
        booked=jnp.sum(booked, dtype=jnp.int32),
        booked_covered=jnp.sum(booked & enough, dtype=jnp.int32),
    )


def _baseline(environment: Environment, lower: Networks, states: Any, t: jax.Array) -> jax.Array:
    """Return pi_bar(s, t), shape (B,), of states with a leading axis (B,)."""
    seen = jax.vmap(environment.observe)(states)
    inputs = jax.vmap(lambda each: with_time(each, t, environment.horizon))(seen)
    return jnp.argmax(forward(lower, inputs)[0], axis=-1).astype(jnp.int32)


_compiled_baseline = jax.jit(_baseline, static_argnums=0)


def _rollouts(
    environment: Environment,
    discount: float,
    lower: Networks,
    states: Any,
    starts: jax.Array,
    actions: jax.Array,
    live: jax.Array,
) -> jax.Array:
    """Return the value, shape (B,), of playing `actions` at `states`, at times `starts`, and then pi_bar.

    `starts` must not fall; a lane that is not `live` is worth 0. All lanes are at the same time: those that
    start later wait, which keeps the time that a network is told one number.
    """
    horizon = environment.horizon

    def unfinished(carry: tuple[jax.Array, _Rollouts]) -> jax.Array:
        t, now = carry
        return (t < horizon) & jnp.any(now.live)

    def body(carry: tuple[jax.Array, _Rollouts]) -> tuple[jax.Array, _Rollouts]:
        t, now = carry
        after, reward, ended = jax.vmap(environment.step)(now.state, now.action)
        moves = now.live & (starts <= t)
        state = jax.tree.map(
            lambda new, old: jnp.where(moves.reshape(-1, *(1,) * (new.ndim - 1)), new, old), after, now.state
        )
        action = jnp.where(moves, _baseline(environment, lower, state, t + 1), now.action)
        return t + 1, _Rollouts(
            state,
            action,
            now.live & ~(moves & ended),
            jnp.where(moves, now.weight * discount, now.weight),
            jnp.where(moves, now.value + now.weight * reward, now.value),
        )

    nothing = jnp.zeros(starts.shape, jnp.float64)
    first = _Rollouts(states, actions.astype(jnp.int32), live, nothing + 1.0, nothing)
    _, end = lax.while_loop(unfinished, body, (starts[0], first))
    return end.value


def _values_where(
    environment: Environment,
    discount: float,
    lower: Networks,
    steps: StepLog,
    needed: jax.Array,
    lanes: int,
) -> jax.Array:
    """Return V^pi_bar(s_t, t), shape (H,), at the steps that are needed, and anything elsewhere.

    The steps needed are put together, in the order of time, and rolled out `lanes` at a time: neighbours
    start at nearly the same time and in similar states, so that few lanes wait.
    """
    horizon = environment.horizon
    order = jnp.argsort(~needed, stable=True).astype(jnp.int32)
    number = jnp.sum(needed, dtype=jnp.int32)

    def unfinished(carry: tuple[jax.Array, jax.Array]) -> jax.Array:
        return carry[0] < number

    def body(carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        done, values = carry
        places = done + jnp.arange(lanes, dtype=jnp.int32)
        # A lane too many stands where the last one does: it takes no longer.
        starts = order[jnp.minimum(places, number - 1)]
        states = jax.tree.map(lambda leaf: leaf[starts], steps.state)
        # At a step that was logged the baseline is what the log says, whatever rounding would say here.
        actions = steps.baseline[starts]
        live = places < number
        found = _rollouts(environment, discount, lower, states, starts, actions, live)
        return done + lanes, values.at[jnp.where(live, starts, horizon)].set(found, mode="drop")

    _, values = lax.while_loop(unfinished, body, (jnp.int32(0), jnp.zeros(horizon, jnp.float64)))
    return values


def _rollouts_outside(
    environment: Environment,
    step_many: StepMany,
    discount: float,
    lower: Networks,
    states: Any,
    starts: NDArray[np.int64],
    actions: NDArray[np.int32],
) -> NDArray[np.float64]:
    """Return what `_rollouts` does, (B,), by a step outside JAX; only lanes on their way are stepped."""
    number, horizon = len(starts), environment.horizon
    if not number:
        return np.zeros(0)
    value, weight, live = np.zeros(number), np.ones(number), np.ones(number, bool)
    # The last one is repeated up to the largest shape that the network is compiled for.
    rows = np.minimum(np.arange(_shape_of(number)), number - 1)
    leaves, tree = jax.tree.flatten(states)
    # Lists of leaves, since a tree mapped over at every step takes longer than the network.
    now, chosen = [np.array(leaf[rows]) for leaf in leaves], actions[rows]
    for t in range(int(starts[0]), horizon):
        begun = int(np.searchsorted(starts, t, side="right"))
        on = np.flatnonzero(live[:begun])
        if not len(on):
            continue
        result = step_many(jax.tree.unflatten(tree, [leaf[on] for leaf in now]), chosen[on])
        after, rewards, ended = _checked_result(tree, now, len(on), result)
        for leaf, new in zip(now, after, strict=True):
            leaf[on] = new
        value[on] += weight[on] * rewards
        weight[on] *= discount
        live[on[ended]] = False
        if t + 1 < horizon:
            some = _shape_of(begun)
            seen = jax.tree.unflatten(tree, [leaf[:some] for leaf in now])
            chosen[on] = np.asarray(_compiled_baseline(environment, lower, seen, np.int32(t + 1)))[on]
    return value


def _shape_of(number: int) -> int:
    """Return FEWEST_LANES, doubled until that many lanes fit."""
    shape = FEWEST_LANES
    while shape < number:
        shape *= 2
    return shape


def _checked_result(
    tree: Any, like: list[NDArray[Any]], lanes: int, result: Any
) -> tuple[list[NDArray[Any]], NDArray[np.float64], NDArray[np.bool_]]:
    """Return what `step_many` gave, the states as leaves, after a look at their shapes."""
    if not isinstance(result, tuple) or len(result) != 3:
        raise InvalidData(
            f"'step_many' must return states, rewards and ends, got {type(result).__name__}. "
            "For what never ends, return zeros as ends."
        )
    given, structure = jax.tree.flatten(result[0])
    after = [np.asarray(leaf) for leaf in given]
    rewards, ended = np.asarray(result[1], np.float64), np.asarray(result[2], bool)
    same = structure == tree and all(
        (new.shape, new.dtype) == ((lanes, *old.shape[1:]), old.dtype)
        for new, old in zip(after, like, strict=True)
    )
    if not same or rewards.shape != (lanes,) or ended.shape != (lanes,):
        raise InvalidData(
            f"'step_many' must return states as it was given, and rewards and ends of shape ({lanes},), got "
            f"states of shapes {[leaf.shape for leaf in after]}, {rewards.shape} and {ended.shape}."
        )
    return after, rewards, ended


def _check_outside(environment: Environment, step_many: object, arrays: Any) -> None:
    if not callable(step_many):
        raise InvalidSetting(f"'step_many' must be a function or None, got {step_many!r}.")
    check_static(environment)
    if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(arrays)):
        raise InvalidSetting(
            "'step_many' must be None inside jax.jit or jax.vmap, got a function of NumPy. "
            "Leave it out: the environment's own step is then used."
        )


def _checked(environment: Environment, options: DeepOptions, plan: Networks) -> Networks:
    """Return the baseline's network after a look at all types and shapes."""
    if not isinstance(options, DeepOptions):
        raise InvalidSetting(f"'options' must be DeepOptions, got {type(options).__name__}.")
    key = jax.eval_shape(lambda: jax.random.key(0))
    inputs = observation_size(environment, key) + 1
    if not isinstance(plan, Networks):
        raise InvalidSetting(f"'plan' must be Networks, such as 'state.plan', got {type(plan).__name__}.")
    shape, outputs = jnp.shape(plan.w1), jnp.shape(plan.w3)
    if len(shape) != 3 or shape[0] <= LOWER or shape[1] != inputs or outputs[1] != environment.n_actions:
        raise InvalidData(
            f"'plan' must be {LOWER + 1} networks from {inputs} numbers to {environment.n_actions} actions, "
            f"got weights of shapes {shape} and {outputs}. Audit an episode by the plan it was played by."
        )
    return one(plan, LOWER)


def _checked_steps(environment: Environment, steps: StepLog) -> StepLog:
    """Return the steps as arrays after a look at their shapes."""
    if not isinstance(steps, StepLog):
        raise InvalidSetting(f"'steps' must be a StepLog, got {type(steps).__name__}.")
    key = jax.eval_shape(lambda: jax.random.key(0))
    state = jax.eval_shape(environment.reset, key)
    horizon = environment.horizon
    rows: StepLog = jax.tree.map(jnp.asarray, steps)
    same = bool(jax.tree.structure(state) == jax.tree.structure(rows.state)) and all(  # type: ignore[operator]
        (kept.shape, kept.dtype) == ((horizon, *leaf.shape), leaf.dtype)
        for leaf, kept in zip(jax.tree.leaves(state), jax.tree.leaves(rows.state), strict=True)
    )
    if not same:
        raise InvalidData(
            f"'steps.state' must be {horizon} states like {state}, got {jax.eval_shape(lambda: rows.state)}. "
            "Audit one episode at a time, or use jax.vmap."
        )
    for name in ("action", "baseline", "explored", "charge", "reward", "played"):
        shape = getattr(rows, name).shape
        if shape != (horizon,):
            raise InvalidData(
                f"'steps.{name}' must have shape ({horizon},), the steps of one episode, got {shape}. "
                "Audit one episode at a time, or use jax.vmap."
            )
    return rows._replace(played=rows.played.astype(bool))
