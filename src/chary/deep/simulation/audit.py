"""The truth about episodes played: the exact cost of their deviations from the baseline.

Environment and baseline pi_bar are deterministic, so V^pi_bar(s_t, t) is the discounted sum of rewards of one
rollout, in float64, and Q^pi_bar(s_t, t, a_t) = r_t + gamma V^pi_bar(s_t+1, t+1). Only a step at which some
other action than the baseline's was played needs a rollout: elsewhere V = r + gamma V(next) as played. The
true deficit z* sums max(V - Q, 0) over the steps, eq. (1): a gain does not pay for a loss. The signed sum is
eq. (2).

All of it is a pure function: put it under `jax.jit`, and `jax.vmap` over runs or episodes.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from chary.deep.environment import Environment, observation_size
from chary.deep.learners import Sizes, learner_of
from chary.deep.loop import StepLog
from chary.deep.options import DeepOptions
from chary.errors import InvalidData, InvalidSetting, check_integer

# Rollouts of one loop. More fill wider vectors, but wait for the slowest, and the latest to begin.
LANES = 24


class StepAudit(NamedTuple):
    """The truth of every step of an episode, shape (H,), 0 after an early end.

    Args:
        gap: V^pi_bar(s_t, t) - Q^pi_bar(s_t, t, a_t), and exactly 0 where `a_t` is the baseline's.
        value: V^pi_bar(s_t, t).
    """

    gap: jax.Array
    value: jax.Array


class EpisodeAudit(NamedTuple):
    """The truth of an episode, each of shape (); NaN where the environment gave NaN.

    Args:
        deficit: z*, the sum of max(gap, 0), eq. (1): each discounted from its own step or, where charges are
            (`charge_from="start"`), from the start.
        signed_deficit: V^pi_bar(s_0, 0) minus the discounted return, eq. (2): the sum of gamma^t gap.
        largest: The largest max(gap, 0).
        baseline_value: V^pi_bar(s_0, 0).
        deviations: Steps at which another action than the baseline's was played.
        covered: Those among them whose bound, which is the charge unless the learner has another, was at
            least the gap.
        booked: Deviations that the shield authorised.
        booked_covered: Those among them whose bound was at least the gap.
    """

    deficit: jax.Array
    signed_deficit: jax.Array
    largest: jax.Array
    baseline_value: jax.Array
    deviations: jax.Array
    covered: jax.Array
    booked: jax.Array
    booked_covered: jax.Array


class _Rollouts(NamedTuple):
    """The places of some rollouts; `weight` is gamma to the power of a lane's steps so far."""

    state: Any
    action: jax.Array
    live: jax.Array
    weight: jax.Array
    value: jax.Array


def audit_episode(
    environment: Environment,
    options: DeepOptions,
    plan: Any,
    steps: StepLog,
    *,
    lanes: int = LANES,
) -> EpisodeAudit:
    """Return the true cost of an episode's deviations from the baseline, eq. (1).

    Charges count as they were booked: with `charge_from="start"` they are compared with gamma^t gap.

    Args:
        environment: The environment played.
        options: The options it was played with.
        plan: The plan it was played by: `state.plan` after the episode.
        steps: The episode's steps, leading axis (H,): one row of what `proceed(record=True)` returns.
        lanes: Rollouts that one loop computes together, >= 1; results depend on it by rounding alone.

    Raises:
        InvalidSetting: if a type, shape or number is wrong, or `jax_enable_x64` is off.
        InvalidData: if `plan` or `steps` are not of this environment.

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
        ...     float(found.deficit), int(found.deviations), abs(float(found.signed_deficit)) < 1e-12
        (0.99, 2, True)
    """
    truth = audit_steps(environment, options, plan, steps, lanes=lanes)
    found: EpisodeAudit = _summed(options, steps, truth)
    return found


def against(environment: Environment, options: DeepOptions, plan: Any, steps: StepLog) -> StepLog:
    """Return an episode's steps with the baseline of another plan, for an audit by that plan."""
    times = jnp.arange(environment.horizon, dtype=jnp.int32)
    found = learner_of(options).baseline(options, plan, steps.observation, times, environment.horizon)
    return steps._replace(baseline=found)


def audit_steps(
    environment: Environment,
    options: DeepOptions,
    plan: Any,
    steps: StepLog,
    *,
    lanes: int = LANES,
) -> StepAudit:
    """Return gap and V^pi_bar(s_t, t) of every step; arguments and errors as `audit_episode`."""
    _check(environment, options, plan)
    together = min(check_integer("lanes", lanes, minimum=1), environment.horizon)
    rows = _checked_steps(environment, steps)
    needed = _deviated(rows)
    rolled = _values_where(environment, options, plan, rows, needed, together)
    truth: StepAudit = _telescoped(rows.reward, rows.played, needed, rolled, options.discount)
    return truth


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
    _, (gap, value) = lax.scan(back, jnp.float64(0.0), at, reverse=True)
    return StepAudit(gap, value)


