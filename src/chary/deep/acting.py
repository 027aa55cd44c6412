"""One step of a deep agent in two halves: choose an action; learn from what it did.

The compiled loop has the environment between the halves, inside JAX. The step API has it outside, and calls
the second half of one step together with the first half of the next.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from chary.deep.learners import AnyState, Observed, Offer, learner_of
from chary.deep.options import DeepOptions
from chary.deep.sac import drawn_action
from chary.deep.shielding import ChainState, advance, close, decide
from chary.shield.ledger import Ledger
from chary.shield.rule import Rule

# Folded into the key of an agent's draws for what a learner draws at the beginning of an episode.
OPENED = 1


class Draws(NamedTuple):
    """The uniforms of one step: `agent` (2,), `batch` (B,)."""

    agent: jax.Array
    batch: jax.Array


class Choice(NamedTuple):
    """The action of one step, and what follows for the ledger and the chain.

    Args:
        action: The action played.
        baseline: The baseline's action.
        explored: Whether the explorer, or chance, chose it.
        charge: The charge of the action played, booked or not, without any cap.
        bound: The bound of its own gap; None where that is the charge.
        ledger: The episode's ledger with it.
        chain: The chain with it.
        account: The learner's account of the episode with it.
    """

    action: jax.Array
    baseline: jax.Array
    explored: jax.Array
    charge: jax.Array
    bound: jax.Array | None
    ledger: Ledger
    chain: ChainState
    account: Any


def opened(options: DeepOptions, state: AnyState, horizon: int) -> tuple[Any, jax.Array, Draws]:
    """Return the state with the plan of a new episode, a key for the environment, and all draws, (H, ...)."""
    later, reset_key, agent_key, batch_key = jax.random.split(state.key, 4)
    # All at once: a generator called at every step costs more than its numbers.
    draws = Draws(
        jax.random.uniform(agent_key, (horizon, 2), jnp.float32),
        jax.random.uniform(batch_key, (horizon, options.batch), jnp.float32),
    )
    state = learner_of(options).opened(options, state, jax.random.fold_in(agent_key, OPENED))
    return state._replace(key=later), reset_key, draws


def closed(options: DeepOptions, state: AnyState, busy: jax.Array | bool = False) -> Any:
    """Return the state after the end of an episode; `busy` as in `choose`."""
    state = learner_of(options).closed(options, state)
    return state._replace(chain=close(options, state.chain, busy), episodes=state.episodes + 1)


def choose(
    options: DeepOptions,
    rule: Rule,
    state: AnyState,
    ledger: Ledger,
    observation: jax.Array,
    t: jax.Array,
    horizon: int,
    draw: Draws,
    playing: jax.Array,
    busy: jax.Array | bool = False,
) -> Choice:
    """Return the choice of the agent `options.agent`; where not `playing`, nothing is booked.

    With `busy`, another open episode plays the chain, so that this one cannot take it up.
    """
    learner = learner_of(options)
    clock = _explorers_clock(options, state.chain, t)
    offer = learner.offer(options, state.plan, state.account, observation, t, clock, horizon)
    if options.agent in ("dqn", "sac"):
        # They have no plan: they play by their present networks.
        offer = offer._replace(values=learner.proposal(options, state, observation, t, horizon))
    if options.shielded:
        charge = offer.charges[offer.explorer]
        deviates = offer.explorer != offer.baseline
        verdict = decide(options, rule, ledger, state.chain, t, observation, charge, busy, deviates)
        action, explored = jnp.where(verdict.explored, offer.explorer, offer.baseline), verdict.explored
        cost = verdict.cost
        ledger = selected(playing, verdict.ledger, ledger)
        chain = selected(playing, verdict.chain, state.chain)
    else:
        action, explored = _unshielded(options, state, offer, draw.agent)
        cost, chain = jnp.float64(0.0), state.chain
    account = learner.booked(options, state.account, offer, t, action, cost)
    account = selected(playing, account, state.account)
    bound = None if offer.bounds is None else offer.bounds[action]
    return Choice(action, offer.baseline, explored, offer.charges[action], bound, ledger, chain, account)


def learn_from(
    options: DeepOptions,
    state: AnyState,
    seen: Observed,
    t: jax.Array,
    horizon: int,
    explored: jax.Array,
    draw: Draws,
    playing: jax.Array,
    own: jax.Array | bool = True,
) -> tuple[Any, jax.Array]:
    """Remember a transition, move the chain on, and update once; return the losses too.

    `own` says whether the transition belongs to the episode whose account is in the state.
    """
    learner = learner_of(options)
    state = learner.remember(options, state, seen, t, horizon, playing, own)
    if options.shielded:
        chain = advance(state.chain, explored & playing, seen.reached, seen.ended, horizon)
        state = state._replace(chain=selected(playing, chain, state.chain))
    return learner.learn(options, state, draw.batch)


def one_of(n_actions: int, uniform: jax.Array) -> jax.Array:
    """Return an action in 0..A-1, each equally likely, from a uniform in [0, 1)."""
    return jnp.minimum((uniform * n_actions).astype(jnp.int32), n_actions - 1)


def selected(condition: jax.Array, yes: Any, no: Any) -> Any:
    """Return one of two pytrees."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), yes, no)


def _explorers_clock(options: DeepOptions, chain: ChainState, t: jax.Array) -> jax.Array | None:
    """Return the explorer's time where it has another clock than the episode's."""
    if not options.shielded or options.clock == "episode":
        return None
    return jnp.where(chain.complete, t, jnp.where(chain.open, chain.length, 0))


def _unshielded(
    options: DeepOptions, state: AnyState, offer: Offer, uniforms: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Return the action of an agent without a budget, and whether it explored."""
    n_actions, best = offer.charges.shape[0], jnp.argmax(offer.values)
    if options.agent == "dqn":
        passed = state.episodes / (options.anneal * options.episodes)
        start, end = options.epsilon_start, options.epsilon_end
        explored = uniforms[0] < start + (end - start) * jnp.minimum(passed, 1.0)
        return jnp.where(explored, one_of(n_actions, uniforms[1]), best), explored
    if options.agent == "sac":
        action = drawn_action(offer.values, uniforms[0])
        return action, action != best
    if options.agent == "random":
        return one_of(n_actions, uniforms[1]), jnp.bool_(True)
    action = best if options.agent == "cql" else jnp.int32(options.action)
    return action, jnp.bool_(False)
