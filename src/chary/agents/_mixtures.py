"""Agents without a shield: they play the frozen baseline up to some step and the explorer from there on.

Section 9: UCBVI switches at step 0, the frozen baseline at step H, CUCBVI and EpsMix at either, StepMix
anywhere. Both drivers call these kernels.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from chary._compile import bare, inner, jit, kernel_of
from chary.arrays import Floats, Ints
from chary.model.radii import Radii, additive
from chary.model.rows import Rows
from chary.planner._backup import LOWER, UPPER, Scratch, backup, sorted_states
from chary.planner._batch import policy_row_into
from chary.planner._batch_arrays import Actions, Batch
from chary.planner._batch_versions import vectors
from chary.planner._full import START, policy_value_into
from chary.planner._vectors import LANES, copy_into, fill_into, floor_into, one_row_into

UCBVI, CUCBVI, STEPMIX, EPSMIX, FROZEN = range(5)


class Mixture(NamedTuple):
    """The settings and memory of an agent that mixes two policies, section 9.

    `frozen` (H, S) is pi_b, the warm-up's baseline; `oracle_value` (S,) its true value where that is
    used, else empty. `starts` and `baseline_starts` (S,) count first states, `promised[0]` sums the lower
    bounds of the optimistic episodes. `lower` (H + 1,) are the lower bounds of the candidates of the last
    episode, `last` its threshold and the step at which it went over. The `v_*` arrays are room for one plan.
    Where plans are made in lanes, `worth` (S, LANES) is the upper value of pi_b, `candidates` (H + 1, LANES)
    the lower bounds from the lanes' own first states, and the rest room: the explorers' lower values
    (H + 1, S, LANES), two stages, and pi_b once more as lanes have policies.
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
    worth: Floats
    candidates: Floats
    explorer_lanes: Floats
    stages: Floats
    policy: Actions
    nowhere: NDArray[np.int32]


def new_mixture(
    kind: int,
    *,
    frozen: Ints,
    alpha: float = 0.0,
    eta: float = 0.0,
    oracle_value: Floats | None = None,
    in_lanes: bool = False,
) -> Mixture:
    """Return a mixture that has not played yet; `in_lanes` is whether its plans are made in lanes."""
    H, S = frozen.shape
    wide = S if in_lanes and kind in (CUCBVI, STEPMIX, EPSMIX) else 0
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
        worth=vectors(wide),
        candidates=vectors(H + 1),
        explorer_lanes=vectors(H + 1, wide),
        stages=vectors(2, wide),
        policy=frozen.astype(np.int16),
        nowhere=np.full((H, S), -1, dtype=np.int32),
    )


