"""The paired ensemble as a learner: one update of all members, frozen plans, rollback, and prices.

Members evaluate the argmax of their own mean. They give f, and Q = G(t) f with G the discounted number of
steps left: a loss on raw values would clip the one transition in H that ends an episode. Networks of agents
without a budget (`dqn`, `cql`, `sac`) lie behind the members and learn in the same update.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax  # type: ignore[import-untyped]

from chary.deep.ensemble.account import Account, first_account, noted, returns_of
from chary.deep.ensemble.pricing import (
    best_action,
    horizon_weight,
    paired_gaps,
    pooled_charges,
    pooled_terms,
    step_bounds,
)
from chary.deep.ensemble.rollback import Rollback, first_rollback, judged
from chary.deep.learners import Learner, Observed, Offer, Sizes
from chary.deep.losses import at_actions, cql_penalty, evaluation_targets, explorer_targets, huber
from chary.deep.networks import Networks, first_networks, forward, one, with_time
from chary.deep.options import DeepOptions
from chary.deep.replay import EXTRA, Batch, Replay, drawn, empty_replay, keep
from chary.deep.sac import actor_loss, cooled, soft_targets
from chary.deep.shielding import ChainState, first_chain
from chary.errors import InvalidData, InvalidSetting

# Columns of the replay behind those of every learner: an observed return, and the episode before which it
# counts.
OBSERVED, UNTIL = 0, 1
# Networks of an agent's own: one that proposes, and for SAC two critics behind it.
OWN = {"dqn": 1, "cql": 1, "sac": 3}


class Plan(NamedTuple):
    """What acts and prices during an episode.

    Args:
        members: The frozen members, (E, ...).
        member: The one that explores under `thompson`.
        explorer: The members that explore, where those of an open chain stay; the agent's own network of
            `cql`; else `()`.
    """

    members: Networks
    member: jax.Array
    explorer: Any


class EnsembleState(NamedTuple):
    """A whole training run between two episodes.

    Args:
        networks: The members, then networks of the agent's own.
        targets: Their target networks; the candidate baseline is greedy in the mean of the members here.
        plan: What acts and prices, frozen during an episode.
        account: Of the episode in the state.
        optimiser: Adam's moments.
        replay: The transitions observed, with observed returns where they are known.
        rollback: The best members so far.
        unsound: How often each member had to be replaced since a weight was not finite, (E,).
        chain: The meta-rollout in the making.
        key: The key of later randomness.
        episodes: Episodes played after the warm-up.
        updates: Updates made.
        log_temperature: Of SAC alone; stays 0 for others.
    """

    networks: Networks
    targets: Networks
    plan: Plan
    account: Account
    optimiser: optax.OptState
    replay: Replay
    rollback: Rollback
    unsound: jax.Array
    chain: ChainState
    key: jax.Array
    episodes: jax.Array
    updates: jax.Array
    log_temperature: jax.Array


def first_state(options: DeepOptions, sizes: Sizes, key: jax.Array) -> EnsembleState:
    """Return a learner without data; every member has first weights of its own."""
    networks_key, later = jax.random.split(key)
    number, own, inputs = options.ensemble.members, OWN.get(options.agent, 0), sizes.observation + 1
    networks = members = first_networks(networks_key, inputs, options.width, sizes.actions, number)
    if own:
        # Drawn apart: the members are the same for all agents.
        own_key = jax.random.fold_in(networks_key, number)
        others = first_networks(own_key, inputs, options.width, sizes.actions, own)
        networks = Networks(*(jnp.concatenate(both) for both in zip(members, others, strict=True)))
    return EnsembleState(
        networks=networks,
        targets=networks,
        plan=_planned(options, networks, members, jnp.int32(0)),
        account=first_account(sizes.horizon),
        optimiser=_adam().init(networks),
        replay=empty_replay(options.replay, inputs, EXTRA + 2),
        rollback=first_rollback(options.ensemble, members),
        unsound=jnp.zeros(options.ensemble.members, jnp.int32),
        chain=first_chain(sizes.observation),
        key=later,
        episodes=jnp.int32(0),
        updates=jnp.int32(0),
        log_temperature=jnp.float32(0.0),
    )


def opened(options: DeepOptions, state: EnsembleState, key: jax.Array) -> EnsembleState:
    """Freeze the plan of a new episode: the candidate, or in a retreat the best members so far.

    Members that are not finite never become a plan: the best ones play in their place.
    """
    candidate, best = _members(options, state.targets), state.rollback.best
    retreats = (state.rollback.left > 0) | ~jnp.all(_sound(candidate))
    members = Networks(*(jnp.where(retreats, a, b) for a, b in zip(best, candidate, strict=True)))
    member = jax.random.randint(key, (), 0, options.ensemble.members, jnp.int32)
    plan = _planned(options, state.networks, members, member)
    if options.chained:
        stays = state.chain.open
        kept = with_explorer(options, plan, state.plan)
        plan = jax.tree.map(lambda old, new: jnp.where(stays, old, new), kept, plan)
    account = first_account(state.account.rewards.shape[0])
    account = account._replace(retreated=retreats, quiet=state.rollback.probation & ~retreats)
    return state._replace(plan=plan, account=account)


def offer(
    options: DeepOptions,
    plan: Plan,
    account: Account,
    observation: jax.Array,
    t: jax.Array,
    clock: jax.Array | None,
    horizon: int,
) -> Offer:
    """Return the plan at one observation; the charge of an action is what the pooled ledger grows by."""
    given = options.ensemble
    values = _valued(options, plan.members, observation, t, horizon)
    gaps = paired_gaps(given, values)
    weight = jnp.float64(1.0)
    if options.charge_from == "start":
        weight = jnp.power(jnp.float64(options.discount), t)
    terms = pooled_terms(given, gaps, weight)
    exploring, own = gaps, jnp.zeros(values.shape[1], jnp.float32)
    if options.agent == "cql":
        own = forward(plan.explorer, with_time(observation, t, horizon)[None])[0, 0]
    elif options.chained:
        when = t if clock is None else clock
        exploring = paired_gaps(given, _valued(options, plan.explorer, observation, when, horizon))
    if given.explorer == "thompson":
        wanted = exploring.values[plan.member]
    elif given.explorer == "paired":
        wanted = given.optimism * exploring.deviation - exploring.mean
    else:
        each = exploring.values
        wanted = jnp.mean(each, axis=0) + given.optimism * jnp.std(each, axis=0, ddof=1)
    return Offer(
        explorer=jnp.where(account.quiet, gaps.baseline, best_action(wanted)),
        baseline=gaps.baseline,
        charges=pooled_charges(given, account.pool, terms),
        bounds=weight * step_bounds(given, gaps),
        values=own,
        terms=terms,
    )


def proposal(
    options: DeepOptions, state: EnsembleState, observation: jax.Array, t: jax.Array, horizon: int
) -> jax.Array:
    """Return the present values, or logits, of the agent's own network."""
    network = one(state.networks, options.ensemble.members)
    return forward(network, with_time(observation, t, horizon)[None])[0, 0]


