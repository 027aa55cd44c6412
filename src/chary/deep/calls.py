"""The compiled calls behind the step API: learning from one step and choosing at the next, in one call.

The compiled state has room for one episode's own part: its frozen networks and its place in the chain. With
several open episodes the parts of the others are kept outside, as `Own`, and take turns in the state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from chary.deep.acting import Draws, choose, closed, learn_from, opened
from chary.deep.learners import Observed, Sizes, learner_of, pretrained
from chary.deep.options import DeepOptions
from chary.deep.shielding import ChainState, advance, first_chain, first_ledger, part
from chary.shield import Ledger, Rule

# Logged transitions per compiled call; the last call is filled up with ones that do not count.
CHUNK = 512
# Fields of the chain that belong to an episode; without chains the others but counters do, too.
OWN_FIELDS = ("fed", "complete", "refused", "explored")
CHAIN_FIELDS = ("open", "target", "length", "idle")


class Seen(NamedTuple):
    """A step that was observed and not learnt from yet; with `explored`, the chain moves on with it."""

    step: Observed
    explored: Any


class Question(NamedTuple):
    """The next step of an episode; `busy` as in `chary.deep.acting.choose`."""

    ledger: Ledger
    draws: Draws
    rule: Rule
    observation: Any
    t: Any
    busy: Any


class Own(NamedTuple):
    """The part of a state that belongs to one episode: plan, fields of the chain, and account."""

    plan: Any
    chain: ChainState
    account: Any


class Calls(NamedTuple):
    """The compiled functions; those after `with_explorer` write in place into the state they are given."""

    first: Callable[..., Any]
    choose: Callable[..., Any]
    move: Callable[..., Any]
    part: Callable[..., Any]
    with_explorer: Callable[..., Any]
    open: Callable[..., Any]
    learn: Callable[..., Any]
    learn_and_choose: Callable[..., Any]
    learn_and_close: Callable[..., Any]
    close: Callable[..., Any]
    break_off: Callable[..., Any]
    remember: Callable[..., Any]
    pretrain: Callable[..., Any]


def shared(options: DeepOptions) -> DeepOptions:
    """Return options without those that compiled code takes as arguments, or does not use."""
    return replace(
        options, eta=1.0, rule="strict", step_bound=None, after_refusal="pause", warm_up=0, pretraining=0
    )


def own_of(state: Any) -> Own:
    """Return a copy of the part that belongs to the episode in the state."""
    own: Own = jax.tree.map(jnp.copy, Own(state.plan, state.chain, state.account))
    return own


def with_own(calls: Calls, state: Any, own: Own | None, *, chains: bool) -> Any:
    """Return the state with the part of another episode; None is one that begins.

    The chain waits for any episode, and its explorer with it; without chains both belong to an episode.
    """
    if own is None:
        own = own_of(state._replace(chain=first_chain(state.chain.target.shape[0])))
    fields = OWN_FIELDS if chains else OWN_FIELDS + CHAIN_FIELDS
    chain = state.chain._replace(**{name: getattr(own.chain, name) for name in fields})
    plan = calls.with_explorer(own.plan, state.plan) if chains else own.plan
    return state._replace(chain=chain, plan=plan, account=own.account)


def remember_all(calls: Calls, state: Any, steps: Sequence[Observed], times: Sequence[int]) -> Any:
    """Return the state with logged transitions in its replay and its bonus."""
    for start in range(0, len(steps), CHUNK):
        part, at = steps[start : start + CHUNK], times[start : start + CHUNK]
        missing = CHUNK - len(part)
        whole = jax.tree.map(lambda *rows: np.stack(rows), *part, *([part[0]] * missing))
        counts = np.arange(CHUNK) < len(part)
        state = calls.remember(state, whole, np.array([*at, *([0] * missing)], np.int32), counts)
    return state


@lru_cache(maxsize=16)
def compiled_calls(options: DeepOptions, size: int, n_actions: int, horizon: int) -> Calls:
    """Return the compiled functions of all agents with these options and sizes."""
    yes = np.bool_(True)
    learner = learner_of(options)

    def at(draws: Draws, t: jax.Array) -> Draws:
        return Draws(*(leaf[t] for leaf in draws))

    def first(key: jax.Array) -> Any:
        # The key with which the compiled loop starts.
        return learner.first(options, Sizes(size, n_actions, horizon), jax.random.split(key, 3)[0])

    def open_(state: Any) -> tuple[Any, Draws, Ledger]:
        state, _, draws = opened(options, state, horizon)
        return state, draws, first_ledger()

    def choose_(state: Any, asked: Question) -> tuple[dict[str, Any], Ledger, jax.Array]:
        ledger, draws, rule, observation, t, busy = asked
        choice = choose(
            options, rule, state, ledger, observation, t, horizon, at(draws, t), jnp.asarray(yes), busy
        )
        chain, booked = jnp.int32(-1), jnp.float64(0.0)
        if options.shielded:
            # The charge as `authorise` books it.
            booked = jnp.where(choice.explored, jnp.minimum(choice.charge, rule.step_bound), 0.0)
            # The number of a chain that this episode starts or takes up; else it plays on.
            takes_up = choice.explored & ~state.chain.fed & (not options.every_step)
            chain = jnp.where(takes_up, choice.chain.started - 1, -1)
        row = (choice.action, choice.explored, booked, choice.ledger.deficit, chain)
        moved = {"chain": choice.chain, "account": choice.account}
        return moved, choice.ledger, jnp.stack([jnp.asarray(x).astype(jnp.float64) for x in row])

    def move(chain: ChainState, explored: jax.Array, reached: jax.Array) -> ChainState:
        return advance(chain, explored, reached, jnp.bool_(False), horizon)

    def learn(state: Any, draws: Draws, seen: Seen, t: jax.Array, own: jax.Array | bool = True) -> Any:
        learnt, _ = learn_from(
            options, state, seen.step, t, horizon, seen.explored, at(draws, t), jnp.asarray(yes), own
        )
        return learnt

    def learn_and_choose(state: Any, asked: Question, seen: Seen) -> tuple[Any, Ledger, jax.Array]:
        learnt = learn(state, asked.draws, seen, asked.t - 1)
        moved, ledger, row = choose_(learnt, asked)
        return learnt._replace(**moved), ledger, row

    def learn_and_close(state: Any, busy: jax.Array, draws: Draws, seen: Seen, t: jax.Array) -> Any:
        return closed(options, learn(state, draws, seen, t), busy)

    def break_off(state: Any, busy: jax.Array, observation: jax.Array) -> Any:
        return closed(options, state._replace(chain=part(options, state.chain, observation)), busy)

    def remember_(state: Any, steps: Observed, times: jax.Array, counts: jax.Array) -> Any:
        def one(state: Any, row: tuple[Observed, jax.Array, jax.Array]) -> tuple[Any, None]:
            step, t, counted = row
            return learner.remember(options, state, step, t, horizon, counted, False), None

        state, _ = lax.scan(one, state, (steps, times, counts))
        return state

    with_explorer = partial(learner.with_explorer, options)
    # The state is donated to these: its replay is written in place.
    ending = (learn_and_close, partial(closed, options), break_off)
    changing = (open_, learn, learn_and_choose, *ending, remember_, partial(pretrained, options))
    return Calls(
        *(jax.jit(function) for function in (first, choose_, move, partial(part, options), with_explorer)),
        *(jax.jit(function, donate_argnums=0) for function in changing),
    )
