"""Dense replanning, as public implementations of UCBVI do it: the whole (S, A, S) tensor at every step."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from statistics import median
from typing import NamedTuple

import numpy as np

from chary.arrays import Floats, Ints
from chary.mdp import FiniteMDP
from chary.randomness import generator_for

DENSE_BYTES = 4 * 2**30
# Dense replanning is repeated this often, and then on for the shorter time; never beyond the longer one.
DENSE_REPETITIONS = 5
DENSE_SECONDS = (0.05, 2.0)
# BLAS libraries read these once, when they are loaded.
THREADS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)


class DensePlan(NamedTuple):
    """Values (H + 1, S) and policies (H, S) of one dense replanning: all that an episode of chary needs."""

    v_lower: Floats
    baseline: Ints
    v_upper: Floats
    v_optimistic: Floats
    explorer: Ints


def replan_densely(P: Floats, reward: Floats, bonus: Floats, *, horizon: int) -> DensePlan:
    """Plan as dense implementations do: three backward inductions, each with H products of P and a vector.

    `P` is (S, A, S) over all actions, `reward` and `bonus` (S, A). Values are clipped to [0, H - t]; the
    baseline is the lower optimum's policy, the explorer the upper one's.

    Example:
        >>> P, reward = np.ones((1, 2, 1)), np.array([[0.0, 1.0]])
        >>> replan_densely(P, reward, np.full((1, 2), 0.25), horizon=2).v_lower[0]
        array([1.5])
    """
    S, A, _ = P.shape
    flat, states = P.reshape(S * A, S), np.arange(S)

    def induce(base: Floats, follow: Ints | None) -> tuple[Floats, Ints]:
        value, policy = np.zeros((horizon + 1, S)), np.zeros((horizon, S), dtype=np.int64)
        for t in range(horizon - 1, -1, -1):
            q = (flat @ value[t + 1]).reshape(S, A)
            q += base
            np.clip(q, 0.0, horizon - t, out=q)
            policy[t] = q.argmax(axis=1) if follow is None else follow[t]
            value[t] = q[states, policy[t]]
        return value, policy

    v_lower, baseline = induce(reward - bonus, None)
    v_upper, _ = induce(reward + bonus, baseline)
    v_optimistic, explorer = induce(reward + bonus, None)
    return DensePlan(v_lower, baseline, v_upper, v_optimistic, explorer)


def too_large(mdp: FiniteMDP) -> str | None:
    """Return why the problem is not replanned densely, None where it is."""
    size = 8 * mdp.n_states**2 * mdp.n_actions
    if size <= DENSE_BYTES:
        return None
    return f"a dense tensor would take {size / 2**30:.1f} GiB, more than {DENSE_BYTES / 2**30:g}"


@contextmanager
def single_threaded() -> Iterator[None]:
    """Give processes that start within a BLAS of one thread; this process has loaded its own already."""
    before = {name: os.environ.get(name) for name in THREADS}
    os.environ.update(dict.fromkeys(THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@cache
def _dense_problem(n_states: int, n_actions: int) -> tuple[Floats, Floats, Floats]:
    """Return P, rewards and bonuses to replan with: only their sizes matter for the time."""
    rng = generator_for(0, "dense problem")
    P = rng.random((n_states, n_actions, n_states))
    P /= P.sum(axis=2, keepdims=True)
    return P, rng.random((n_states, n_actions)), rng.random((n_states, n_actions))


def time_dense(n_states: int, n_actions: int, horizon: int) -> float:
    """Return the median seconds of a dense replanning; called in a separate process."""
    P, reward, bonus = _dense_problem(n_states, n_actions)
    seconds: list[float] = []
    least, most = DENSE_SECONDS
    while sum(seconds) < (most if len(seconds) < DENSE_REPETITIONS else least):
        began = time.perf_counter()
        replan_densely(P, reward, bonus, horizon=horizon)
        seconds.append(time.perf_counter() - began)
    return median(seconds)