def booked(
    options: DeepOptions, account: Account, said: Offer, t: jax.Array, action: jax.Array, cost: jax.Array
) -> Account:
    """Return the account after an action was chosen; the baseline's adds nothing to the pool."""
    return account._replace(
        pool=account.pool + jnp.where(action == said.baseline, 0.0, said.terms[action]),
        booked=account.booked + cost,
        baselines=account.baselines.at[t].set(said.baseline),
    )


def remember(
    options: DeepOptions,
    state: EnsembleState,
    seen: Observed,
    t: jax.Array,
    horizon: int,
    counts: jax.Array,
    own: jax.Array | bool,
) -> EnsembleState:
    """Return the state with one transition more, if it `counts`, noted in the account if it is its `own`."""
    now, after = with_time(seen.observation, t, horizon), with_time(seen.reached, t + 1, horizon)
    ended = seen.ended | (t + 1 == horizon)
    mine = jnp.asarray(own) & counts
    account = noted(state.account, seen, t, horizon, state.replay.written, mine)
    nothing = jnp.float32(0.0)
    replay = keep(state.replay, now, after, seen.action, seen.reward, ended, nothing, counts)
    return state._replace(replay=replay, account=account)


def goals(options: DeepOptions, state: EnsembleState, batch: Batch) -> jax.Array:
    """Return the targets of all networks for a batch, (n, B): those of members divided by G.

    A member's is r + gamma Q_e(s', pi(s')), and where the return-to-go of the baseline was observed lately,
    partly that.
    """
    given, number = options.ensemble, options.ensemble.members
    after = forward(state.targets, batch.next_inputs)
    horizon = state.account.rewards.shape[0]
    scale = horizon_weight(batch.inputs[:, -1], options.discount, horizon)
    next_scale = horizon_weight(batch.next_inputs[:, -1], options.discount, horizon)
    baseline = best_action(jnp.mean(after[:number], axis=0))
    r, ended, discount = batch.rewards, batch.ended, options.discount
    estimated = evaluation_targets(
        r, jnp.zeros_like(r), ended, next_scale[:, None] * after[:number], baseline, discount
    )
    known = batch.rest[:, UNTIL] > state.episodes
    share = jnp.where(known, given.observed_share, 0.0).astype(jnp.float32)
    towards = ((1.0 - share) * estimated + share * batch.rest[:, OBSERVED]) / scale
    if options.agent in OWN:
        choosing = forward(one(state.networks, number), batch.next_inputs)[0]
        if options.agent == "sac":
            alpha = jnp.exp(state.log_temperature)
            soft = soft_targets(r, ended, choosing, after[number + 1], after[number + 2], alpha, discount)
            own = [jnp.zeros_like(soft), soft, soft]
        else:
            own = [explorer_targets(options, batch, choosing, after[number])]
        towards = jnp.concatenate([towards, jnp.stack(own)])
    held: jax.Array = jax.lax.stop_gradient(towards)
    return held


