"""The compiled calls behind the step API: learning from one step and choosing at the next, in one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from chary.deep.acting import Draws, choose, closed, learn_from, opened, remember
from chary.deep.acting import Transition as Step
from chary.deep.learner import State, first_state, update
from chary.deep.options import DeepOptions
from chary.deep.replay import sample
from chary.deep.shielding import Chain, first_ledger
from chary.shield import Ledger, Rule

__all__ = ["Calls", "Seen", "compiled_calls", "shared"]


class Seen(NamedTuple):
    """A step that was observed and not learnt from yet."""

    step: Step
    explored: Any


class Calls(NamedTuple):
    """The compiled functions; all but the first two are given the state to write in place."""

    first: Callable[..., Any]
    choose: Callable[..., Any]
    open: Callable[..., Any]
    learn_and_choose: Callable[..., Any]
    learn_and_close: Callable[..., Any]
    close: Callable[..., Any]
    break_off: Callable[..., Any]
    remember: Callable[..., Any]
    pretrain: Callable[..., Any]


def shared(options: DeepOptions) -> DeepOptions:
    """Return options without what compiled code is told as it runs, or not at all."""
    return replace(
        options, eta=1.0, rule="strict", step_bound=None, after_refusal="pause", warm_up=0, pretraining=0
    )


@lru_cache(maxsize=16)
def compiled_calls(options: DeepOptions, size: int, n_actions: int, horizon: int) -> Calls:
    """Return the compiled functions of all agents with these options and sizes."""
    yes = np.bool_(True)

    def at(draws: Draws, t: jax.Array) -> Draws:
        return Draws(*(leaf[t] for leaf in draws))

    def first(key: jax.Array) -> State:
        # The key by which the compiled loop starts.
        return first_state(options, size, n_actions, jax.random.split(key, 3)[0])

    def open_(state: State) -> tuple[State, Draws, Ledger]:
        state, _, draws = opened(options, state, horizon)
        return state, draws, first_ledger()

    def choose_(
        state: State, ledger: Ledger, draws: Draws, rule: Rule, observation: jax.Array, t: jax.Array
    ) -> tuple[Chain, Ledger, jax.Array]:
        choice = choose(options, rule, state, ledger, observation, t, horizon, at(draws, t), jnp.asarray(yes))
        chain, booked = jnp.int32(-1), jnp.float64(0.0)
        if options.agent == "chary":
            # What was booked, as `authorise` books it.
            booked = jnp.where(choice.explored, jnp.minimum(choice.charge, rule.step_bound), 0.0)
            chain = jnp.where(choice.explored, choice.chain.started - 1, -1)
        told = (choice.action, choice.explored, booked, choice.ledger.deficit, chain)
        row = jnp.stack([jnp.asarray(x).astype(jnp.float64) for x in told])
        return choice.chain, choice.ledger, row

    def learn(state: State, draws: Draws, seen: Seen, t: jax.Array) -> State:
        learnt, _ = learn_from(
            options, state, seen.step, t, horizon, seen.explored, at(draws, t), jnp.asarray(yes)
        )
        return learnt

    def learn_and_choose(
        state: State,
        ledger: Ledger,
        draws: Draws,
        rule: Rule,
        observation: jax.Array,
        t: jax.Array,
        seen: Seen,
    ) -> tuple[State, Ledger, jax.Array]:
        learnt = learn(state, draws, seen, t - 1)
        chain, ledger, row = choose_(learnt, ledger, draws, rule, observation, t)
        return learnt._replace(chain=chain), ledger, row

    def learn_and_close(state: State, draws: Draws, seen: Seen, t: jax.Array) -> State:
        return closed(options, learn(state, draws, seen, t))

    def close(state: State) -> State:
        return closed(options, state)

    def break_off(state: State, observation: jax.Array) -> State:
        chain = state.chain
        # A chain that had only just started has never been anywhere else.
        starting = chain.fed & ~chain.complete & (chain.length == 0)
        waits = chain._replace(target=jnp.where(starting, observation, chain.target))
        return closed(options, state._replace(chain=waits))

    def remember_(state: State, steps: Step, times: jax.Array, counts: jax.Array) -> State:
        def one(state: State, row: tuple[Step, jax.Array, jax.Array]) -> tuple[State, None]:
            step, t, counted = row
            return remember(state, step, t, horizon, counted), None

        state, _ = lax.scan(one, state, (steps, times, counts))
        return state

    def pretrain(state: State, keys: jax.Array) -> State:
        def one(state: State, key: jax.Array) -> tuple[State, None]:
            return update(options, state, sample(state.replay, key, options.batch))[0], None

        state, _ = lax.scan(one, state, keys)
        return state

    # The state is given away: its replay is written in place.
    changing = (open_, learn_and_choose, learn_and_close, close, break_off, remember_, pretrain)
    return Calls(
        jax.jit(first), jax.jit(choose_), *(jax.jit(function, donate_argnums=0) for function in changing)
    )
