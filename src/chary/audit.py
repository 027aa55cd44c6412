"""The judge: regret, true deficit and violations of an episode, from the true MDP.

Only judging modules may have P and R and decide about violations. This one is the slow and clear NumPy
twin of the compiled audit, `simulation/_judge.py`, which must agree with it.
"""

from __future__ import annotations

from typing import NamedTuple, final, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from chary.arrays import Floats, Ints, frozen
from chary.errors import InvalidAction, InvalidData, InvalidMDP, InvalidSetting
from chary.mdp import FiniteMDP

VIOLATION_TOLERANCE = 1e-12
# Rows of P sum to 1 within 1e-9 only, so a value may exceed a sharp cap by as much per step.
VALUE_CAP_TOLERANCE = 1e-9
# A value that is lower by less than this did not fall.
FALL_TOLERANCE = 1e-9
# An episode drops if it earns this share less than the best one so far, after so many episodes.
DROP, DROPS_AFTER = 0.2, 200

BASELINE_OVER_TIME = (
    "incumbent_value",
    *("baseline_value_first", "baseline_value_last", "baseline_value_lowest"),
    *("baseline_falls", "baseline_below_incumbent"),
)


class Evaluation(NamedTuple):
    """The exact values of one policy: `value` of shape (H + 1, S) and `q` of shape (H, P), by pair."""

    value: Floats
    q: Floats


class Solution(NamedTuple):
    """An extreme policy, (H, S) actions, with its `value`, (H + 1, S), and `q`, (H, P)."""

    policy: Ints
    value: Floats
    q: Floats


class EpisodeAudit(NamedTuple):
    """The judgement of one episode, in scaled units (docs/algorithm.md section 7).

    `regret` is unbiased for V*_0 - V^pi_0, `true_deficit` is z* of eq. (1) at the end of the episode
    (it never decreases, so also its largest value), `signed_deficit` is unbiased for the left side of
    eq. (2), `largest_gap` is the largest single max(V - Q, 0) that was played, and `baseline_value` the
    baseline's value, a mean over first states.
    """

    regret: float
    true_deficit: float
    signed_deficit: float
    largest_gap: float
    baseline_value: float


