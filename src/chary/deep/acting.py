"""One step of a deep agent in two halves: choose an action; learn from what it did.

The compiled loop has the environment between the halves, inside JAX. The step API has it outside, and calls
the second half of one step together with the first half of the next.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from chary.deep.bonus import featurise, learn
from chary.deep.learner import Prices, State, prices, update
from chary.deep.networks import EXPLORER, Networks, forward, one, with_time
from chary.deep.options import DeepOptions
from chary.deep.replay import drawn, keep
from chary.deep.sac import drawn_action
from chary.deep.shielding import ChainState, advance, close, decide
from chary.shield.ledger import Ledger
from chary.shield.rule import Rule


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
        charge: V_hi - Q_lo of the action played, booked or not, without any cap.
        ledger: The episode's ledger with it.
        chain: The chain with it.
    """

    action: jax.Array
    baseline: jax.Array
    explored: jax.Array
    charge: jax.Array
    ledger: Ledger
    chain: ChainState


class Observed(NamedTuple):
    """One step of an environment as arrays: observations (d,), the rest one number each."""

    observation: jax.Array
    action: jax.Array
    reward: jax.Array
    reached: jax.Array
    ended: jax.Array


def opened(options: DeepOptions, state: State, horizon: int) -> tuple[State, jax.Array, Draws]:
    """Return the state with the plan of a new episode, a key for the environment, and all draws, (H, ...)."""
    later, reset_key, agent_key, batch_key = jax.random.split(state.key, 4)
    # All at once: a generator called at every step costs more than its numbers.
    draws = Draws(
        jax.random.uniform(agent_key, (horizon, 2), jnp.float32),
        jax.random.uniform(batch_key, (horizon, options.batch), jnp.float32),
    )
    return state._replace(key=later, plan=_plan(state)), reset_key, draws


def closed(options: DeepOptions, state: State, busy: jax.Array | bool = False) -> State:
    """Return the state after the end of an episode; `busy` as in `choose`."""
    return state._replace(chain=close(options, state.chain, busy), episodes=state.episodes + 1)


def choose(
    options: DeepOptions,
    rule: Rule,
    state: State,
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
    inputs = _acting_inputs(options, state.chain, observation, t, horizon)
    values = forward(state.plan, inputs)[:, 0]
    if options.agent in ("dqn", "sac"):
        # They have no plan: they play by their present networks.
        values = values.at[EXPLORER].set(forward(one(state.networks, EXPLORER), inputs)[0, 0])
    said = prices(values)
    charges = said.charges.astype(jnp.float64)
    if options.charge_from == "start":
        charges = charges * jnp.power(jnp.float64(options.discount), t)
    if options.agent == "chary":
        verdict = decide(options, rule, ledger, state.chain, t, observation, charges[said.explorer], busy)
        action, explored = jnp.where(verdict.explored, said.explorer, said.baseline), verdict.explored
        ledger = selected(playing, verdict.ledger, ledger)
        chain = selected(playing, verdict.chain, state.chain)
    else:
        action, explored = _unshielded(options, state, said, values[EXPLORER], draw.agent)
        chain = state.chain
    return Choice(action, said.baseline, explored, charges[action], ledger, chain)


def learn_from(
    options: DeepOptions,
    state: State,
    seen: Observed,
    t: jax.Array,
    horizon: int,
    explored: jax.Array,
    draw: Draws,
    playing: jax.Array,
) -> tuple[State, jax.Array]:
    """Remember a transition, move the chain on, and update all networks once; return the losses too."""
    state = remember(state, seen, t, horizon, playing)
    if options.agent == "chary":
        chain = advance(state.chain, explored & playing, seen.reached, seen.ended, horizon)
        state = state._replace(chain=selected(playing, chain, state.chain))
    return update(options, state, drawn(state.replay, draw.batch))


def remember(state: State, seen: Observed, t: jax.Array, horizon: int, playing: jax.Array) -> State:
    """Return the state with one transition more in its replay and its bonus, unless not `playing`."""
    phi = featurise(state.features, seen.observation)
    inverse, bonus = learn(state.inverse, phi, seen.action, playing.astype(jnp.float32))
    now, after = with_time(seen.observation, t, horizon), with_time(seen.reached, t + 1, horizon)
    ended = seen.ended | (t + 1 == horizon)
    replay = keep(state.replay, now, after, seen.action, seen.reward, ended, bonus, playing)
    return state._replace(replay=replay, inverse=inverse)


def one_of(n_actions: int, uniform: jax.Array) -> jax.Array:
    """Return an action in 0..A-1, each equally likely, from a uniform in [0, 1)."""
    return jnp.minimum((uniform * n_actions).astype(jnp.int32), n_actions - 1)


def selected(condition: jax.Array, yes: Any, no: Any) -> Any:
    """Return one of two pytrees."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), yes, no)


def _plan(state: State) -> Networks:
    """Return the plan of a new episode: the present networks, but the explorer of an open chain stays."""

    def newest(now: jax.Array, old: jax.Array) -> jax.Array:
        return now.at[EXPLORER].set(jnp.where(state.chain.open, old[EXPLORER], now[EXPLORER]))

    return Networks(*map(newest, state.networks, state.plan))


def _acting_inputs(
    options: DeepOptions, chain: ChainState, observation: jax.Array, t: jax.Array, horizon: int
) -> jax.Array:
    """Return the networks' inputs (1, D), or (3, 1, D) where the explorer has another clock."""
    now = with_time(observation, t, horizon)
    if options.agent != "chary" or options.clock == "episode":
        return now[None]
    clock = jnp.where(chain.complete, t, jnp.where(chain.open, chain.length, 0))
    return jnp.stack([with_time(observation, clock, horizon), now, now])[:, None]


def _unshielded(
    options: DeepOptions, state: State, said: Prices, logits: jax.Array, uniforms: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Return the action of an agent without a budget, and whether it explored."""
    n_actions = said.charges.shape[0]
    if options.agent == "dqn":
        passed = state.episodes / (options.anneal * options.episodes)
        start, end = options.epsilon_start, options.epsilon_end
        explored = uniforms[0] < start + (end - start) * jnp.minimum(passed, 1.0)
        return jnp.where(explored, one_of(n_actions, uniforms[1]), said.explorer), explored
    if options.agent == "sac":
        action = drawn_action(logits, uniforms[0])
        return action, action != said.explorer
    if options.agent == "random":
        return one_of(n_actions, uniforms[1]), jnp.bool_(True)
    action = said.explorer if options.agent == "cql" else jnp.int32(options.action)
    return action, jnp.bool_(False)
