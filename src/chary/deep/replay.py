"""A ring of fixed size with the transitions observed: one row per transition, so that one array moves."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

# Action, reward, end and bonus, after the two inputs; a learner may have more columns behind them.
EXTRA = 4


class Batch(NamedTuple):
    """Transitions as networks read them: inputs (B, D) hold observation and time; the rest has shape (B,).

    `bonuses` were computed when each transition was last drawn; `places` are their rows in the ring. `rest`
    are a learner's own columns (B, ...), `()` without any.
    """

    inputs: jax.Array
    next_inputs: jax.Array
    actions: jax.Array
    rewards: jax.Array
    ended: jax.Array
    bonuses: jax.Array
    places: jax.Array
    rest: Any = ()


class Replay(NamedTuple):
    """`rows` (N, 2 D + 4) or more, float32; `written` is the number of transitions ever kept."""

    rows: jax.Array
    written: jax.Array


def empty_replay(capacity: int, inputs: int, extra: int = EXTRA) -> Replay:
    """Return an empty ring with so many `extra` columns after the two inputs."""
    return Replay(jnp.zeros((capacity, 2 * inputs + extra), jnp.float32), jnp.int32(0))


def keep(
    replay: Replay,
    inputs: jax.Array,
    next_inputs: jax.Array,
    action: jax.Array,
    reward: jax.Array,
    ended: jax.Array,
    bonus: jax.Array,
    counts: jax.Array | bool = True,
) -> Replay:
    """Return the ring with one more transition in place of the oldest; with `counts` False, as it was."""
    place = replay.written % replay.rows.shape[0]
    rest = jnp.stack([x.astype(jnp.float32) for x in (action, reward, ended, bonus)])
    behind = jnp.zeros(replay.rows.shape[1] - 2 * inputs.shape[0] - EXTRA, jnp.float32)
    row = jnp.concatenate([inputs, next_inputs, rest, behind])
    row = jnp.where(counts, row, replay.rows[place])
    written = replay.written + jnp.asarray(counts).astype(jnp.int32)
    return Replay(jax.lax.dynamic_update_index_in_dim(replay.rows, row, place, 0), written)


def drawn(replay: Replay, uniforms: jax.Array, extra: int = EXTRA) -> Batch:
    """Return the transitions that uniforms in [0, 1), shape (B,), point at, each equally likely."""
    size = jnp.minimum(replay.written, replay.rows.shape[0])
    places = jnp.minimum((uniforms * size).astype(jnp.int32), size - 1)
    rows = replay.rows.at[places].get(mode="promise_in_bounds")
    width = (rows.shape[1] - extra) // 2
    return Batch(
        rows[:, :width],
        rows[:, width : 2 * width],
        rows[:, 2 * width].astype(jnp.int32),
        rows[:, 2 * width + 1],
        rows[:, 2 * width + 2],
        rows[:, 2 * width + 3],
        places,
        rows[:, 2 * width + EXTRA :] if extra > EXTRA else (),
    )


def renew(replay: Replay, places: jax.Array, bonuses: jax.Array) -> Replay:
    """Return the ring with new bonuses at those places."""
    return replay._replace(rows=replay.rows.at[places, -1].set(bonuses, mode="promise_in_bounds"))


def sample(replay: Replay, key: jax.Array, number: int) -> Batch:
    """Return transitions drawn with replacement; the ring must not be empty."""
    return drawn(replay, jax.random.uniform(key, (number,), jnp.float32))
