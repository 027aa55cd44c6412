"""Training as one compiled loop: the shield, the environment and an update of all networks at every step.

Everything here is a pure function: put it under `jax.jit`, and `jax.vmap` over keys and rules. `train` is
`begin` and then `proceed`; calling `proceed` again goes on as if there had been no pause.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from chary.deep import acting
from chary.deep.environment import Environment, observation_size
from chary.deep.learners import Observed, Sizes, learner_of, pretrained
from chary.deep.options import DeepOptions
from chary.deep.shielding import first_ledger, rule_on_arrays
from chary.errors import InvalidSetting, check_integer, check_type
from chary.shield.ledger import Ledger
from chary.shield.rule import Rule
from chary.texts import shown


class EpisodeLog(NamedTuple):
    """The log of every episode, shape (K,).

    Args:
        returns: Discounted sum of rewards.
        rewards: Plain sum of rewards.
        steps: Steps played.
        deficit: The deficit booked in the ledger; 0 for agents without one.
        explored: Steps that the explorer, or chance, chose.
        deviated: Steps at which another action than the baseline's was played.
        actions: How often each action was played, shape (K, A).
        charges: Sum of the charges of all actions played, booked or not, without any cap.
        largest_charge: The largest charge among them.
        losses: Mean losses by the learner's names for them, such as explorer, V_hi and Q_lo, shape (K, 3).
    """

    returns: jax.Array
    rewards: jax.Array
    steps: jax.Array
    deficit: jax.Array
    explored: jax.Array
    deviated: jax.Array
    actions: jax.Array
    charges: jax.Array
    largest_charge: jax.Array
    losses: jax.Array


class StepLog(NamedTuple):
    """The log of every step, shape (K, H, ...); `played` is False after an early end.

    `bound` bounds the gap of the step alone; None where `charge` does.
    """

    state: Any
    observation: jax.Array
    action: jax.Array
    baseline: jax.Array
    explored: jax.Array
    charge: jax.Array
    reward: jax.Array
    played: jax.Array
    bound: jax.Array | None = None


class _Place(NamedTuple):
    """The present place of an episode."""

    state: Any
    observation: jax.Array
    playing: jax.Array
    ledger: Ledger


def train(
    environment: Environment, options: DeepOptions, key: jax.Array, *, rule: Rule | None = None
) -> tuple[Any, EpisodeLog]:
    """Train an agent for `options.episodes` episodes after its warm-up.

    Args:
        environment: The environment to play.
        options: The agent, and how it learns.
        key: The key of all randomness.
        rule: Replaces that of the options; its numbers may be arrays, for `jax.vmap` over budgets.

    Raises:
        InvalidSetting: if something is of the wrong type or shape, or `jax_enable_x64` is off.
        InvalidAction: if the environment has no action `options.action`.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> walk = Environment(
        ...     reset=lambda key: jnp.zeros(1),
        ...     observe=lambda state: state,
        ...     step=lambda state, a: (state + a - 0.5, -jnp.abs(state[0]), jnp.bool_(False)),
        ...     n_actions=2,
        ...     horizon=3,
        ... )
        >>> options = DeepOptions(episodes=2, eta=1.0, warm_up=1, pretraining=0, batch=4, width=4, features=4)
        >>> with jax.enable_x64(True):
        ...     state, log = train(walk, options, jax.random.key(1))
        ...     log.deficit.shape, bool((log.deficit <= 1.0).all())
        ((2,), True)
    """
    state = begin(environment, options, key)
    trained: tuple[Any, EpisodeLog] = proceed(environment, options, state, options.episodes, rule=rule)
    return trained


def begin(environment: Environment, options: DeepOptions, key: jax.Array) -> Any:
    """Return the state after warm-up and pretraining, before the first episode; raises as `train` does."""
    size = _checked(environment, options, key)
    own_key, warm_up_key, pretraining_key = jax.random.split(key, 3)
    learner = learner_of(options)
    state = learner.first(options, Sizes(size, environment.n_actions, environment.horizon), own_key)

    def warm_up(state: Any, key: jax.Array) -> tuple[Any, None]:
        reset_key, agent_key, _ = jax.random.split(key, 3)
        uniforms = jax.random.uniform(agent_key, (environment.horizon,), jnp.float32)

        def step(carry: tuple[Any, _Place], at: tuple[jax.Array, jax.Array]) -> Any:
            (state, now), (t, uniform) = carry, at
            action = acting.one_of(environment.n_actions, uniform)
            seen, after = _stepped(environment, now, action)
            state = learner.remember(options, state, seen, t, environment.horizon, now.playing, False)
            return (state, after), None

        times = jnp.arange(environment.horizon, dtype=jnp.int32)
        (state, _), _ = lax.scan(step, (state, _started(environment, reset_key)), (times, uniforms))
        return state, None

    if options.warm_up:
        state, _ = lax.scan(warm_up, state, jax.random.split(warm_up_key, options.warm_up))
    if options.pretraining:
        state = pretrained(options, state, jax.random.split(pretraining_key, options.pretraining))
    return state


def proceed(
    environment: Environment,
    options: DeepOptions,
    state: Any,
    episodes: int,
    *,
    rule: Rule | None = None,
    record: bool = False,
) -> Any:
    """Play and learn from that many more episodes.

    Args:
        environment: The environment to play.
        options: Those the state began with.
        state: The result of `begin` or of an earlier call.
        episodes: The number of episodes, >= 1.
        rule: Replaces that of the options.
        record: Also return a `StepLog`. After one episode `state.plan` is the plan it was played with.

    Returns:
        The state and an `EpisodeLog`, or the state and both logs.

    Raises:
        InvalidSetting: if something is of the wrong type or shape, or `jax_enable_x64` is off.
        InvalidAction: if the environment has no action `options.action`.
    """
    size = _checked(environment, options, None)
    learner, sizes = learner_of(options), Sizes(size, environment.n_actions, environment.horizon)
    like = jax.eval_shape(lambda key: learner.first(options, sizes, key), jax.random.key(0))
    check_type("state", state, type(like), "what `begin` returned")
    number = check_integer("episodes", episodes, minimum=1)
    if rule is not None and not isinstance(rule, Rule):
        raise InvalidSetting(f"'rule' must be a Rule or None, got {shown(rule)}. Use Rule.strict(eta).")
    limits = rule_on_arrays(options.budget_rule if rule is None else rule)
    if not (options.chained or options.every_step):
        limits = limits._replace(closes=jnp.bool_(True))

    def episode(state: Any, _: None) -> tuple[Any, Any]:
        return _episode(environment, options, limits, state, record)

    state, (log, steps) = lax.scan(episode, state, None, length=number)
    return (state, log, steps) if record else (state, log)


def _checked(environment: Environment, options: DeepOptions, key: jax.Array | None) -> int:
    check_type("options", options, DeepOptions, "DeepOptions")
    one_key = isinstance(key, jax.Array) and key.shape == ()
    if key is not None and not (one_key and jnp.issubdtype(key.dtype, jax.dtypes.prng_key)):
        raise InvalidSetting(f"'key' must be one key of jax.random.key, got {type(key).__name__}.")
    size = observation_size(environment, jax.random.key(0) if key is None else key)
    options.check_action(environment.n_actions)
    return size


def _episode(
    environment: Environment, options: DeepOptions, rule: Rule, state: Any, record: bool
) -> tuple[Any, Any]:
    """Play one episode, an update at every step, and close it."""
    horizon = environment.horizon
    state, reset_key, draws = acting.opened(options, state, horizon)
    times = jnp.arange(horizon, dtype=jnp.int32)
    weights = jnp.power(jnp.float64(options.discount), times)

    def step(
        carry: tuple[Any, _Place, EpisodeLog], at: tuple[jax.Array, jax.Array, acting.Draws]
    ) -> tuple[tuple[Any, _Place, EpisodeLog], Any]:
        (state, now, log), (t, weight, draw) = carry, at
        choice = acting.choose(
            options, rule, state, now.ledger, now.observation, t, horizon, draw, now.playing
        )
        seen, after = _stepped(environment, now._replace(ledger=choice.ledger), choice.action)
        state = state._replace(chain=choice.chain, account=choice.account)
        played = (choice.explored, draw, now.playing)
        state, losses = acting.learn_from(options, state, seen, t, horizon, *played)
        log = _noted(log, now.playing, choice, seen.reward, weight, losses)
        # A choice begins with the action, the baseline's, whether it explored, and the charge.
        row = StepLog(now.state, now.observation, *choice[:4], seen.reward, now.playing, choice.bound)
        return (state, after, log), row if record else None

    (state, now, log), rows = lax.scan(
        step, (state, _started(environment, reset_key), blank_log(environment)), (times, weights, draws)
    )
    log = log._replace(deficit=jnp.asarray(now.ledger.deficit), losses=log.losses / horizon)
    return acting.closed(options, state), (log, rows)


def _started(environment: Environment, key: jax.Array) -> _Place:
    state = environment.reset(key)
    seen = environment.observe(state).astype(jnp.float32)
    return _Place(state, seen, jnp.bool_(True), first_ledger())


def _stepped(environment: Environment, now: _Place, action: jax.Array) -> tuple[Observed, _Place]:
    after, reward, ended = environment.step(now.state, action)
    reached = environment.observe(after).astype(jnp.float32)
    seen = Observed(now.observation, action, reward, reached, jnp.asarray(ended))
    return seen, _Place(after, reached, now.playing & ~ended, now.ledger)


def blank_log(environment: Environment) -> EpisodeLog:
    """Return the log of an episode in which nothing has happened."""
    zero, none = jnp.float64(0.0), jnp.int32(0)
    actions = jnp.zeros(environment.n_actions, jnp.int32)
    return EpisodeLog(zero, zero, none, zero, none, none, actions, zero, zero, jnp.zeros(3, jnp.float32))


def _noted(
    log: EpisodeLog,
    playing: jax.Array,
    choice: acting.Choice,
    reward: jax.Array,
    weight: jax.Array,
    losses: jax.Array,
) -> EpisodeLog:
    earned = jnp.where(playing, reward, 0.0).astype(jnp.float64)
    charged = jnp.where(playing, choice.charge, 0.0)
    return log._replace(
        returns=log.returns + weight * earned,
        rewards=log.rewards + earned,
        steps=log.steps + playing,
        explored=log.explored + (choice.explored & playing),
        deviated=log.deviated + ((choice.action != choice.baseline) & playing),
        actions=log.actions + ((jnp.arange(log.actions.shape[0]) == choice.action) & playing),
        charges=log.charges + charged,
        largest_charge=jnp.maximum(log.largest_charge, charged),
        losses=log.losses + losses,
    )
