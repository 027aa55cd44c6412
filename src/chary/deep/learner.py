"""Three networks as a learner: its state as one pytree, the update of all, and what they price.

`NETWORKS`, at the end, is the value by which the loop, the step API and the judge use it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax  # type: ignore[import-untyped]

from chary.deep.bonus import Features, bonuses, featurise, first_features, first_inverse
from chary.deep.bonus import learn as learn_bonus
from chary.deep.learners import Learner, Observed, Offer, Sizes, as_booked
from chary.deep.losses import at_actions, cql_penalty, evaluation_targets, explorer_targets, huber
from chary.deep.networks import EXPLORER, LOWER, UPPER, Networks, first_networks, forward, one, with_time
from chary.deep.options import DeepOptions
from chary.deep.replay import Batch, Replay, drawn, empty_replay, keep, renew
from chary.deep.sac import actor_loss, cooled, soft_targets
from chary.deep.shielding import ChainState, first_chain
from chary.errors import InvalidData, InvalidSetting

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
        account: Of one open episode; these networks keep none.
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
    account: tuple[()] = ()


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
    explorer = explorer_targets(options, batch, choosing, after[EXPLORER], options.explorer_beta * bonus)
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
        logits = forward(one(state.networks, EXPLORER), batch.inputs)[0]
        learnt = learnt._replace(log_temperature=cooled(options, state.log_temperature, logits))
    return learnt, losses[: LOWER + 1]


def _adam(options: DeepOptions) -> optax.GradientTransformation:
    return optax.adam(options.learning_rate)


def remember(
    options: DeepOptions,
    state: State,
    seen: Observed,
    t: jax.Array,
    horizon: int,
    counts: jax.Array,
    own: jax.Array | bool,
) -> State:
    """Return the state with one transition more in its replay and its bonus, if it `counts`."""
    phi = featurise(state.features, seen.observation)
    inverse, bonus = learn_bonus(state.inverse, phi, seen.action, counts.astype(jnp.float32))
    now, after = with_time(seen.observation, t, horizon), with_time(seen.reached, t + 1, horizon)
    ended = seen.ended | (t + 1 == horizon)
    replay = keep(state.replay, now, after, seen.action, seen.reward, ended, bonus, counts)
    return state._replace(replay=replay, inverse=inverse)


def _first(options: DeepOptions, sizes: Sizes, key: jax.Array) -> State:
    return first_state(options, sizes.observation, sizes.actions, key)


def _opened(options: DeepOptions, state: State, key: jax.Array) -> State:
    """Plan a new episode: the present networks, but the explorer of an open chain stays."""

    def newest(now: jax.Array, old: jax.Array) -> jax.Array:
        return now.at[EXPLORER].set(jnp.where(state.chain.open, old[EXPLORER], now[EXPLORER]))

    return state._replace(plan=Networks(*map(newest, state.networks, state.plan)))


def _offer(
    options: DeepOptions,
    plan: Networks,
    account: tuple[()],
    observation: jax.Array,
    t: jax.Array,
    clock: jax.Array | None,
    horizon: int,
) -> Offer:
    now = with_time(observation, t, horizon)
    if clock is None:
        inputs = now[None]
    else:
        inputs = jnp.stack([with_time(observation, clock, horizon), now, now])[:, None]
    values = forward(plan, inputs)[:, 0]
    said = prices(values)
    charges = as_booked(options, said.charges.astype(jnp.float64), t)
    return Offer(said.explorer, said.baseline, charges, None, values[EXPLORER], ())


def _proposal(
    options: DeepOptions, state: State, observation: jax.Array, t: jax.Array, horizon: int
) -> jax.Array:
    inputs = with_time(observation, t, horizon)[None]
    return forward(one(state.networks, EXPLORER), inputs)[0, 0]


def _booked(
    options: DeepOptions, account: tuple[()], offer: Offer, t: jax.Array, action: jax.Array, cost: jax.Array
) -> tuple[()]:
    return account


def _learnt(options: DeepOptions, state: State, uniforms: jax.Array) -> tuple[State, jax.Array]:
    return update(options, state, drawn(state.replay, uniforms))


def _closed(options: DeepOptions, state: State) -> State:
    return state


def _incumbent(options: DeepOptions, state: State) -> Networks:
    return state.networks


def _baseline(
    options: DeepOptions, plan: Networks, observations: jax.Array, times: jax.Array, horizon: int
) -> jax.Array:
    inputs = jax.vmap(with_time, (0, 0, None))(observations, times, horizon)
    return jnp.argmax(forward(one(plan, LOWER), inputs)[0], axis=-1).astype(jnp.int32)


def _with_explorer(options: DeepOptions, plan: Networks, other: Networks) -> Networks:
    return Networks(*(mine.at[EXPLORER].set(its[EXPLORER]) for mine, its in zip(plan, other, strict=True)))


def _check_plan(options: DeepOptions, plan: Any, sizes: Sizes) -> None:
    inputs, n_actions = sizes.observation + 1, sizes.actions
    if not isinstance(plan, Networks):
        raise InvalidSetting(f"'plan' must be Networks, such as 'state.plan', got {type(plan).__name__}.")
    shape, outputs = jnp.shape(plan.w1), jnp.shape(plan.w3)
    if len(shape) != 3 or shape[0] <= LOWER or shape[1] != inputs or outputs[1] != n_actions:
        raise InvalidData(
            f"'plan' must be {LOWER + 1} networks from {inputs} numbers to {n_actions} actions, "
            f"got weights of shapes {shape} and {outputs}. Audit an episode by the plan it was played by."
        )


def _counts(options: DeepOptions, state: State) -> dict[str, int]:
    return {}


NETWORKS = Learner(
    losses=("explorer_loss", "high_loss", "low_loss"),
    keeps_account=False,
    first=_first,
    opened=_opened,
    offer=_offer,
    proposal=_proposal,
    booked=_booked,
    remember=remember,
    learn=_learnt,
    closed=_closed,
    incumbent=_incumbent,
    baseline=_baseline,
    with_explorer=_with_explorer,
    check_plan=_check_plan,
    counts=_counts,
    grounds=lambda options, state: options.grounds,
)
