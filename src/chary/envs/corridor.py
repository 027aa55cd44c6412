"""Corridor: what is worth learning lies at the far end, and hurrying there spends the budget on the way."""

from __future__ import annotations

import numpy as np

from chary.errors import InvalidSetting, check_integer, check_real
from chary.mdp import FiniteMDP

__all__ = ["corridor"]

WALK, HURRY, BACK = 0, 1, 2
SAFE, BETTER = 0, 1


def corridor(
    *,
    length: int = 8,
    horizon: int = 16,
    arms: int = 3,
    early_reward: float = 0.45,
    early_gap: float = 0.1,
    safe_reward: float = 0.5,
    late_gain: float = 0.1,
    boost: float = 0.5,
) -> FiniteMDP:
    L = check_integer("length", length, minimum=1)
    n_arms = check_integer("arms", arms, minimum=2)
    reward = check_real("early_reward", early_reward, low=0.0, high=1.0)
    gap = check_real("early_gap", early_gap, low=0.0, high=reward, way_out="It is paid out of 'early_reward'.")
    safe = check_real("safe_reward", safe_reward, low=0.0, high=1.0)
    gain = check_real("late_gain", late_gain, low=0.0, high=1.0)
    jump = check_real("boost", boost, low=0.0, high=1.0)

    S, A = L + 3, max(3, n_arms)
    gate, lit, dim = L, L + 1, L + 2
    P, R = np.zeros((S, A, S)), np.zeros((S, A, S))
    for i in range(L):
        P[i, WALK, i + 1] = 1.0
        P[i, HURRY, i + 1] = 1 - jump
        P[i, HURRY, min(i + 2, gate)] += jump
        P[i, BACK:, 0] = 1.0
    R[:L, WALK] = reward
    R[:L, HURRY] = reward - gap
    chance = np.full(A, max(safe - gain, 0.0)); chance[SAFE] = .5; chance[BETTER] = min(safe + gain, 1.0)
    P[gate, :, lit], P[gate, :, dim] = chance, 1 - chance
    R[gate, :, lit] = 1.0
    R[gate, SAFE] = safe
    P[lit:, 0, gate] = 1.0
    R[lit:] = safe
    allowed = np.ones((S, A), bool); allowed[lit:, 1:] = False; allowed[gate, n_arms:] = False
    return FiniteMDP.from_arrays(P, R, name="corridor", horizon=horizon, support=2, allowed=allowed)