@final
class Truth:
    """The true MDP with its exact optimum.

    `reward` is the mean reward of each pair, (P,), and `pair_state` its state, (P,). `optimal_policy`
    has shape (H, S), `optimal_value` (H + 1, S) and `optimal_q` (H, P). Terminal states are worth 0,
    and policies have action 0 there. All arrays are read-only.

    Example:
        >>> stay = FiniteMDP.from_arrays([[[1.0], [1.0]]], [[0.25, 1.0]], horizon=3)
        >>> truth = Truth(stay)
        >>> truth.value_of_start(truth.optimal_value)
        3.0
    """

    __slots__ = ("_acting", "mdp", "optimal_policy", "optimal_q", "optimal_value", "pair_state", "reward")

    def __init__(self, mdp: FiniteMDP) -> None:
        setting = mdp.setting
        self.mdp = mdp
        self.reward: Floats = frozen(np.add.reduceat(mdp.probability * mdp.reward, mdp.row_start[:-1]))
        self.pair_state: Ints = frozen(np.repeat(np.arange(setting.n_states), np.diff(setting.pair_start)))
        # Terminal states have no pairs, so the segments of the acting states alone cover them all.
        self._acting: Ints = frozen(np.flatnonzero(~setting.terminal))
        self.optimal_policy, self.optimal_value, self.optimal_q = self.solve()

    def backup(self, value: Floats) -> Floats:
        """Return R + gamma * P @ value for every pair, (P,), of values (S,) one step later."""
        mdp = self.mdp
        ahead = np.add.reduceat(mdp.probability * value[mdp.successor], mdp.row_start[:-1])
        return np.asarray(self.reward + mdp.setting.discount * ahead)

    def highest(self, q: Floats) -> tuple[Ints, Floats]:
        """Return the first best action and its value in every state, both (S,), of pair values (P,)."""
        setting = self.mdp.setting
        starts = setting.pair_start[self._acting]
        value = np.zeros(setting.n_states)
        value[self._acting] = np.maximum.reduceat(q, starts)
        best = np.where(q == value[self.pair_state], setting.pair_action, setting.n_actions)
        action = np.zeros(setting.n_states, dtype=np.int64)
        action[self._acting] = np.minimum.reduceat(best, starts)
        return action, value

    def solve(self, *, worst: bool = False) -> Solution:
        """Return the optimal policy and its values by backward induction, or with `worst` the worst one's."""
        H, S, sign = self.mdp.horizon, self.mdp.n_states, -1.0 if worst else 1.0
        policy = np.zeros((H, S), dtype=np.int64)
        value, q = np.zeros((H + 1, S)), np.zeros((H, len(self.reward)))
        for t in reversed(range(H)):
            q[t] = self.backup(value[t + 1])
            policy[t], extreme = self.highest(sign * q[t])
            value[t] = sign * extreme
        return Solution(frozen(policy), frozen(value), frozen(q))

    def evaluate(self, policy: ArrayLike) -> Evaluation:
        """Return the exact values of `policy`, actions of shape (H, S), or (S,) for all steps.

        V_t(s) is copied from Q_t(s, policy_t(s)), so the gap of the policy's own action is exactly 0.

        Raises:
            InvalidSetting: if the shape is wrong or an action is not allowed.
        """
        pair = self.policy_pairs(policy)
        H, S = self.mdp.horizon, self.mdp.n_states
        value, q = np.zeros((H + 1, S)), np.zeros((H, len(self.reward)))
        for t in reversed(range(H)):
            q[t] = self.backup(value[t + 1])
            value[t, self._acting] = q[t, pair[t, self._acting]]
        return Evaluation(frozen(value), frozen(q))

    def policy_pairs(self, policy: ArrayLike) -> Ints:
        """Return the pair that `policy` plays, (H, S), -1 in terminal states.

        Raises:
            InvalidSetting: if the shape is wrong or an action is not allowed.
        """
        setting = self.mdp.setting
        H, S, A = setting.horizon, setting.n_states, setting.n_actions
        actions = np.asarray(policy)
        if actions.shape not in ((H, S), (S,)) or not np.issubdtype(actions.dtype, np.integer):
            raise InvalidSetting(
                f"'policy' must contain whole numbers of shape ({H}, {S}) or ({S},), "
                f"got {actions.dtype} of shape {actions.shape}."
            )
        actions = np.where(setting.terminal, 0, np.broadcast_to(actions, (H, S)))
        pair: Ints = setting.pair_index[np.arange(S), np.clip(actions, 0, A - 1)]
        wrong = np.argwhere(((actions < 0) | (actions >= A) | (pair < 0)) & ~setting.terminal)
        if len(wrong):
            t, s = (int(i) for i in wrong[0])
            raise InvalidSetting(
                f"'policy' must play allowed actions only, got action {int(actions[t, s])} in state {s} "
                f"at step {t}."
            )
        return pair

    def gaps(self, policy: ArrayLike) -> Floats:
        """Return V_t(s) - Q_t(s, a) of `policy` for every step and pair, (H, P)."""
        value, q = self.evaluate(policy)
        return np.asarray(value[:-1, self.pair_state] - q)

    def value_of_start(self, value: Floats) -> float:
        """Return the mean of `value`, (H + 1, S), over the first state."""
        return float(self.mdp.start @ value[0])


def audit_episode(
    truth: Truth, states: ArrayLike, actions: ArrayLike, baseline: ArrayLike | Evaluation
) -> EpisodeAudit:
    """Judge one episode by the true MDP.

    `states` has shape (T + 1,) and `actions` (T,), T <= H; `baseline` is the policy pi_bar of this
    episode, (H, S), or its evaluation. With V and Q of the baseline and V*, Q* of the optimum,

        regret         = sum_t gamma^t (V*_t(s_t) - Q*_t(s_t, a_t)),
        true deficit   = sum_t max(V_t(s_t) - Q_t(s_t, a_t), 0),    eq. (1),
        signed deficit = sum_t gamma^t (V_t(s_t) - Q_t(s_t, a_t)),  eq. (2),

    added in ascending t. The baseline's own action adds exactly 0 to both deficits.

    Raises:
        InvalidData: if states and actions do not make an episode of this MDP.
        InvalidAction: if an action is not allowed where it was played.
        InvalidSetting: if `baseline` is not a policy of this MDP.
    """
    setting = truth.mdp.setting
    visited, played = _episode(truth, states, actions)
    value, q = baseline if isinstance(baseline, Evaluation) else truth.evaluate(baseline)
    regret = true_deficit = signed_deficit = largest_gap = 0.0
    weight = 1.0
    for t, (s, a) in enumerate(zip(visited, played, strict=False)):
        p = int(setting.pair_index[s, a])
        if p < 0:
            raise InvalidAction(
                f"'actions' must be allowed where they are played, got {a} in state {s} at step {t}."
            )
        gap = float(value[t, s]) - float(q[t, p])
        regret += weight * (float(truth.optimal_value[t, s]) - float(truth.optimal_q[t, p]))
        true_deficit += max(gap, 0.0)
        signed_deficit += weight * gap
        largest_gap = max(largest_gap, gap)
        weight *= setting.discount
    return EpisodeAudit(regret, true_deficit, signed_deficit, largest_gap, truth.value_of_start(value))


