"""How the agents without a shield choose: the frozen baseline up to some step, the explorer from there on.

Section 9: UCBVI switches at step 0, the frozen baseline at step H, CUCBVI and EpsMix at either, StepMix
anywhere. Both drivers call these kernels.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from chary._compile import bare, inner, jit, kernel_of
from chary.model.radii import CH, HOEFFDING, Radii
from chary.model.rows import Rows
from chary.planner._backup import LOWER, UPPER, Scratch, backup
from chary.planner._kernels import EVALUATE, START, backward_into, sorted_states
from chary.planner._lane_plans import evaluate_into
from chary.planner._lanes import LANES, floor_into, one_row_into

__all__ = [
    "CUCBVI",
    "EPSMIX",
    "FROZEN",
    "STEPMIX",
    "UCBVI",
    "Mixture",
    "guess_switch",
    "new_mixture",
    "switch_kernel",
    "switch_step",
    "uniform_pair",
]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

UCBVI, CUCBVI, STEPMIX, EPSMIX, FROZEN = range(5)


class Mixture(NamedTuple):
    """A neighbour's settings and memory.

    `frozen` (H, S) is pi_b, the warm-up's baseline; `oracle_value` (S,) its true value where that is
    used, else empty. `starts` and `baseline_starts` (S,) count first states, `promised[0]` sums the lower
    bounds of the optimistic episodes. `lower` (H + 1,) are the lower bounds of the candidates of the last
    episode, `last` its threshold and the step at which it went over. The rest is room for one plan.
    """

    kind: int
    alpha: float
    eta: float
    frozen: Ints
    oracle_value: Floats
    starts: Floats
    baseline_starts: Floats
    promised: Floats
    v_frozen: Floats
    v_explorer: Floats
    v_room: Floats
    lower: Floats
    last: Floats


def new_mixture(
    kind: int,
    *,
    frozen: Ints,
    alpha: float = 0.0,
    eta: float = 0.0,
    oracle_value: Floats | None = None,
) -> Mixture:
    """Return a neighbour that has not played yet."""
    H, S = frozen.shape
    return Mixture(
        kind=kind,
        alpha=float(alpha),
        eta=float(eta),
        frozen=np.array(frozen),
        oracle_value=np.zeros(0) if oracle_value is None else np.array(oracle_value),
        starts=np.zeros(S),
        baseline_starts=np.zeros(S),
        promised=np.zeros(1),
        v_frozen=np.zeros((H + 1, S)),
        v_explorer=np.zeros((H + 1, S)),
        v_room=np.zeros((H + 1, S)),
        lower=np.zeros(H + 1),
        last=np.zeros(2),
    )


@jit
def switch_step(
    mixture: Mixture, rows: Rows, radii: Radii, explorer: Ints, s: int, u: float, scratch: Scratch
) -> int:
    """Return the step from which the explorer plays in an episode that starts in s; u is one uniform."""
    horizon = radii.horizon
    if mixture.kind == UCBVI:
        return 0
    if mixture.kind == FROZEN:
        return horizon
    worth = mixture.oracle_value
    if len(worth) == 0:
        _evaluate_into(mixture.v_frozen, mixture.frozen, rows, radii, UPPER, scratch)
        worth = mixture.v_frozen[0]
    _evaluate_into(mixture.v_explorer, explorer, rows, radii, LOWER, scratch)
    if mixture.kind == CUCBVI:
        step = _cucbvi_step(mixture, worth, mixture.v_explorer[0, s], s, horizon)
    else:
        _lower_mixtures_into(mixture, rows, radii, s, scratch)
        mixture.last[0] = worth[s] - mixture.eta
        step = _mixed_step(mixture, mixture.last[0], u, horizon)
    mixture.last[1] = step
    return step


switch_kernel = kernel_of(switch_step)


@bare
def guess_switch(mixture: Mixture, u: float, horizon: int) -> int:
    """Return what `switch_step` might, by the bounds of the last episode."""
    if mixture.kind == UCBVI:
        return 0
    if mixture.kind == FROZEN:
        return horizon
    if mixture.kind == CUCBVI:
        return int(mixture.last[1])
    return _mixed_step(mixture, mixture.last[0], u, horizon)


@inner
def _evaluate_into(v: Floats, policy: Ints, rows: Rows, radii: Radii, sign: int, scratch: Scratch) -> None:
    """Fill the upper or lower value (H + 1, S) of a policy."""
    stages = (START, radii.horizon - 1)
    if _sums(radii):
        evaluate_into(v, policy, rows, radii, sign, stages)
    else:
        nobody, none = np.full(len(rows.visits), -1), np.zeros((0, 0))
        backward_into(v, none, policy, rows, radii, sign, EVALUATE, nobody, none, stages, scratch)


@bare
def _sums(radii: Radii) -> bool:
    """Return whether a backup is a sum and a bonus that the counts give alone."""
    return radii.family == HOEFFDING or radii.family == CH


@bare
def _mixed_step(mixture: Mixture, threshold: float, u: float, horizon: int) -> int:
    if mixture.kind == STEPMIX:
        return _stepmix_step(mixture.lower, threshold, u, horizon)
    return _epsmix_step(mixture.lower, threshold, u, horizon)


@inner
def _cucbvi_step(mixture: Mixture, worth: Floats, lower: float, s: int, horizon: int) -> int:
    """Play the optimistic policy if all promises, its own included, keep 1 - alpha of the baseline."""
    mixture.starts[s] += 1.0
    owed, earned = 0.0, mixture.promised[0] + lower
    for x in range(len(worth)):
        owed += mixture.starts[x] * worth[x]
        earned += mixture.baseline_starts[x] * worth[x]
    if earned >= (1.0 - mixture.alpha) * owed:
        mixture.promised[0] += lower
        return 0
    mixture.baseline_starts[s] += 1.0
    return horizon


@inner
def _lower_mixtures_into(mixture: Mixture, rows: Rows, radii: Radii, s: int, scratch: Scratch) -> None:
    """Fill LB(h0), h0 = 0..H: the lower value from s of pi_b before step h0 and the explorer from h0 on."""
    mixture.lower[0] = mixture.v_explorer[0, s]
    if mixture.kind == EPSMIX:
        _evaluate_into(mixture.v_room, mixture.frozen, rows, radii, LOWER, scratch)
        mixture.lower[radii.horizon] = mixture.v_room[0, s]
        return
    if _sums(radii):
        _lower_candidates_into(mixture, rows, radii, s)
        return
    n_states = len(rows.visits)
    value, earlier = np.zeros(n_states), np.zeros(n_states)
    for h0 in range(1, radii.horizon + 1):
        value[:] = mixture.v_explorer[h0]
        for t in range(h0 - 1, -1, -1):
            order = sorted_states(radii, value)
            for x in range(n_states):
                if radii.terminal[x]:
                    earlier[x] = 0.0
                else:
                    p = rows.pair_index[x, mixture.frozen[t, x]]
                    earlier[x] = backup(rows, radii, p, t, LOWER, value, order, scratch)
            value[:] = earlier
        mixture.lower[h0] = value[s]


@inner
def _lower_candidates_into(mixture: Mixture, rows: Rows, radii: Radii, s: int) -> None:
    """Fill LB(h0) for all h0 in one sweep: a row of pi_b is read once a stage, for all candidates at once.

    Candidate h0 joins at stage h0 - 1, from the explorer's value at h0. Values are clipped at every step, so
    that no forward pass over what pi_b visits could give the same bounds: it is a backward one, in lanes.
    """
    n_states, horizon = len(rows.visits), radii.horizon
    groups = horizon // LANES + 1
    value, earlier = np.zeros((groups, n_states, LANES)), np.zeros((groups, n_states, LANES))
    for t in range(horizon - 1, -1, -1):
        group, lane = (t + 1) // LANES, (t + 1) % LANES
        for x in range(n_states):
            value[group, x, lane] = mixture.v_explorer[t + 1, x]
        for g in range(group, groups):
            _stage_of_candidates_into(
                earlier[g],
                value[g],
                mixture.frozen[t],
                radii.vmax[t],
                radii.terminal,
                radii.discount,
                rows.pair_index,
                rows.begin,
                rows.length,
                rows.successor,
                rows.weight,
                rows.total,
                rows.reward_total,
                radii.width,
            )
        value, earlier = earlier, value
    for h0 in range(1, horizon + 1):
        mixture.lower[h0] = value[h0 // LANES, s, h0 % LANES]


@bare
def _stage_of_candidates_into(
    earlier: Floats,
    value: Floats,
    policy: Ints,
    top: float,
    terminal: NDArray[np.bool_],
    discount: float,
    pair_index: Ints,
    begin: Ints,
    length: Ints,
    successor: Ints,
    weight: Floats,
    total: Floats,
    reward_total: Floats,
    width: Floats,
) -> None:
    for x in range(len(terminal)):
        p = pair_index[x, policy[x]]
        if terminal[x] or p < 0 or total[p] == 0.0:
            for j in range(LANES):
                earlier[x, j] = 0.0
        else:
            end, r, n = begin[p] + length[p], reward_total[p], total[p]
            one_row_into(earlier, x, begin[p], end, successor, weight, value, r, discount, n, -width[p], top)
            floor_into(earlier, x)


@bare
def _stepmix_step(lower: Floats, threshold: float, u: float, horizon: int) -> int:
    """Mix the first candidate that reaches the threshold with the one before, so that the mean meets it."""
    for h0 in range(horizon + 1):
        if lower[h0] >= threshold:
            if h0 == 0:
                return 0
            chance = (threshold - lower[h0 - 1]) / (lower[h0] - lower[h0 - 1])
            return h0 if u < chance else h0 - 1
    return horizon


@bare
def _epsmix_step(lower: Floats, threshold: float, u: float, horizon: int) -> int:
    """Mix the baseline and the explorer, whole episodes at a time, so that the mean meets the threshold."""
    if lower[0] >= threshold:
        return 0
    if lower[horizon] < threshold:
        return horizon
    chance = (threshold - lower[0]) / (lower[horizon] - lower[0])
    return horizon if u < chance else 0


@jit
def uniform_pair(rows: Rows, s: int, u: float) -> int:
    """Return a pair of state s, uniformly over its allowed actions."""
    first, n = rows.pair_start[s], rows.pair_start[s + 1] - rows.pair_start[s]
    return first + min(int(u * n), n - 1)