def loss(
    options: DeepOptions, networks: Networks, batch: Batch, towards: jax.Array, log_temperature: jax.Array
) -> jax.Array:
    """Return the mean loss of each network, (n,)."""
    values = forward(networks, batch.inputs)
    losses = jnp.mean(huber(at_actions(values, batch.actions) - towards, options.huber), axis=1)
    own = options.ensemble.members
    if options.agent == "cql":
        losses = losses.at[own].add(options.cql_weight * cql_penalty(values[own], batch.actions))
    if options.agent == "sac":
        alpha = jnp.exp(log_temperature)
        losses = losses.at[own].set(actor_loss(values[own], values[own + 1], values[own + 2], alpha))
    return losses


def update(options: DeepOptions, state: EnsembleState, batch: Batch) -> tuple[EnsembleState, jax.Array]:
    """Move all networks and their targets by one step; return losses of before by `ENSEMBLE.losses`."""
    towards = goals(options, state, batch)

    def total(networks: Networks) -> tuple[jax.Array, jax.Array]:
        losses = loss(options, networks, batch, towards, state.log_temperature)
        # They share no weight: the gradient of the sum is that of each.
        return jnp.sum(losses), losses

    gradients, losses = jax.grad(total, has_aux=True)(state.networks)
    moves, optimiser = _adam().update(gradients, state.optimiser)
    rates = _rates(options)
    networks = jax.tree.map(lambda weights, move: weights - rates * move, state.networks, moves)
    updates = state.updates + 1
    if options.target == "polyak":
        targets = optax.incremental_update(networks, state.targets, options.tau)
    else:
        targets = optax.periodic_update(networks, state.targets, updates, options.period)
    learnt = state._replace(networks=networks, targets=targets, optimiser=optimiser, updates=updates)
    number = options.ensemble.members
    if options.agent == "sac":
        logits = forward(one(state.networks, number), batch.inputs)[0]
        learnt = learnt._replace(log_temperature=cooled(options, state.log_temperature, logits))
    own = losses[number] if options.agent in OWN else jnp.float32(0.0)
    return learnt, jnp.stack([own, jnp.mean(losses[:number]), jnp.max(losses[:number])])


def learn(options: DeepOptions, state: EnsembleState, uniforms: jax.Array) -> tuple[EnsembleState, jax.Array]:
    """Return the state after one update from transitions drawn by uniforms (B,), and its losses."""
    return update(options, state, drawn(state.replay, uniforms, EXTRA + 2))


def closed(options: DeepOptions, state: EnsembleState) -> EnsembleState:
    """Return the state after an episode: observed returns are kept, it is judged, and members are checked."""
    account, replay = state.account, state.replay
    found = returns_of(account, options.discount)
    capacity = replay.rows.shape[0]
    # Places that were not written over since.
    there = found.clean & (replay.written - account.written < capacity)
    places = jnp.where(there, (account.written - 1) % capacity, capacity)
    # Closing counts this episode afterwards.
    until = (state.episodes + 1 + options.ensemble.observed_for).astype(jnp.float32)
    first = replay.rows.shape[1] - 2
    rows = replay.rows.at[places, first + OBSERVED].set(found.to_go.astype(jnp.float32), mode="drop")
    rows = rows.at[places, first + UNTIL].set(until, mode="drop")
    rollback = judged(
        options.ensemble,
        state.rollback,
        state.plan.members,
        account.retreated,
        found.complete,
        found.whole,
        account.booked,
    )
    return _mended(options, state._replace(replay=replay._replace(rows=rows), rollback=rollback))


def incumbent(options: DeepOptions, state: EnsembleState) -> Plan:
    """Return the plan of the candidate baseline."""
    return _planned(options, state.networks, _members(options, state.targets), jnp.int32(0))


def baseline(
    options: DeepOptions, plan: Plan, observations: jax.Array, times: jax.Array, horizon: int
) -> jax.Array:
    """Return the baseline's actions (B,) at observations (B, d) and times (B,)."""
    inputs = jax.vmap(with_time, (0, 0, None))(observations, times, horizon)
    scale = horizon_weight(inputs[:, -1], options.discount, horizon)
    values = scale[:, None] * forward(plan.members, inputs)
    return best_action(jnp.mean(values.astype(jnp.float64), axis=0))