@partial(jax.jit, static_argnums=0)
def _summed(options: DeepOptions, steps: StepLog, truth: StepAudit) -> EpisodeAudit:
    played = jnp.asarray(steps.played, bool)
    weights = jnp.power(jnp.float64(options.discount), jnp.arange(played.shape[0]))
    earned = jnp.where(played, steps.reward, 0.0).astype(jnp.float64)
    deviated = _deviated(steps)
    booked = deviated & jnp.asarray(steps.explored, bool)
    due = truth.gap * weights if options.charge_from == "start" else truth.gap
    bound = steps.charge if steps.bound is None else steps.bound
    enough = jnp.asarray(bound, jnp.float64) >= due
    return EpisodeAudit(
        deficit=jnp.sum(jnp.maximum(due, 0.0)),
        signed_deficit=truth.value[0] - jnp.sum(weights * earned),
        largest=jnp.maximum(jnp.max(truth.gap), 0.0),
        baseline_value=truth.value[0],
        deviations=jnp.sum(deviated, dtype=jnp.int32),
        covered=jnp.sum(deviated & enough, dtype=jnp.int32),
        booked=jnp.sum(booked, dtype=jnp.int32),
        booked_covered=jnp.sum(booked & enough, dtype=jnp.int32),
    )


def _baseline(
    environment: Environment, options: DeepOptions, plan: Any, states: Any, t: jax.Array
) -> jax.Array:
    """Return pi_bar(s, t), shape (B,), of states with a leading axis (B,)."""
    seen = jax.vmap(environment.observe)(states)
    times = jnp.broadcast_to(t, seen.shape[:1])
    return learner_of(options).baseline(options, plan, seen, times, environment.horizon)


def _rollouts(
    environment: Environment,
    options: DeepOptions,
    plan: Any,
    states: Any,
    starts: jax.Array,
    actions: jax.Array,
    live: jax.Array,
) -> jax.Array:
    """Return the value, shape (B,), of playing `actions` at `states`, at times `starts`, and then pi_bar.

    `starts` must not fall; a lane that is not `live` is worth 0. All lanes are at the same time: those that
    start later wait, so that the networks' time input is one number.
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
        action = jnp.where(moves, _baseline(environment, options, plan, state, t + 1), now.action)
        return t + 1, _Rollouts(
            state,
            action,
            now.live & ~(moves & ended),
            jnp.where(moves, now.weight * options.discount, now.weight),
            jnp.where(moves, now.value + now.weight * reward, now.value),
        )

    nothing = jnp.zeros(starts.shape, jnp.float64)
    first = _Rollouts(states, actions.astype(jnp.int32), live, nothing + 1.0, nothing)
    _, end = lax.while_loop(unfinished, body, (starts[0], first))
    return end.value


def _values_where(
    environment: Environment,
    options: DeepOptions,
    plan: Any,
    steps: StepLog,
    needed: jax.Array,
    together: int,
) -> jax.Array:
    """Return V^pi_bar(s_t, t), shape (H,), at the steps that are needed, and anything elsewhere.

    The steps needed are collected in the order of time, and rolled out so many `together`: neighbours
    start at nearly the same time and in similar states, so that few lanes wait.
    """
    horizon = environment.horizon
    order = jnp.argsort(~needed, stable=True).astype(jnp.int32)
    number = jnp.sum(needed, dtype=jnp.int32)

    def unfinished(carry: tuple[jax.Array, jax.Array]) -> jax.Array:
        return carry[0] < number

    def body(carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        done, values = carry
        places = done + jnp.arange(together, dtype=jnp.int32)
        # A lane too many repeats the last one: it takes no longer.
        starts = order[jnp.minimum(places, number - 1)]
        states = jax.tree.map(lambda leaf: leaf[starts], steps.state)
        # At a logged step the baseline is the logged one, however rounding would decide here.
        actions = steps.baseline[starts]
        live = places < number
        found = _rollouts(environment, options, plan, states, starts, actions, live)
        return done + together, values.at[jnp.where(live, starts, horizon)].set(found, mode="drop")

    _, values = lax.while_loop(unfinished, body, (jnp.int32(0), jnp.zeros(horizon, jnp.float64)))
    return values


def _check(environment: Environment, options: DeepOptions, plan: Any) -> None:
    """Look at all types and shapes."""
    if not isinstance(options, DeepOptions):
        raise InvalidSetting(f"'options' must be DeepOptions, got {type(options).__name__}.")
    size = observation_size(environment, jax.eval_shape(lambda: jax.random.key(0)))
    sizes = Sizes(size, environment.n_actions, environment.horizon)
    learner_of(options).check_plan(options, plan, sizes)


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
