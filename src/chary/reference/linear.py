"""Linear worlds, slowly and plainly: every world alone, by regressions on all transitions; no sums are kept.

The twin of `linear.worlds`: there the targets of a stage are never formed, since they are linear in the
coefficients of the stage behind it; here they are, transition by transition.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from chary.arrays import Bools, Floats, Ints


class Data(NamedTuple):
    """Transitions: features `phi` and `after` (n, F), the latter 0 after an end; the rest (n,) but `weight`.

    `weight` (n, L) is that of every transition in every world. `lost` ones have no reward and no `after`.
    """

    phi: Floats
    action: Ints
    reward: Floats
    after: Floats
    lost: Bools
    weight: Floats


class Ends(NamedTuple):
    """The prior of one coefficient per entry: two values per unit of g_t, with weights (2, A, L, F)."""

    value: Floats
    weight: Floats


class LinearReference(NamedTuple):
    """A joint plan: `theta` (H, A, L, F), and `baseline` (H, M) and `value` (H, L, M) at the nodes."""

    theta: Floats
    baseline: Ints
    value: Floats


def plan_linear(
    data: Data,
    ends: Ends,
    nodes: Floats,
    *,
    actions: int,
    horizon: int,
    discount: float,
    rewards: tuple[float, float],
    judges: int,
    pessimism: float,
    lost_is: str = "low",
    policy: Ints | None = None,
) -> LinearReference:
    """Plan worlds backwards; every world of number `judges` or higher plays its own best action.

    Args:
        data: All transitions.
        ends: The prior; `value` has shape (2, F).
        nodes: The features of the nodes, (M, F).
        actions: A.
        horizon: H.
        discount: gamma.
        rewards: The least and the largest reward of a step.
        judges: K.
        pessimism: The baseline is the argmax of mean - pessimism * sd.
        lost_is: Whether a lost outcome is worth the `low` or the `high` end of what is possible.
        policy: Evaluate these actions at the nodes, (H, M), in all worlds, in place of a baseline.
    """
    F = data.phi.shape[1]
    L, M = data.weight.shape[1], len(nodes)
    theta, value = np.zeros((horizon, actions, L, F)), np.zeros((horizon, L, M))
    baseline = np.zeros((horizon, M), dtype=np.int64)
    ahead = np.zeros((L, F))
    for t in reversed(range(horizon)):
        left = sum(discount**i for i in range(horizon - t))
        low, high = rewards[0] * left, rewards[1] * left
        q = np.zeros((actions, L, M))
        for k in range(L):
            for a in range(actions):
                gram, side = np.zeros((F, F)), np.zeros(F)
                for j in range(F):
                    for end in (0, 1):
                        gram[j, j] += ends.weight[end, a, k, j]
                        side[j] += ends.weight[end, a, k, j] * ends.value[end, j] * left
                for i in np.flatnonzero(data.action == a):
                    target = data.reward[i] + discount * data.after[i] @ ahead[k]
                    if data.lost[i]:
                        target = low if lost_is == "low" else high
                    gram += data.weight[i, k] * np.outer(data.phi[i], data.phi[i])
                    side += data.weight[i, k] * data.phi[i] * target
                theta[t, a, k] = np.linalg.solve(gram, side)
                q[a, k] = np.clip(nodes @ theta[t, a, k], low, high)
        for m in range(M):
            mean, sd = q[:, :judges, m].mean(axis=1), q[:, :judges, m].std(axis=1, ddof=1)
            baseline[t, m] = (mean - pessimism * sd).argmax() if policy is None else policy[t, m]
            value[t, :, m] = q[baseline[t, m], :, m]
            if policy is None:
                value[t, judges:, m] = q[:, judges:, m].max(axis=0)
        for k in range(L):
            ahead[k] = np.linalg.lstsq(nodes, value[t, k], rcond=1e-3)[0]
    return LinearReference(theta, baseline, value)
