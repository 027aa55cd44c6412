"""The state of a deep agent as one pytree, and the update by which all three networks learn."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax  # type: ignore[import-untyped]

from chary.deep.bonus import Features, bonuses, featurise, first_features, first_inverse
from chary.deep.losses import at_actions, cql_penalty, double_q_targets, evaluation_targets, huber
from chary.deep.networks import EXPLORER, LOWER, UPPER, Networks, first_networks, forward, one
from chary.deep.options import DeepOptions
from chary.deep.replay import Batch, Replay, empty_replay, renew, sample
from chary.deep.sac import actor_loss, entropy, soft_targets
from chary.deep.shielding import ChainState, first_chain

# The two critics of SAC, behind the three networks that all agents have.
FIRST, SECOND = 3, 4


class State(NamedTuple):
    """A whole training run between two episodes.

    Args:
        networks: The networks that learn.
        targets: Target networks, which follow `networks`.
        plan: The networks that act: frozen during an episode; its explorer stays for the whole of a chain.
        optimiser: Adam's moments for all networks.
        features: The fixed features of the bonus.
        inverse: The bonus matrices, inverted, side by side, shape (F, A F).
        replay: The transitions observed.
        chain: The meta-rollout in the making.
        key: The key of later randomness.
        episodes: Episodes played after the warm-up.
        updates: Updates made.
        log_temperature: Of SAC alone; stays 0 for others.
    """

    networks: Networks
    targets: Networks
    plan: Networks
    optimiser: optax.OptState
    features: Features
    inverse: jax.Array
    replay: Replay
    chain: ChainState
    key: jax.Array
    episodes: jax.Array
    updates: jax.Array
    log_temperature: jax.Array


class Prices(NamedTuple):
    """The plan at one observation: the actions proposed, and the charge of every action (A,)."""

    explorer: jax.Array
    baseline: jax.Array
    charges: jax.Array


def first_state(options: DeepOptions, observation_size: int, n_actions: int, key: jax.Array) -> State:
    """Return a learner without data."""
    networks_key, features_key, later = jax.random.split(key, 3)
    inputs = observation_size + 1
    networks = first_networks(networks_key, inputs, options.width, n_actions)
    if options.agent == "sac":
        critics = first_networks(jax.random.fold_in(networks_key, FIRST), inputs, options.width, n_actions)
        networks = Networks(*(jnp.concatenate([a, b[:2]]) for a, b in zip(networks, critics, strict=True)))
    return State(
        networks=networks,
        targets=networks,
        plan=networks,
        optimiser=_adam(options).init(networks),
        features=first_features(features_key, observation_size, options.features, options.length_scale),
        inverse=first_inverse(n_actions, options.features, options.ridge),
        replay=empty_replay(options.replay, inputs),
        chain=first_chain(observation_size),
        key=later,
        episodes=jnp.int32(0),
        updates=jnp.int32(0),
        log_temperature=jnp.float32(0.0),
    )


def prices(values: jax.Array) -> Prices:
    """Read the three networks' values (3, A) at one observation, eq. (4).

    The charge of `a` is V_hi - Q_lo(a), and 0 for the baseline's own action. V_hi is at least the best Q_lo,
    whatever the networks give: an upper bound below a lower one is an error of theirs, and would make other
    actions free.
    """
    lower = values[LOWER]
    baseline = jnp.argmax(lower)
    v_upper = jnp.maximum(values[UPPER, baseline], lower[baseline])
    own = jnp.arange(lower.shape[0]) == baseline
    charges = jnp.where(own, 0.0, jnp.maximum(v_upper - lower, 0.0))
    return Prices(jnp.argmax(values[EXPLORER]), baseline, charges)


def looked_up(options: DeepOptions, state: State, batch: Batch) -> tuple[State, Batch]:
    """Compute the bonuses of the first `options.fresh` transitions again, and keep them.

    A bonus falls with every step of its action and never grows, so an old one is too large, never too small.
    """
    first = Batch(*(leaf[: options.fresh] for leaf in batch))
    fresh = bonuses(state.inverse, featurise(state.features, first.inputs[:, :-1]), first.actions)
    renewed = state._replace(replay=renew(state.replay, first.places, fresh))
    return renewed, batch._replace(bonuses=jnp.concatenate([fresh, batch.bonuses[options.fresh :]]))


def goals(options: DeepOptions, state: State, batch: Batch) -> jax.Array:
    """Return the targets of all networks for a batch, shape (n, B); SAC's actor has none."""
    bonus = batch.bonuses
    after = forward(state.targets, batch.next_inputs)
    choosing = forward(one(state.networks, EXPLORER), batch.next_inputs)[0]
    baseline = jnp.argmax(after[LOWER], axis=-1)
    discount, weight = options.discount, options.beta
    pessimism = -weight if options.lower == "lcb" else 0.0
    r, ended = batch.rewards, batch.ended
    if options.agent == "cql":
        own = jnp.argmax(after[EXPLORER], axis=-1)
        explorer = evaluation_targets(r, jnp.zeros_like(bonus), ended, after[EXPLORER], own, discount)
    else:
        boost = options.explorer_beta * bonus
        explorer = double_q_targets(r, boost, ended, choosing, after[EXPLORER], discount)
    upper = evaluation_targets(r, weight * bonus, ended, after[UPPER], baseline, discount)
    lower = evaluation_targets(r, pessimism * bonus, ended, after[LOWER], baseline, discount)
    towards = [explorer, upper, lower]
    if options.agent == "sac":
        alpha = jnp.exp(state.log_temperature)
        soft = soft_targets(r, ended, choosing, after[FIRST], after[SECOND], alpha, discount)
        towards = [jnp.zeros_like(soft), upper, lower, soft, soft]
    return jax.lax.stop_gradient(jnp.stack(towards))


