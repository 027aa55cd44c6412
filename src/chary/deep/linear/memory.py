"""The memory of linear worlds inside JAX: transitions that wait, and samples of those that came by."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from chary.deep.learners import Observed
from chary.linear.algebra import Sums, weighed
from chary.linear.features import median_distance

# Transitions of one action in one product; places left over have weight 0.
ROWS = 64


class Memory(NamedTuple):
    """Transitions that wait to be learnt, the first `used` of C; and counts.

    `learnt` is the number learnt, `before` that of the first plan, as of a log. Observations are float64.
    """

    observation: jax.Array
    reached: jax.Array
    action: jax.Array
    reward: jax.Array
    ended: jax.Array
    time: jax.Array
    used: jax.Array
    learnt: jax.Array
    before: jax.Array

    @property
    def valid(self) -> jax.Array:
        """Which places are used, (C,)."""
        return jnp.arange(self.reward.shape[0]) < self.used


class Reservoir(NamedTuple):
    """A uniform sample of rows that came by: those of the largest `priority`, -1 for none."""

    rows: jax.Array
    priority: jax.Array

    @classmethod
    def empty(cls, size: int, width: int) -> Reservoir:
        """Return a sample of nothing."""
        return cls(jnp.zeros((size, width)), jnp.full(size, -1.0))


def first_memory(capacity: int, size: int) -> Memory:
    """Return a memory of nothing, for observations of that length."""
    none, zero = jnp.zeros(capacity), jnp.int32(0)
    rows = jnp.zeros((capacity, size))
    whole = jnp.zeros(capacity, jnp.int32)
    return Memory(rows, rows, whole, none, jnp.zeros(capacity, bool), whole, zero, zero, zero)


def noted(memory: Memory, seen: Observed, t: jax.Array, counts: jax.Array) -> Memory:
    """Return the memory with one transition more, if it counts."""
    # A place outside is not written.
    place = jnp.where(counts, memory.used, memory.reward.shape[0])
    return memory._replace(
        observation=memory.observation.at[place].set(seen.observation.astype(jnp.float64), mode="drop"),
        reached=memory.reached.at[place].set(seen.reached.astype(jnp.float64), mode="drop"),
        action=memory.action.at[place].set(jnp.asarray(seen.action, jnp.int32), mode="drop"),
        reward=memory.reward.at[place].set(jnp.asarray(seen.reward, jnp.float64), mode="drop"),
        ended=memory.ended.at[place].set(seen.ended, mode="drop"),
        time=memory.time.at[place].set(jnp.asarray(t, jnp.int32), mode="drop"),
        used=memory.used + counts,
    )


def scale_of(scale: jax.Array, memory: Memory, given: float | None) -> Any:
    """Return the length scale: the one in use, the one given, or the median distance of what waits."""
    if given is not None:
        return jnp.float64(given)
    # Places beyond `used` repeat those before, so that they add no new distances.
    places = jnp.arange(memory.reward.shape[0]) % jnp.maximum(memory.used, 1)
    return lax.cond(
        scale > 0.0,
        lambda: scale,
        lambda: median_distance(jnp, memory.observation[places]).astype(jnp.float64),
    )


def kept_rows(memory: Memory, held_out: float, key: jax.Array) -> jax.Array:
    """Return which of the transitions that wait are learnt, (C,); the others are held out."""
    return memory.valid & (jax.random.uniform(key, memory.valid.shape, jnp.float64) >= held_out)


def held_out_now(memory: Memory) -> jax.Array:
    """Return transitions as rows of numbers (C, 2 d + 4), for `as_steps`."""
    columns = (memory.action, memory.reward, memory.ended, memory.time)
    numbers = jnp.stack([each.astype(jnp.float64) for each in columns], axis=1)
    return jnp.concatenate([memory.observation, memory.reached, numbers], axis=1)


def sampled(sample: Reservoir, rows: jax.Array, present: jax.Array, key: jax.Array) -> Reservoir:
    """Return the sample after the rows that are `present` came by."""
    drawn = jnp.where(present, jax.random.uniform(key, present.shape, jnp.float64), -1.0)
    priority, places = lax.top_k(jnp.concatenate([sample.priority, drawn]), sample.priority.shape[0])
    return Reservoir(jnp.concatenate([sample.rows, rows])[places], priority)


def taught(
    sums: Sums,
    memory: Memory,
    kept: jax.Array,
    phi_of: Callable[[jax.Array], jax.Array],
    key: jax.Array,
    lanes: int,
) -> Sums:
    """Return the sums with the transitions that are `kept`, each weighed in every world by an Exp(1).

    They are sorted by action and added in products of up to `ROWS`, each of one action.
    """
    actions = sums.gram.shape[0]
    label = jnp.where(kept, memory.action, actions)
    order = jnp.argsort(label, stable=True)
    number = jnp.bincount(label, length=actions + 1)[:actions]
    first = jnp.cumsum(number) - number
    products = -(-number // ROWS)
    last = jnp.cumsum(products)
    order = jnp.concatenate([order, jnp.zeros(ROWS, order.dtype)])

    def add(i: jax.Array, now: Sums) -> Sums:
        a = jnp.searchsorted(last, i, side="right")
        before = (i - (last[a] - products[a])) * ROWS
        places = lax.dynamic_slice_in_dim(order, first[a] + before, ROWS)
        counts = before + jnp.arange(ROWS) < number[a]
        drawn = jax.random.exponential(jax.random.fold_in(key, i), (ROWS, lanes), jnp.float64)
        drawn = jnp.where(counts[:, None], drawn, 0.0)
        after = jnp.where(memory.ended[places][:, None], 0.0, phi_of(memory.reached[places]))
        phi, rewards = phi_of(memory.observation[places]), memory.reward[places]
        gram, moves, earned = weighed(jnp, phi, after, rewards, drawn)
        return now._replace(
            gram=now.gram.at[a].add(gram),
            moves=now.moves.at[a].add(moves),
            earned=now.earned.at[a].add(earned),
        )

    whole: Sums = lax.fori_loop(0, last[-1], add, sums)
    return whole
