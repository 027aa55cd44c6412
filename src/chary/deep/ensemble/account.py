"""The account of one open episode: its pool of deviations, and what is needed to learn from its returns."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from chary.deep.learners import Observed


class Account(NamedTuple):
    """One episode so far; `H` is the horizon.

    Args:
        pool: The sums of the pooled ledger, (2,).
        booked: The deficit booked.
        retreated: Whether the best networks play it in a retreat.
        quiet: Whether nothing may deviate in it, since its networks are on probation.
        baselines: The baseline's action at each step decided, (H,).
        deviated: Whether another action was played, (H,).
        rewards: Rewards observed, (H,).
        written: Transitions ever kept when each of its own was, that one included, (H,); 0 before.
        length: Its steps, 0 before it has ended.
    """

    pool: jax.Array
    booked: jax.Array
    retreated: jax.Array
    quiet: jax.Array
    baselines: jax.Array
    deviated: jax.Array
    rewards: jax.Array
    written: jax.Array
    length: jax.Array


def first_account(horizon: int) -> Account:
    """Return the account of an episode in which nothing has happened."""
    whole = jnp.zeros(horizon, jnp.int32)
    return Account(
        pool=jnp.zeros(2, jnp.float64),
        booked=jnp.float64(0.0),
        retreated=jnp.bool_(False),
        quiet=jnp.bool_(False),
        baselines=whole,
        deviated=jnp.zeros(horizon, bool),
        rewards=jnp.zeros(horizon, jnp.float64),
        written=whole,
        length=jnp.int32(0),
    )


def noted(
    account: Account, seen: Observed, t: jax.Array, horizon: int, written: jax.Array, own: jax.Array
) -> Account:
    """Return the account with an outcome of step `t`, if it is its `own`."""
    here = jnp.where(own, t, horizon)
    deviates = seen.action != account.baselines[t]
    return account._replace(
        deviated=account.deviated.at[here].set(deviates, mode="drop"),
        rewards=account.rewards.at[here].set(seen.reward.astype(jnp.float64), mode="drop"),
        written=account.written.at[here].set(written + 1, mode="drop"),
        length=jnp.where(own & (seen.ended | (t + 1 == horizon)), t + 1, account.length).astype(jnp.int32),
    )


class Returns(NamedTuple):
    """The returns-to-go of an episode, (H,), where they are those of its baseline, and the whole return."""

    complete: jax.Array
    whole: jax.Array
    to_go: jax.Array
    clean: jax.Array


def returns_of(account: Account, discount: float) -> Returns:
    """Return what was earned from each step on; `clean` where nothing deviated after the step.

    An episode is complete once it has ended and all of its outcomes are known; nothing of another is clean.
    """
    times = jnp.arange(account.rewards.shape[0])
    inside = times < account.length
    complete = (account.length > 0) & jnp.all(~inside | (account.written > 0))

    def back(after: Any, at: Any) -> tuple[Any, Any]:
        earned, clean = after
        reward, deviated = at
        earned = reward + discount * earned
        return (earned, clean & ~deviated), (earned, clean)

    at = (jnp.where(inside, account.rewards, 0.0), inside & account.deviated)
    first = (jnp.float64(0.0), jnp.bool_(True))
    (whole, _), (to_go, clean) = lax.scan(back, first, at, reverse=True)
    return Returns(complete, whole, to_go, complete & inside & clean)
