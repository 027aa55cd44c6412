"""A chunk of a run as one compiled call: some episodes, two audits of the last, and one episode held out.

What is compiled depends on the `Kind` of a run alone; seeds and budgets are arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from chary.deep.environment import Environment
from chary.deep.learners import AnyState, learner_of
from chary.deep.loop import EpisodeLog, begin, proceed
from chary.deep.options import DeepOptions
from chary.deep.simulation.audit import EpisodeAudit, against, audit_episode
from chary.deep.simulation.held_out import held_out_audit
from chary.shield.rule import Rule

# Folded into a run's key for the episodes that are held out.
HELD_OUT = 1
# Episodes per compiled call where nothing is audited.
UNAUDITED = 10


class Fault(NamedTuple):
    """The first step of a chunk with a reward that is not finite, if `found`."""

    found: jax.Array
    episode: jax.Array
    state: Any
    action: jax.Array


class Audits(NamedTuple):
    """The audits of one chunk.

    Args:
        own: Its last episode, against the baseline of that episode.
        incumbent: The same episode, against the baseline at the end of the warm-up.
        held_out: An episode that nothing is learnt from, against the same baseline as `own`.
    """

    own: EpisodeAudit
    incumbent: EpisodeAudit
    held_out: EpisodeAudit


class Chunk(NamedTuple):
    """The result of one compiled call next to the state; there are no audits where nothing is audited."""

    log: EpisodeLog
    audits: Audits | None
    fault: Fault


class Kind(NamedTuple):
    """Everything about a run that its compiled calls depend on; the options carry no budget."""

    environment: Environment
    options: DeepOptions
    audit_every: int

    @classmethod
    def of(cls, environment: Environment, options: DeepOptions, audit_every: int) -> Kind:
        """Return the kind of a run with these options."""
        bound = None if options.step_bound is None else 1.0
        return cls(environment, replace(options, eta=1.0, step_bound=bound), audit_every)

    def next_chunk(self, done: int) -> tuple[int, bool]:
        """Return the number of episodes of the chunk after `done`, and whether its last one is audited."""
        number = min(self.audit_every or UNAUDITED, self.options.episodes - done)
        return number, number == self.audit_every


@lru_cache(maxsize=16)
def compiled_begin(kind: Kind, *, lanes: bool = False) -> Callable[[jax.Array], Any]:
    """Return the compiled warm-up and pretraining, from a key; with `lanes`, from one key per lane."""

    def start(key: jax.Array) -> Any:
        return begin(kind.environment, kind.options, key)

    return jax.jit(jax.vmap(start) if lanes else start)


@lru_cache(maxsize=16)
def compiled_incumbent(kind: Kind, *, lanes: bool = False) -> Callable[[Any], Any]:
    """Return the call from a state to the plan of its baseline; with `lanes`, of all lanes."""

    def incumbent(state: AnyState) -> Any:
        return learner_of(kind.options).incumbent(kind.options, state)

    return jax.jit(jax.vmap(incumbent) if lanes else incumbent)


@lru_cache(maxsize=32)
def compiled_chunk(
    kind: Kind, number: int, audits: bool, *, lanes: bool = False
) -> Callable[[Any, Rule, Any], tuple[Any, Chunk]]:
    """Return the compiled call that plays `number` episodes and, with `audits`, audits the last of them.

    Its last argument is the plan at the end of the warm-up.
    """
    environment, options, _ = kind

    def play(state: AnyState, rule: Rule, incumbent: Any) -> tuple[Any, Chunk]:
        state, log, steps = proceed(environment, options, state, number, rule=rule, record=True)
        found = None
        if audits:
            last = jax.tree.map(lambda rows: rows[-1], steps)
            # Its own key: the run is the same with and without audits.
            key = jax.random.fold_in(state.key, HELD_OUT)
            found = Audits(
                audit_episode(environment, options, state.plan, last),
                audit_episode(
                    environment, options, incumbent, against(environment, options, incumbent, last)
                ),
                held_out_audit(environment, options, state.plan, key),
            )
        bad = ~jnp.isfinite(steps.reward).ravel()
        first = jnp.argmax(bad)
        episode, t = first // environment.horizon, first % environment.horizon
        state_there = jax.tree.map(lambda rows: rows[episode, t], steps.state)
        fault = Fault(jnp.any(bad), episode, state_there, steps.action[episode, t])
        return state, Chunk(log, found, fault)

    # The state is donated: its replay is written in place.
    return jax.jit(jax.vmap(play) if lanes else play, donate_argnums=0)
