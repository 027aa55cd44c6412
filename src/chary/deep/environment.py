"""An environment inside JAX: three pure functions, two numbers, and the labels and units of its reports."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from chary.errors import InvalidSetting, check_integer, check_type


class Environment(NamedTuple):
    """An environment inside JAX; its states are any pytree of arrays.

    Args:
        reset: From a key to a start state.
        observe: From a state to the input of the networks: a standardised vector of fixed length.
        step: From a state and an action in 0..A-1 to the next state, the reward and whether that is terminal.
        n_actions: A.
        horizon: H, the steps of an episode.
        labels: Names and values that identify it in reports, such as (("problem", "hiv"), ("patient", 5)).
        reward_mean: The mean that was subtracted from rewards, in their raw units.
        reward_std: The number that rewards were divided by: raw = mean + std * reward.
    """

    reset: Callable[[jax.Array], Any]
    observe: Callable[[Any], jax.Array]
    step: Callable[[Any, jax.Array], tuple[Any, jax.Array, jax.Array]]
    n_actions: int
    horizon: int
    labels: tuple[tuple[str, Any], ...] = ()
    reward_mean: float = 0.0
    reward_std: float = 1.0


def observation_size(environment: Environment, key: jax.Array) -> int:
    """Return the length of an observation after a check of all shapes; nothing is drawn or stepped.

    Raises:
        InvalidSetting: if this is not an Environment, float64 is switched off, or a function returns other
            shapes than it should.
    """
    if jnp.result_type(float) != jnp.float64:
        raise InvalidSetting(
            "'jax_enable_x64' must be on, got off: the ledger is kept in float64. "
            "Call inside `with jax.enable_x64(True):`."
        )
    check_type("environment", environment, Environment, "a chary.deep.Environment")
    check_integer("n_actions", environment.n_actions, minimum=1)
    check_integer("horizon", environment.horizon, minimum=1)
    state = jax.eval_shape(environment.reset, key)
    after, reward, ended = jax.eval_shape(environment.step, state, jnp.int32(0))
    seen = jax.eval_shape(environment.observe, state)
    if len(seen.shape) != 1 or seen.shape[0] < 1:
        raise InvalidSetting(
            f"'observe' must return a vector, got shape {seen.shape}. Flatten the observation."
        )
    same = bool(jax.tree.structure(state) == jax.tree.structure(after)) and all(  # type: ignore[operator]
        (a.shape, a.dtype) == (b.shape, b.dtype)
        for a, b in zip(jax.tree.leaves(state), jax.tree.leaves(after), strict=True)
    )
    if not same:
        raise InvalidSetting(
            f"'step' must return a state like that of 'reset', {state}, got {after}. "
            "Shapes and types must not change."
        )
    for name, value in (("reward", reward), ("ended", ended)):
        if value.shape != ():
            raise InvalidSetting(f"'step' must return {name!r} as one number, got shape {value.shape}.")
    return int(seen.shape[0])


def check_static(environment: Environment) -> None:
    """Raise InvalidSetting unless an environment can be a key of what was compiled for it."""
    try:
        hash(environment)
    except TypeError as error:
        raise InvalidSetting(
            f"'environment' must be made of plain functions and labels that can be hashed, got another: "
            f"{error}."
        ) from None
