"""A linear MDP with known truth: next states and rewards are mixtures, with the features as their shares."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from chary.arrays import Floats, Ints
from chary.errors import check_integer, check_seed


class LinearMDP(NamedTuple):
    """P(x | s, a) = phi(s) . mu_a(x) and r(s, a) = phi(s) . theta_a, with phi(s) >= 0 that add up to 1.

    Args:
        phi: The features, (S, F).
        p: The transition probabilities, (S, A, S).
        r: The rewards, (S, A), in [0, 1].
    """

    phi: Floats
    p: Floats
    r: Floats

    def features(self, observations: Floats) -> Floats:
        """Return the features of observations (n, 1), which are numbers of states."""
        return np.asarray(self.phi[observations[:, 0].astype(np.int64)])

    def value(self, policy: Ints, discount: float) -> tuple[Floats, Floats]:
        """Return V (H + 1, S) and Q (H, S, A) of a policy (H, S)."""
        horizon, states = policy.shape
        v, q = np.zeros((horizon + 1, states)), np.zeros((horizon, *self.r.shape))
        for t in reversed(range(horizon)):
            q[t] = self.r + discount * self.p @ v[t + 1]
            v[t] = q[t, np.arange(states), policy[t]]
        return v, q


def linear_mdp(
    n_states: int = 24, n_actions: int = 3, features: int = 4, *, spread: float = 0.3, seed: int = 0
) -> LinearMDP:
    """Return a random linear MDP; few states are alike, the fewer the smaller `spread` is.

    Example:
        >>> mdp = linear_mdp(seed=1)
        >>> mdp.p.shape, bool(np.allclose(mdp.p.sum(axis=2), 1.0))
        ((24, 3, 24), True)
    """
    S = check_integer("n_states", n_states, minimum=1)
    A = check_integer("n_actions", n_actions, minimum=1)
    F = check_integer("features", features, minimum=1)
    rng = np.random.default_rng(np.random.SeedSequence(check_seed(seed)))
    phi = rng.dirichlet(np.full(F, spread), S)
    mu = rng.dirichlet(np.full(S, spread), (A, F))
    theta = rng.random((A, F))
    return LinearMDP(phi, np.einsum("sf,afx->sax", phi, mu), phi @ theta.T)