def loss(
    options: DeepOptions, networks: Networks, batch: Batch, towards: jax.Array, log_temperature: jax.Array
) -> jax.Array:
    """Return the mean loss of each network, shape (n,), with CQL's penalty on those that CQL learns."""
    values = forward(networks, batch.inputs)
    errors = at_actions(values, batch.actions) - towards
    losses = jnp.mean(huber(errors, options.huber), axis=1)
    for network, by_cql in ((EXPLORER, options.agent == "cql"), (LOWER, options.lower == "cql")):
        if by_cql:
            penalty = cql_penalty(values[network], batch.actions)
            losses = losses.at[network].add(options.cql_weight * penalty)
    if options.agent == "sac":
        alpha = jnp.exp(log_temperature)
        losses = losses.at[EXPLORER].set(actor_loss(values[EXPLORER], values[FIRST], values[SECOND], alpha))
    return losses


def update(options: DeepOptions, state: State, batch: Batch) -> tuple[State, jax.Array]:
    """Move all networks and their targets by one step, and return the losses before it, shape (3,)."""
    state, batch = looked_up(options, state, batch)
    towards = goals(options, state, batch)

    def total(networks: Networks) -> tuple[jax.Array, jax.Array]:
        losses = loss(options, networks, batch, towards, state.log_temperature)
        # They share no weight: the gradient of the sum is that of each.
        return jnp.sum(losses), losses

    gradients, losses = jax.grad(total, has_aux=True)(state.networks)
    moves, optimiser = _adam(options).update(gradients, state.optimiser)
    networks = optax.apply_updates(state.networks, moves)
    updates = state.updates + 1
    if options.target == "polyak":
        targets = optax.incremental_update(networks, state.targets, options.tau)
    else:
        targets = optax.periodic_update(networks, state.targets, updates, options.period)
    learnt = state._replace(networks=networks, targets=targets, optimiser=optimiser, updates=updates)
    if options.agent == "sac":
        learnt = learnt._replace(log_temperature=_cooled(options, state, batch))
    return learnt, losses[: LOWER + 1]


def pretrained(options: DeepOptions, state: State, keys: jax.Array) -> State:
    """Return the state after one update per key, each of a batch drawn with it."""

    def one(state: State, key: jax.Array) -> tuple[State, None]:
        return update(options, state, sample(state.replay, key, options.batch))[0], None

    state, _ = jax.lax.scan(one, state, keys)
    return state


def _cooled(options: DeepOptions, state: State, batch: Batch) -> jax.Array:
    """Return the logarithm of SAC's temperature after a step towards the entropy wanted."""
    logits = forward(one(state.networks, EXPLORER), batch.inputs)[0]
    wanted = options.entropy * jnp.log(jnp.float32(logits.shape[-1]))
    surplus = jnp.mean(entropy(logits)) - wanted
    return state.log_temperature - options.learning_rate * surplus


def _adam(options: DeepOptions) -> optax.GradientTransformation:
    return optax.adam(options.learning_rate)
