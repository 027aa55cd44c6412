"""The shield inside a compiled loop: one chain at a time, and the same `authorise` as everywhere.

It computes the decisions of `chary.shield.Shield` with a pool of 1 and `within(radius)`, by selection in
place of branches; a parity test compares the two.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from chary.deep.options import DeepOptions
from chary.shield.ledger import Ledger, authorise, refuse
from chary.shield.rule import Rule


class ChainState(NamedTuple):
    """The one meta-rollout in the making, and counts of earlier ones; slow twin: `chary.shield.chains`.

    `open`: it is unfinished; `fed`: this episode plays it; `complete`: finished in this very episode, which
    goes on exploring. `target` (d,) is where it resumes, `length` its steps so far, `idle` the episodes that
    have ended since it advanced. `fed`, `complete`, `refused` and `explored` belong to one episode.
    """

    open: jax.Array
    fed: jax.Array
    complete: jax.Array
    target: jax.Array
    length: jax.Array
    idle: jax.Array
    refused: jax.Array
    explored: jax.Array
    started: jax.Array
    finished: jax.Array
    abandoned: jax.Array
    blocked: jax.Array


class Verdict(NamedTuple):
    """The shield's decision about one step; `cost` is the charge it books."""

    candidate: jax.Array
    explored: jax.Array
    cost: jax.Array
    ledger: Ledger
    chain: ChainState


def first_chain(size: int) -> ChainState:
    """Return the state without a chain, for observations of that length."""
    no, none = jnp.bool_(False), jnp.int32(0)
    target = jnp.zeros((size,), jnp.float32)
    return ChainState(no, no, no, target, none, none, no, none, none, none, none, none)


def chain_counts(chain: ChainState) -> dict[str, int]:
    """Return the chains started, finished and abandoned, and the episodes in which none moved."""
    return {name: int(getattr(chain, name)) for name in ("started", "finished", "abandoned", "blocked")}


def first_ledger() -> Ledger:
    """Return the ledger of a new episode on arrays."""
    return Ledger(jnp.bool_(False), jnp.float64(0.0))


def rule_on_arrays(rule: Rule) -> Rule:
    """Return a rule whose numbers are arrays, so that `jax.vmap` may vary them."""
    limit, lookahead, step_bound = (jnp.asarray(x, jnp.float64) for x in rule[:3])
    closes = jnp.asarray(rule.closes, bool)
    return Rule(limit, lookahead, step_bound, closes)  # type: ignore[arg-type]


def decide(
    options: DeepOptions,
    rule: Rule,
    ledger: Ledger,
    chain: ChainState,
    t: jax.Array,
    observation: jax.Array,
    charge: jax.Array,
    busy: jax.Array | bool = False,
    deviates: jax.Array | bool = True,
) -> Verdict:
    """Decide by the ledger whether the explorer's action, which costs `charge`, is played; eq. (5).

    A charge that is not finite is refused and never booked. Where the chain is `busy` in another open
    episode, this one cannot take it up. Where there are no chains and every step is a candidate, it is one
    if the explorer `deviates` from the baseline.
    """
    if options.every_step:
        return _decide_alone(rule, ledger, chain, charge, jnp.asarray(deviates))
    new = (t == 0) & ~chain.open
    distance = jnp.sqrt(jnp.sum(jnp.square((chain.target - observation).astype(jnp.float64))))
    arrived = chain.open & ~chain.fed & ~jnp.asarray(busy) & (distance <= options.radius)
    candidate = (chain.fed | arrived | new) & ~jnp.asarray(ledger.closed)
    explored, cost, ledger_after = _booked(rule, ledger, candidate, charge)
    refused = candidate & ~jnp.asarray(explored)
    # A chain that is refused waits here; one that was waiting keeps its target, a finished one is gone.
    stops = refused & (new | (chain.fed & ~chain.complete))
    started = candidate & new
    moved = chain._replace(
        open=jnp.where(stops, options.chained, chain.open | started),
        fed=(chain.fed | jnp.asarray(explored)) & ~refused,
        complete=chain.complete & ~refused,
        target=jnp.where(stops, observation.astype(jnp.float32), chain.target),
        length=jnp.where(started, 0, chain.length),
        idle=jnp.where(started, 0, chain.idle),
        refused=chain.refused | refused,
        explored=chain.explored + jnp.asarray(explored),
        started=chain.started + started,
    )
    return Verdict(candidate, jnp.asarray(explored), cost, ledger_after, moved)


def _decide_alone(
    rule: Rule, ledger: Ledger, chain: ChainState, charge: jax.Array, candidate: jax.Array
) -> Verdict:
    """Decide about a step that belongs to no chain."""
    candidate = candidate & ~jnp.asarray(ledger.closed)
    explored, cost, after = _booked(rule, ledger, candidate, charge)
    counted = chain._replace(
        refused=chain.refused | (candidate & ~explored), explored=chain.explored + explored
    )
    return Verdict(candidate, explored, cost, after, counted)


def _booked(
    rule: Rule, ledger: Ledger, candidate: jax.Array, charge: jax.Array
) -> tuple[jax.Array, jax.Array, Ledger]:
    """Return whether a candidate may explore, the cost booked as `authorise` does, and the ledger after."""
    finite = jnp.isfinite(charge)
    price = jnp.where(finite, charge, 0.0).astype(jnp.float64)
    put: Any = candidate & finite
    explored, after = authorise(ledger, put, price, rule)  # type: ignore[arg-type]
    closed = jnp.where(candidate & ~finite, refuse(ledger, rule).closed, after.closed)
    cost = jnp.where(explored, jnp.minimum(price, rule.step_bound), 0.0)
    return jnp.asarray(explored), cost, Ledger(closed, after.deficit)  # type: ignore[arg-type]


def advance(
    chain: ChainState, explored: jax.Array, reached: jax.Array, terminal: jax.Array, horizon: int
) -> ChainState:
    """Return the chain after a step: longer if it was its own, finished at H steps or a terminal state."""
    feeds = explored & ~chain.complete
    length = chain.length + feeds
    done = feeds & ((length == horizon) | terminal)
    return chain._replace(
        open=chain.open & ~done,
        complete=chain.complete | done,
        target=jnp.where(feeds, reached.astype(jnp.float32), chain.target),
        length=length,
        idle=jnp.where(feeds, 0, chain.idle),
        finished=chain.finished + done,
    )


def part(options: DeepOptions, chain: ChainState, observation: jax.Array) -> ChainState:
    """Return the chain after one of its steps was not played: it waits where that was to be played."""
    unfinished, no = chain.fed & ~chain.complete, jnp.bool_(False)
    return chain._replace(
        open=chain.open & (options.chained | ~unfinished),
        fed=no,
        complete=no,
        target=jnp.where(unfinished, observation, chain.target),
    )


def close(options: DeepOptions, chain: ChainState, busy: jax.Array | bool = False) -> ChainState:
    """Return the chain after the end of an episode: it waits or is given up, unless `busy` in another one."""
    no, kept = jnp.bool_(False), jnp.asarray(busy)
    stale = no
    if options.patience is not None and options.chained:
        stale = chain.open & (chain.idle >= options.patience) & ~kept
    return chain._replace(
        open=chain.open & ~stale & (options.chained | kept),
        fed=no,
        complete=no,
        idle=chain.idle + 1,
        refused=no,
        explored=jnp.int32(0),
        abandoned=chain.abandoned + stale,
        blocked=chain.blocked + (chain.refused & (chain.explored == 0)),
    )