def widened(mixture: Mixture, n_states: int) -> Mixture:
    """Return the mixture with room for more states; those of before come first."""
    H, S = mixture.frozen.shape
    room = np.zeros((3, H + 1, n_states))
    counts = np.zeros((2, n_states))
    counts[:, :S] = mixture.starts[:S], mixture.baseline_starts[:S]
    return mixture._replace(
        starts=counts[0].copy(),
        baseline_starts=counts[1].copy(),
        v_frozen=room[0].copy(),
        v_explorer=room[1].copy(),
        v_room=room[2].copy(),
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
    worth, stages = mixture.oracle_value, (START, horizon - 1)
    if len(worth) == 0:
        policy_value_into(mixture.v_frozen, mixture.frozen, rows, radii, UPPER, stages, scratch)
        worth = mixture.v_frozen[0]
    policy_value_into(mixture.v_explorer, explorer, rows, radii, LOWER, stages, scratch)
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
def worth_lanes_into(mixture: Mixture, batch: Batch, rows: Rows, radii: Radii) -> None:
    """Fill the upper value of pi_b in every lane."""
    if len(mixture.oracle_value) > 0:
        return
    for x in range(len(mixture.worth)):
        for j in range(LANES):
            mixture.stages[0, x, j] = 0.0
    end = _frozen_lanes(mixture, batch, rows, radii, UPPER, radii.horizon)
    for x in range(len(mixture.worth)):
        copy_into(mixture.worth, x, mixture.stages[end], x)


@bare
def may_explore(mixture: Mixture, batch: Batch, starts: Ints, n: int) -> bool:
    """Return whether any of n episodes with first states `starts` may go over to its explorer."""
    for j in range(n):
        if mixture.kind == CUCBVI or not _hopeless(mixture, batch, starts[j], j):
            return True
    return False


@bare
def _hopeless(mixture: Mixture, batch: Batch, s: int, lane: int) -> bool:
    """Return whether no candidate can reach the threshold, since not even the lower optimum does.

    Sums and clips are monotone to the last bit: no policy's lower value exceeds the lower optimum.
    """
    return bool(batch.lower.v[0, s, lane] < _worth(mixture, s, lane) - mixture.eta)


@bare
def candidates_lanes_into(
    mixture: Mixture, batch: Batch, rows: Rows, radii: Radii, starts: Ints, n: int, explores: bool
) -> None:
    """Fill the candidates' lower bounds that `switch_lane` needs, from explorers planned in lanes.

    Where `explores` is False no candidate reaches its threshold, and none is looked at.
    """
    horizon, lower = radii.horizon, mixture.candidates
    for h0 in range(horizon + 1):
        for j in range(LANES):
            lower[h0, j] = -np.inf
    if not explores:
        return
    side, v = batch.optimistic, mixture.explorer_lanes
    for t in range(horizon - 1, -1, -1):
        _stage_of_policy_into(v[t], v[t + 1], side.policy[t], side.split[t], LOWER, t, batch, rows, radii)
    for j in range(n):
        lower[0, j] = v[0, starts[j], j]
    if mixture.kind == EPSMIX:
        _candidate_into(mixture, batch, rows, radii, starts, n, horizon)
    elif mixture.kind == STEPMIX:
        for h0 in range(1, horizon + 1):
            # A candidate beyond the first that reaches the threshold is never needed.
            waiting = False
            for j in range(n):
                reached = False
                for before in range(h0):
                    reached |= lower[before, j] >= _worth(mixture, starts[j], j) - mixture.eta
                waiting |= not (reached or _hopeless(mixture, batch, starts[j], j))
            if not waiting:
                break
            _candidate_into(mixture, batch, rows, radii, starts, n, h0)


@bare
def switch_lane(mixture: Mixture, lane: int, s: int, u: float, horizon: int) -> int:
    """Return what `switch_step` does, from the values of the lanes."""
    lower = mixture.candidates
    if mixture.kind == CUCBVI:
        worth = mixture.oracle_value
        if len(worth) == 0:
            worth = mixture.v_frozen[0]
            for x in range(len(worth)):
                worth[x] = mixture.worth[x, lane]
        step = _cucbvi_step(mixture, worth, lower[0, lane], s, horizon)
    else:
        for h0 in range(horizon + 1):
            mixture.lower[h0] = lower[h0, lane]
        mixture.last[0] = _worth(mixture, s, lane) - mixture.eta
        step = _mixed_step(mixture, mixture.last[0], u, horizon)
    mixture.last[1] = step
    return step


@bare
def _worth(mixture: Mixture, s: int, lane: int) -> float:
    return mixture.oracle_value[s] if len(mixture.oracle_value) > 0 else mixture.worth[s, lane]


@bare
def _candidate_into(
    mixture: Mixture, batch: Batch, rows: Rows, radii: Radii, starts: Ints, n: int, h0: int
) -> None:
    """Fill LB(h0) of every lane: pi_b before step h0, the lane's explorer from there on; pi_b's own for H."""
    for x in range(len(mixture.worth)):
        copy_into(mixture.stages[0], x, mixture.explorer_lanes[h0], x)
    end = _frozen_lanes(mixture, batch, rows, radii, LOWER, h0)
    for j in range(n):
        mixture.candidates[h0, j] = mixture.stages[end, starts[j], j]


@bare
def _frozen_lanes(mixture: Mixture, batch: Batch, rows: Rows, radii: Radii, sign: int, until: int) -> int:
    """Evaluate pi_b from stage `until` back to 0, values in `stages[0]`; return where they end up."""
    stages, now = mixture.stages, 0
    policy, nowhere = mixture.policy, mixture.nowhere
    for t in range(until - 1, -1, -1):
        _stage_of_policy_into(
            stages[1 - now], stages[now], policy[t], nowhere[t], sign, t, batch, rows, radii
        )
        now = 1 - now
    return now


@bare
def _stage_of_policy_into(
    earlier: Floats,
    value: Floats,
    policy: Actions,
    split: NDArray[np.int32],
    sign: int,
    t: int,
    batch: Batch,
    rows: Rows,
    radii: Radii,
) -> None:
    """Fill stage t of a policy's values in every lane, with its own counts, as `backward_into` would."""
    for x in range(len(radii.terminal)):
        if radii.terminal[x] or rows.pair_index[x, policy[x]] < 0:
            fill_into(earlier, x, 0.0)
        else:
            action = batch.optimistic.action
            policy_row_into(earlier, x, value, policy, split, action, sign, t, batch, rows, radii)


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
        stages = (START, radii.horizon - 1)
        policy_value_into(mixture.v_room, mixture.frozen, rows, radii, LOWER, stages, scratch)
        mixture.lower[radii.horizon] = mixture.v_room[0, s]
        return
    if additive(radii.family):
        _lower_candidates_into(mixture, rows, radii, s)
        return
    n_states = len(rows.visits)
    value, earlier = np.zeros(n_states), np.zeros(n_states)
    for h0 in range(1, radii.horizon + 1):
        # Element by element: numba compiles seconds of error messages for the shapes of a slice.
        for x in range(n_states):
            value[x] = mixture.v_explorer[h0, x]
        for t in range(h0 - 1, -1, -1):
            order = sorted_states(radii, value)
            for x in range(n_states):
                if radii.terminal[x]:
                    earlier[x] = 0.0
                else:
                    p = rows.pair_index[x, mixture.frozen[t, x]]
                    earlier[x] = backup(rows, radii, p, t, LOWER, value, order, scratch)
            value, earlier = earlier, value
        mixture.lower[h0] = value[s]


@inner
def _lower_candidates_into(mixture: Mixture, rows: Rows, radii: Radii, s: int) -> None:
    """Fill LB(h0) for all h0 in one sweep: a row of pi_b is read once per stage, for all candidates at once.

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
            _stage_of_candidates_into(earlier[g], value[g], mixture.frozen, t, rows, radii)
        value, earlier = earlier, value
    for h0 in range(1, horizon + 1):
        mixture.lower[h0] = value[h0 // LANES, s, h0 % LANES]


@bare
def _stage_of_candidates_into(
    earlier: Floats, value: Floats, policy: Ints, t: int, rows: Rows, radii: Radii
) -> None:
    """Fill stage t of LANES candidates, all of which play pi_b there."""
    for x in range(len(radii.terminal)):
        # States that stand for lost outcomes are terminal, and have no pairs.
        p = -1 if radii.terminal[x] else rows.pair_index[x, policy[t, x]]
        if p < 0 or rows.total[p] == 0.0:
            fill_into(earlier, x, 0.0)
        else:
            begin, end = rows.begin[p], rows.begin[p] + rows.length[p]
            one_row_into(
                earlier, x, begin, end, rows.successor, rows.weight, value,
                rows.reward_total[p], radii.discount, rows.total[p], -radii.width[p], radii.vmax[t],
            )  # fmt: skip
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
