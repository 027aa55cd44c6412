"""Corridor: the informative state is at the far end, and hurrying there spends the budget on the way."""

from __future__ import annotations

import numpy as np

from chary.errors import InvalidSetting, check_integer, check_real
from chary.mdp import FiniteMDP

WALK, HURRY, BACK = 0, 1, 2
SAFE, BETTER = 0, 1


def corridor(
    *,
    length: int = 11,
    horizon: int = 20,
    arms: int = 3,
    early_reward: float = 0.45,
    early_gap: float = 0.09,
    safe_reward: float = 0.5,
    late_gain: float = 0.15,
    boost: float = 0.5,
) -> FiniteMDP:
    """Return a corridor whose informative state comes late in the episode.

    Cells 0..L-1 lead to the gate, state L. In a cell, action 0 walks one cell on and earns `early_reward`;
    action 1 hurries, one cell further with probability `boost`, and earns `early_gap` less; any other goes
    back to cell 0 and earns nothing. At the gate every allowed action is an arm, which leads to state L + 1
    (lit) or L + 2 (dim). Arm 0 is safe: it earns `safe_reward` in both cases, lit or dim. The
    other arms earn 1 for lit and 0 for dim: arm 1 lights up with probability `safe_reward + late_gain`, those
    above 1 with `safe_reward - late_gain`. Lit and dim have one action, which earns `safe_reward` and leads
    to the gate.

    Chains are needed here. For a policy that plays arm 0, hurrying costs `early_gap` - `boost` *
    (`safe_reward` - `early_reward`) per cell and about 0.48 over the whole corridor (with the defaults). For
    a policy with a much better arm it pays, and an optimistic explorer expects such an arm until arm 1 has
    been tried often. So an explorer that starts at the beginning of every episode hurries, has spent a small
    budget before it reaches the gate, and never tries arm 1: its regret is linear. A chain waits where its
    budget ended, resumes there with a new budget when the baseline reaches that state, as it does in every
    episode, and so reaches the gate, where one try of arm 1 is affordable.

    Args:
        length: L, the number of cells before the gate, >= 1.
        horizon: H.
        arms: The number of arms at the gate, >= 2; there are max(3, arms) actions.
        early_reward: The reward of walking, in [0, 1].
        early_gap: The cost of hurrying, in [0, early_reward].
        safe_reward: The reward of arm 0, in [0, 1].
        late_gain: The advantage of arm 1 and the disadvantage of the arms above it; safe_reward - late_gain
            and safe_reward + late_gain must lie in [0, 1].
        boost: The probability that hurrying gains a cell, in [0, 1].

    Raises:
        InvalidSetting: if a number is outside its range.

    Example:
        >>> corridor().n_states
        14
    """
    L = check_integer("length", length, minimum=1)
    n_arms = check_integer("arms", arms, minimum=2)
    walk = check_real("early_reward", early_reward, low=0.0, high=1.0)
    gap = check_real("early_gap", early_gap, low=0.0, high=walk, way_out="It is paid out of 'early_reward'.")
    safe = check_real("safe_reward", safe_reward, low=0.0, high=1.0)
    gain = check_real("late_gain", late_gain, low=0.0, high=1.0)
    jump = check_real("boost", boost, low=0.0, high=1.0)
    if safe - gain < 0 or safe + gain > 1:
        raise InvalidSetting(
            f"'late_gain' must keep safe_reward - late_gain and safe_reward + late_gain in [0, 1], "
            f"got {gain:g} with safe_reward = {safe:g}."
        )

    S, A = L + 3, max(3, n_arms)
    gate, lit, dim = L, L + 1, L + 2
    P, R = np.zeros((S, A, S)), np.zeros((S, A, S))
    for cell in range(L):
        P[cell, WALK, cell + 1] = 1.0
        P[cell, HURRY, cell + 1] += 1 - jump
        P[cell, HURRY, min(cell + 2, gate)] += jump
        P[cell, BACK:, 0] = 1.0
    R[:L, WALK], R[:L, HURRY] = walk, walk - gap
    # The safe arm leads to both outcomes as well: the baseline must reach every state in which a chain may
    # wait.
    chance = np.full(A, safe - gain)
    chance[SAFE], chance[BETTER] = 0.5, safe + gain
    P[gate, :, lit], P[gate, :, dim] = chance, 1 - chance
    R[gate, :, lit] = 1.0
    R[gate, SAFE] = safe
    P[lit:, 0, gate] = 1.0
    R[lit:] = safe
    allowed = np.ones((S, A), dtype=bool)
    allowed[gate, n_arms:] = False
    allowed[lit:, 1:] = False
    # Agents may know that an action has at most two outcomes.
    return FiniteMDP.from_arrays(P, R, name="corridor", horizon=horizon, allowed=allowed, support=2)
