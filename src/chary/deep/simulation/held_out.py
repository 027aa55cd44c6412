"""Episodes that nothing is learnt from: do charges cover the true cost of actions, whichever is played?

The steps that a shield authorises are not a fair sample: their charges are low. Here the baseline plays, and
at random an action drawn in its place, so that every action is audited along the baseline's way.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from chary.deep.acting import one_of
from chary.deep.environment import Environment, observation_size
from chary.deep.learners import Sizes, learner_of
from chary.deep.loop import StepLog
from chary.deep.options import DeepOptions
from chary.deep.simulation.audit import EpisodeAudit, audit_episode
from chary.errors import check_real

# Share of steps at which an action is drawn at random.
SHARE = 0.1


class _Now(NamedTuple):
    state: Any
    playing: jax.Array


def held_out_audit(
    environment: Environment, options: DeepOptions, plan: Any, key: jax.Array, *, share: float = SHARE
) -> EpisodeAudit:
    """Audit one episode of the baseline with random deviations; pure, for `jax.jit` and `jax.vmap`.

    Args:
        environment: The environment to play.
        options: The options that the plan was learnt with.
        plan: The plan that prices and plays.
        key: The key of deviations and of the start.
        share: The probability of a deviation at a step, in [0, 1].

    Raises:
        InvalidSetting: if `share` is not a probability, or as `audit_episode` does.
    """
    steps = held_out_steps(environment, options, plan, key, share=share)
    return audit_episode(environment, options, plan, steps)


def held_out_steps(
    environment: Environment, options: DeepOptions, plan: Any, key: jax.Array, *, share: float = SHARE
) -> StepLog:
    """Play one episode of the baseline with random deviations; arguments as of `held_out_audit`."""
    check_real("share", share, low=0.0, high=1.0)
    reset_key, draw_key = jax.random.split(key)
    horizon = environment.horizon
    uniforms = jax.random.uniform(draw_key, (horizon, 2), jnp.float32)
    times = jnp.arange(horizon, dtype=jnp.int32)

    learner = learner_of(options)
    sizes = Sizes(observation_size(environment, key), environment.n_actions, horizon)
    # Every action is priced as the first deviation of an episode.
    account = learner.first(options, sizes, key).account

    def step(now: _Now, at: tuple[jax.Array, jax.Array]) -> tuple[_Now, StepLog]:
        t, uniform = at
        seen = environment.observe(now.state).astype(jnp.float32)
        offer = learner.offer(options, plan, account, seen, t, None, horizon)
        deviates = uniform[0] < share
        action = jnp.where(deviates, one_of(environment.n_actions, uniform[1]), offer.baseline)
        bound = None if offer.bounds is None else offer.bounds[action]
        after, reward, ended = environment.step(now.state, action)
        row = StepLog(
            now.state,
            seen,
            action,
            offer.baseline,
            deviates,
            offer.charges[action],
            reward,
            now.playing,
            bound,
        )
        return _Now(after, now.playing & ~ended), row

    first = _Now(environment.reset(reset_key), jnp.bool_(True))
    _, steps = lax.scan(step, first, (times, uniforms))
    return steps