@overload
def violates(true_deficit: float, eta: float) -> bool: ...
@overload
def violates(true_deficit: Floats, eta: float | Floats) -> NDArray[np.bool_]: ...
def violates(true_deficit: float | Floats, eta: float | Floats) -> bool | NDArray[np.bool_]:
    """Return whether an episode, or each of many, broke its budget: z* > eta + 1e-12, both in the same units.

    Example:
        >>> violates(0.3, 0.1 + 0.2), violates(0.31, 0.3)
        (False, True)
    """
    return true_deficit > eta + VIOLATION_TOLERANCE


def falls(values: Floats) -> int:
    """Return how often a value was lower than the one before it, by more than rounding.

    Example:
        >>> falls(np.array([1.0, 2.0, 1.5, 1.5, 0.0]))
        2
    """
    return int(np.sum(np.diff(values) < -FALL_TOLERANCE))


def drops(returns: Floats) -> tuple[int, int]:
    """Return how many episodes after the 200th earned less than 80 % of the best so far, and the longest row.

    A best return that is negative is undercut by a fifth of its size.

    Example:
        >>> drops(np.array([*[1.0] * 200, 0.7, 0.9, 0.7, 0.7]))
        (3, 2)
    """
    best = np.maximum.accumulate(returns)
    low = (returns < best - DROP * np.abs(best))[DROPS_AFTER:]
    ends = np.flatnonzero(np.concatenate([[True], ~low, [True]]))
    return int(low.sum()), int(np.diff(ends).max()) - 1


def covers(booked: Floats, true_deficit: Floats) -> NDArray[np.bool_]:
    """Return which ledgers booked at least the true deficit of their episode, up to rounding.

    Example:
        >>> covers(np.array([1.0, 1.0]), np.array([1.0, 1.1])).tolist()
        [True, False]
    """
    return np.asarray(~violates(true_deficit, booked))


def baseline_over_time(value: Floats, incumbent: float, span: float) -> dict[str, float | int | None]:
    """Return the course of the baseline's true value (K,), NaN where it is unknown; None without any.

    The incumbent's value, the first, the last and the lowest of the baseline's, the number of episodes in
    which it was lower than in the episode before, and how far it was below the incumbent's at worst.

    Example:
        >>> baseline_over_time(np.array([0.5, 0.7, 0.4]), 0.5, 1.0)["baseline_falls"]
        1
    """
    known = value[~np.isnan(value)]
    if not len(known):
        return dict.fromkeys(BASELINE_OVER_TIME)
    below = max(incumbent - float(known.min()), 0.0)
    found = (incumbent, float(known[0]), float(known[-1]), float(known.min()), falls(known / span), below)
    return dict(zip(BASELINE_OVER_TIME, found, strict=True))


def check_value_cap(largest: float, cap: float) -> None:
    """Raise InvalidMDP if the optimal value exceeds the declared cap: clipped values would not be bounds."""
    if largest > cap + VALUE_CAP_TOLERANCE:
        raise InvalidMDP(
            f"'value_cap' must bound the optimal value, which reaches {largest:.12g}, got {cap:.12g}. "
            "Raise it, or leave it out to use the horizon."
        )


def gap_bound(truth: Truth, policy: ArrayLike) -> float:
    """Return the largest V_t(s) - Q_t(s, a) of `policy` over all steps, states and allowed actions.

    Rule `capped` is valid with every step bound >= this of each baseline played, and rule `paper` where
    it is <= eta / 2 (Assumption 2.3, for the baselines in fact played).
    """
    return float(truth.gaps(policy).max())


def _episode(truth: Truth, states: ArrayLike, actions: ArrayLike) -> tuple[list[int], list[int]]:
    setting = truth.mdp.setting
    visited, played = np.asarray(states), np.asarray(actions)
    T = len(played) if played.ndim == 1 else -1
    if not 0 <= T <= setting.horizon or visited.shape != (T + 1,):
        raise InvalidData(
            f"'states' and 'actions' must have shapes (T + 1,) and (T,) with T <= {setting.horizon}, "
            f"got {visited.shape} and {played.shape}."
        )
    for name, array, size in (("states", visited, setting.n_states), ("actions", played, setting.n_actions)):
        # An empty list of actions is an array of floats to NumPy.
        if len(array) and not np.issubdtype(array.dtype, np.integer):
            raise InvalidData(f"{name!r} must contain whole numbers, got {array.dtype}.")
        outside = array[(array < 0) | (array >= size)]
        if len(outside):
            raise InvalidData(f"{name!r} must lie in 0..{size - 1}, got {int(outside[0])}.")
    return [int(s) for s in visited], [int(a) for a in played]