def with_explorer(options: DeepOptions, plan: Plan, other: Plan) -> Plan:
    """Return the plan with the explorer of another."""
    return plan._replace(member=other.member, explorer=other.explorer)


def check_plan(options: DeepOptions, plan: Any, sizes: Sizes) -> None:
    """Raise a CharyError unless this is a plan of an ensemble of these sizes."""
    if not isinstance(plan, Plan):
        raise InvalidSetting(
            f"'plan' must be a Plan of the ensemble, such as 'state.plan', got {type(plan).__name__}."
        )
    shape, outputs = jnp.shape(plan.members.w1), jnp.shape(plan.members.w3)
    members, inputs = options.ensemble.members, sizes.observation + 1
    if shape[:2] != (members, inputs) or outputs[1] != sizes.actions:
        raise InvalidData(
            f"'plan' must be {members} members from {inputs} numbers to {sizes.actions} actions, got weights "
            f"of shapes {shape} and {outputs}. Audit an episode by the plan it was played by."
        )


def counts(options: DeepOptions, state: EnsembleState) -> dict[str, int]:
    """Return how often the best networks had to play again, and members had to be replaced."""
    return {"retreats": int(state.rollback.retreats), "unsound_members": int(state.unsound.sum())}


@lru_cache(maxsize=16)
def frozen_gaps(options: DeepOptions, horizon: int) -> Callable[[Plan, Any, Any], Any]:
    """Return a compiled call from a plan, an observation and a step to what its members predict.

    These are the mean value of each action, (A,), the baseline's action, and mean and standard deviation of
    each action's gap.
    """

    def predicted(plan: Plan, observation: jax.Array, t: jax.Array) -> Any:
        values = _valued(options, plan.members, observation, t, horizon).astype(jnp.float64)
        gaps = paired_gaps(options.ensemble, values)
        return jnp.mean(values, axis=0), gaps.baseline, gaps.mean, gaps.deviation

    return jax.jit(predicted)


def _members(options: DeepOptions, networks: Networks) -> Networks:
    return Networks(*(leaf[: options.ensemble.members] for leaf in networks))


def _planned(options: DeepOptions, networks: Networks, members: Networks, member: jax.Array) -> Plan:
    explorer: Any = ()
    if options.agent == "cql":
        explorer = one(networks, options.ensemble.members)
    elif options.chained:
        explorer = members
    return Plan(members, member, explorer)


def _valued(
    options: DeepOptions, members: Networks, observation: jax.Array, t: jax.Array, horizon: int
) -> jax.Array:
    """Return Q_e, (E, A), at one observation."""
    inputs = with_time(observation, t, horizon)
    return horizon_weight(inputs[-1], options.discount, horizon) * forward(members, inputs[None])[:, 0]


def _sound(networks: Networks) -> jax.Array:
    """Return which networks have finite weights alone, (n,)."""
    each = [jnp.all(jnp.isfinite(leaf), axis=(1, 2)) for leaf in networks]
    return jnp.all(jnp.stack(each), axis=0)


def _mended(options: DeepOptions, state: EnsembleState) -> EnsembleState:
    """Replace members with a weight that is not finite by the best ones, and count them."""
    number = options.ensemble.members
    sound = _sound(state.networks) & _sound(state.targets)
    bad = ~sound[:number]

    def mended(leaf: jax.Array, best: jax.Array) -> jax.Array:
        wrong = bad.reshape(-1, *(1,) * (leaf.ndim - 1))
        return leaf.at[:number].set(jnp.where(wrong, best, leaf[:number]))

    best = state.rollback.best
    nothing = jax.tree.map(jnp.zeros_like, best)
    adam = state.optimiser._replace(
        mu=Networks(*map(mended, state.optimiser.mu, nothing)),
        nu=Networks(*map(mended, state.optimiser.nu, nothing)),
    )
    return state._replace(
        networks=Networks(*map(mended, state.networks, best)),
        targets=Networks(*map(mended, state.targets, best)),
        optimiser=adam,
        unsound=state.unsound + bad,
    )


def _rates(options: DeepOptions) -> jax.Array:
    own = [options.learning_rate] * OWN.get(options.agent, 0)
    rates = [options.ensemble.learning_rate] * options.ensemble.members + own
    return jnp.asarray(rates, jnp.float32)[:, None, None]


def _adam() -> optax.GradientTransformation:
    return optax.scale_by_adam()


ENSEMBLE = Learner(
    losses=("explorer_loss", "member_loss", "largest_member_loss"),
    keeps_account=True,
    first=first_state,
    opened=opened,
    offer=offer,
    proposal=proposal,
    booked=booked,
    remember=remember,
    learn=learn,
    closed=closed,
    incumbent=incumbent,
    baseline=baseline,
    with_explorer=with_explorer,
    check_plan=check_plan,
    counts=counts,
    grounds=lambda options, state: options.grounds,
)
