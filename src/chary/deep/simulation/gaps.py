"""The gaps of random deviations by rollouts of a simulator, for `chary.deep.calibrate.fit`."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from chary.deep.calibrate import Residuals
from chary.deep.ensemble.learner import frozen_gaps
from chary.deep.environment import Environment
from chary.deep.options import DeepOptions
from chary.deep.simulation.audit import audit_steps
from chary.deep.simulation.held_out import SHARE, held_out_steps
from chary.errors import InvalidSetting, check_integer
from chary.texts import shown


def rollout_residuals(
    environment: Environment,
    options: DeepOptions,
    plan: Any,
    key: jax.Array,
    *,
    episodes: int = 100,
    share: float = SHARE,
) -> Residuals:
    """Return the true gaps of random deviations along the way of a plan's baseline, and what it predicts.

    Args:
        environment: The environment, or its simulator.
        options: The options that the plan was learnt with; their learner is the ensemble.
        plan: `state.plan` of a run on other seeds than those to be judged.
        key: The key of deviations and of starts.
        episodes: Episodes to play, >= 1.
        share: The probability of a deviation at a step, in [0, 1].

    Raises:
        InvalidSetting: if a type or a number is wrong, or the options name another learner.
    """
    check_integer("episodes", episodes, minimum=1)
    if options.learns_by != "ensemble":
        raise InvalidSetting(
            f"'options' must be those of an ensemble, got the learner {shown(options.learns_by)}."
        )
    horizon = environment.horizon
    predicted = frozen_gaps(options, horizon)

    @jax.jit
    def one(key: jax.Array) -> Any:
        steps = held_out_steps(environment, options, plan, key, share=share)
        gap = audit_steps(environment, options, plan, steps).gap
        times = jnp.arange(horizon, dtype=jnp.int32)
        _, _, mean, deviation = jax.vmap(predicted, (None, 0, 0))(plan, steps.observation, times)
        deviates = steps.played & (steps.action != steps.baseline)
        return deviates, gap, mean[times, steps.action], deviation[times, steps.action]

    found = [jax.tree.map(np.asarray, one(each)) for each in jax.random.split(key, episodes)]
    deviates, *told = (np.stack(column) for column in zip(*found, strict=True))
    gap, mean, deviation = (each[deviates] for each in told)
    return Residuals(gap, mean, deviation, np.nonzero(deviates)[0], "rollouts")
