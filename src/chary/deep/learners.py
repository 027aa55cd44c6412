"""What the loop, the step API and the judge need of a learner: pure functions, found from the options.

A learner estimates a baseline from transitions and prices deviations from it. Its state is a NamedTuple of
arrays of its own choice. Everybody else reads and replaces these of its fields alone:

    plan       what acts and prices, frozen during an episode; any pytree
    account    what is kept of one open episode, such as deviations so far; any pytree, `()` for nothing
    chain      the meta-rollout in the making, a `ChainState`
    key        the key of later randomness
    episodes   episodes played after the warm-up
    updates    updates made

To plug in another learner: write its functions, collect them in a `Learner`, and add it to `HOMES` and to
`chary.deep.options.LEARNERS`. Loop, step API, open episodes, saving, lanes, audits and sweeps then work with
it. Everything must trace under `jax.jit`, `jax.vmap` and `jax.lax.scan`; what has to be computed outside of
JAX can be called by `jax.pure_callback`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp

from chary.deep.options import DeepOptions
from chary.standing import Grounds

# The state of any learner: a NamedTuple with the fields that the module names, among others.
AnyState: TypeAlias = Any


class Sizes(NamedTuple):
    """The length of an observation, the number A of actions, and the horizon H."""

    observation: int
    actions: int
    horizon: int


class Observed(NamedTuple):
    """One step of an environment as arrays: observations (d,), the rest one number each."""

    observation: jax.Array
    action: jax.Array
    reward: jax.Array
    reached: jax.Array
    ended: jax.Array


class Offer(NamedTuple):
    """The plan at one observation.

    Args:
        explorer: The action that the explorer proposes.
        baseline: The baseline's action.
        charges: What each action adds to the ledger, (A,), float64: 0 for the baseline's own, and each
            passed through `as_booked`. One that is not finite is refused.
        bounds: A bound of each action's own gap, (A,), which coverage of steps is measured by; None where
            that is the charge.
        values: The explorer's values (A,), of agents without a budget.
        terms: Whatever `booked` needs to know of each action: a pytree with leading axis (A,).
    """

    explorer: jax.Array
    baseline: jax.Array
    charges: jax.Array
    bounds: jax.Array | None
    values: jax.Array
    terms: Any


class Learner(NamedTuple):
    """The functions of a learner; `plan` and `account` are parts of its `state`.

    Args:
        losses: The names of the losses that `learn` returns.
        keeps_account: Whether `remember` and `closed` use the account, so that the step API must put that of
            an episode into the state first.
        first: `(options, sizes, key)`: the state without data.
        opened: `(options, state, key)`: the state with the plan and the account of a new episode.
        offer: `(options, plan, account, observation, t, clock, horizon)`: an `Offer`. `clock` is the
            explorer's time where that is another, else None.
        proposal: `(options, state, observation, t, horizon)`: the present values (A,) of `dqn`, the present
            logits of `sac`, which have no plan.
        booked: `(options, account, offer, t, action, cost)`: the account after `action` is chosen and `cost`
            is booked.
        remember: `(options, state, seen, t, horizon, counts, own)`: the state with one transition more, if it
            `counts`. `own` says whether it belongs to the episode whose account is in the state.
        learn: `(options, state, uniforms)`: the state after one update from transitions that the uniforms
            (B,) point at, and its losses.
        closed: `(options, state)`: the state after the end of the episode in it.
        incumbent: `(options, state)`: a plan of the present baseline, for the judge.
        baseline: `(options, plan, observations, times, horizon)`: the baseline's actions (B,), int32.
        with_explorer: `(options, plan, other)`: the plan with the explorer of another.
        check_plan: `(options, plan, sizes)`: raises a CharyError unless it is a plan of this learner.
        counts: `(options, state)`: what to report of a run besides its chains, by name.
        grounds: `(options, state)`: everything that the promise of a budget leans on, with the result of any
            test of it.
    """

    losses: tuple[str, ...]
    keeps_account: bool
    first: Callable[..., Any]
    opened: Callable[..., Any]
    offer: Callable[..., Offer]
    proposal: Callable[..., jax.Array]
    booked: Callable[..., Any]
    remember: Callable[..., Any]
    learn: Callable[..., tuple[Any, jax.Array]]
    closed: Callable[..., Any]
    incumbent: Callable[..., Any]
    baseline: Callable[..., jax.Array]
    with_explorer: Callable[..., Any]
    check_plan: Callable[..., None]
    counts: Callable[..., dict[str, int]]
    grounds: Callable[..., Grounds]


def learner_of(options: DeepOptions) -> Learner:
    """Return the learner that the options name."""
    return HOMES[options.learns_by]()


def _ensemble() -> Learner:
    from chary.deep.ensemble.learner import ENSEMBLE

    return ENSEMBLE


def _linear() -> Learner:
    from chary.deep.linear.learner import LINEAR

    return LINEAR


def _networks() -> Learner:
    from chary.deep.learner import NETWORKS

    return NETWORKS


# By name, as in `chary.deep.options.LEARNERS`; imported when they are used.
HOMES: dict[str, Callable[[], Learner]] = {
    "ensemble": _ensemble,
    "linear": _linear,
    "networks": _networks,
}


def as_booked(options: DeepOptions, prices: jax.Array, t: jax.Array) -> jax.Array:
    """Return prices of step `t` as ledgers count them: from the start of the episode, if so chosen."""
    if options.charge_from == "start":
        return prices * jnp.power(jnp.float64(options.discount), t)
    return prices


def pretrained(options: DeepOptions, state: Any, keys: jax.Array) -> Any:
    """Return the state after one update per key, each of a batch drawn with it."""
    learner = learner_of(options)

    def one(state: Any, key: jax.Array) -> tuple[Any, None]:
        uniforms = jax.random.uniform(key, (options.batch,), jnp.float32)
        return learner.learn(options, state, uniforms)[0], None

    state, _ = jax.lax.scan(one, state, keys)
    return state
