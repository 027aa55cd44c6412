"""RiverSwim: a small reward downstream, a large one upstream against the current."""

from __future__ import annotations

import numpy as np

from chary.errors import InvalidSetting, check_integer, check_real
from chary.mdp import FiniteMDP

LEFT, RIGHT = 0, 1


def riverswim(
    *,
    n_states: int = 6,
    horizon: int = 20,
    forward: float = 0.35,
    backward: float = 0.05,
    forward_at_source: float = 0.6,
    backward_at_end: float = 0.4,
    small_reward: float = 0.005,
    large_reward: float = 1.0,
) -> FiniteMDP:
    """Return RiverSwim, a chain on which greedy learners settle for the small reward.

    Action 0 swims left and always succeeds; action 1 swims right against the current: it advances with
    probability `forward`, is swept back with probability `backward` and otherwise stays. Left in
    state 0 earns `small_reward`, right in the last state `large_reward`. An episode starts in state 0.
    With the defaults, after Strehl and Littman (2008), "An analysis of model-based interval estimation for
    Markov decision processes", with the transition probabilities of Osband et al. (2013).

    Args:
        n_states: S, >= 2.
        horizon: H.
        forward: The probability of advancing in an inner state.
        backward: The probability of being swept back in an inner state; forward + backward <= 1.
        forward_at_source: The probability of advancing in state 0; otherwise it is kept.
        backward_at_end: The probability of being swept back in the last state; otherwise it is kept.
        small_reward: The reward downstream, in [0, 1].
        large_reward: The reward upstream, in [0, 1].

    Raises:
        InvalidSetting: if a probability or reward is outside [0, 1], or the two of a row exceed 1.

    Example:
        >>> riverswim().n_states
        6
    """
    S = check_integer("n_states", n_states, minimum=2)
    up = check_real("forward", forward, low=0.0, high=1.0)
    down = check_real("backward", backward, low=0.0, high=1.0)
    first = check_real("forward_at_source", forward_at_source, low=0.0, high=1.0)
    last = check_real("backward_at_end", backward_at_end, low=0.0, high=1.0)
    small = check_real("small_reward", small_reward, low=0.0, high=1.0)
    large = check_real("large_reward", large_reward, low=0.0, high=1.0)
    if up + down > 1:
        raise InvalidSetting(f"'forward' + 'backward' must be <= 1, got {up:g} + {down:g}.")
    P, R = np.zeros((S, 2, S)), np.zeros((S, 2))
    P[np.arange(S), LEFT, np.maximum(np.arange(S) - 1, 0)] = 1.0
    for s in range(S):
        advance = first if s == 0 else 0.0 if s == S - 1 else up
        retreat = 0.0 if s == 0 else last if s == S - 1 else down
        P[s, RIGHT, min(s + 1, S - 1)] += advance
        P[s, RIGHT, max(s - 1, 0)] += retreat
        P[s, RIGHT, s] += 1 - (advance + retreat)
    R[0, LEFT], R[S - 1, RIGHT] = small, large
    return FiniteMDP.from_arrays(P, R, name="riverswim", horizon=horizon)
