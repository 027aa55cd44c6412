"""Random ergodic MDPs of any size."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from chary.errors import InvalidSetting, check_integer, check_seed
from chary.mdp import FiniteMDP

DENSE_LIMIT = 20_000_000  # entries of a dense P, 160 MB of float64


def random(
    *, n_states: int = 10, n_actions: int = 3, horizon: int = 10, successors: int | None = None, seed: int = 0
) -> FiniteMDP:
    """Return a random MDP in which every state is reached from every other under every policy.

    Rows are drawn from a flat Dirichlet distribution over all states or, with `successors`, over that many
    states drawn without replacement. The next state on the ring, s + 1 modulo S, is always among them, so
    no policy avoids a state. Rewards r(s, a) are uniform on [0, 1]; an episode starts in a uniformly random
    state.

    Args:
        n_states: S.
        n_actions: A.
        horizon: H.
        successors: The number of possible successors of a pair, 1..S; all S by default.
        seed: A whole number >= 0 that fixes the MDP.

    Raises:
        InvalidSetting: if a size is not positive, `successors` exceeds `n_states`, or dense rows would not
            fit.

    Example:
        >>> random(n_states=20_000, n_actions=2, successors=5).setting.n_pairs
        40000
    """
    S = check_integer("n_states", n_states, minimum=1)
    A = check_integer("n_actions", n_actions, minimum=1)
    entropy = check_seed(seed)
    if successors is None:
        if S * S * A > DENSE_LIMIT:
            raise InvalidSetting(
                f"'successors' must be given if n_states * n_states * n_actions > {DENSE_LIMIT}, got None "
                f"with {S} states and {A} actions. Pass successors=5."
            )
        k = S
    else:
        k = check_integer("successors", successors, minimum=1)
        if k > S:
            raise InvalidSetting(f"'successors' must be at most n_states = {S}, got {k}.")

    rng = np.random.default_rng(np.random.SeedSequence(entropy))
    n_rows = S * A
    # Offsets from s: 1 is the ring successor; the others are drawn among 0 and 2..S-1.
    drawn = _distinct(rng, n_rows, k - 1, S - 1)
    offset = np.concatenate([np.ones((n_rows, 1), dtype=np.int64), np.where(drawn > 0, drawn + 1, 0)], axis=1)
    x = (np.repeat(np.arange(S), A)[:, None] + offset) % S
    p = _positive_dirichlet(rng, n_rows, k)
    R = rng.random((S, A))

    from scipy import sparse

    rows = np.repeat(np.arange(n_rows), k)
    P = sparse.coo_array((p.reshape(-1), (rows, x.reshape(-1))), shape=(n_rows, S))
    return FiniteMDP.from_sparse(P, R, name="random", horizon=horizon, start=np.full(S, 1 / S))


def _distinct(rng: np.random.Generator, n_rows: int, k: int, n: int) -> NDArray[np.int64]:
    """Draw k distinct numbers below n in each row, shape (n_rows, k), by Floyd's algorithm."""
    chosen = np.empty((n_rows, k), dtype=np.int64)
    for i, top in enumerate(range(n - k, n)):
        candidate = rng.integers(0, top + 1, size=n_rows)
        taken = (chosen[:, :i] == candidate[:, None]).any(axis=1)
        chosen[:, i] = np.where(taken, top, candidate)
    return chosen


def _positive_dirichlet(rng: np.random.Generator, n_rows: int, k: int) -> NDArray[np.float64]:
    """Draw rows of a flat Dirichlet distribution without zeros, shape (n_rows, k)."""
    # An exponential draw can be exactly 0, which would cut the ring.
    weight = np.maximum(rng.standard_exponential((n_rows, k)), np.finfo(float).tiny)
    share: NDArray[np.float64] = weight / weight.sum(axis=1, keepdims=True)
    return np.maximum(share, np.finfo(float).tiny)
