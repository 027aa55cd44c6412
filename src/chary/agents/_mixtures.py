"""How the agents without a shield choose: the frozen baseline up to some step, the explorer from there on.

Section 9: UCBVI switches at step 0, the frozen baseline at step H, CUCBVI and EpsMix at either, StepMix
anywhere. Both drivers call these kernels.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from chary._compile import bare, inner, jit, kernel_of
from chary.arrays import Floats, Ints
from chary.model.radii import CH, HOEFFDING, Radii
from chary.model.rows import Rows
from chary.planner._backup import LOWER, UPPER, Scratch, backup
from chary.planner._batch import Lanes
from chary.planner._batch_versions import vectors
from chary.planner._current import evaluate_into
from chary.planner._full import EVALUATE, START, backward_into, sorted_states
from chary.planner._vectors import LANES, copy_into, floor_into, one_row_into, versions_into

__all__ = [
    "CUCBVI",
    "EPSMIX",
    "FROZEN",
    "STEPMIX",
    "UCBVI",
    "Mixture",
    "candidates_lanes_into",
    "guess_switch",
    "may_explore",
    "new_mixture",
    "switch_kernel",
    "switch_lane",
    "switch_step",
    "uniform_pair",
    "worth_lanes_into",
]


UCBVI, CUCBVI, STEPMIX, EPSMIX, FROZEN = range(5)

# A NumPy scalar, since numba compiles a kernel anew for each literal.
FIRST: int = np.int64(0)  # type: ignore[assignment]


class Mixture(NamedTuple):
    """A neighbour's settings and memory.

    `frozen` (H, S) is pi_b, the warm-up's baseline; `oracle_value` (S,) its true value where that is
    used, else empty. `starts` and `baseline_starts` (S,) count first states, `promised[0]` sums the lower
    bounds of the optimistic episodes. `lower` (H + 1,) are the lower bounds of the candidates of the last
    episode, `last` its threshold and the step at which it went over. The `v_*` arrays are room for one plan.
    Where plans are made in lanes, `worth` (S, LANES) is the upper value of pi_b, `candidates` (H + 1, LANES)
    the lower bounds from the lanes' own first states, and the rest room: the explorers' lower values
    (H + 1, S, LANES), two stages, one vector, and pi_b once more as lanes have policies.
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
    room: Floats
    policy: NDArray[np.int16]
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
    """Return a neighbour that has not played yet; `in_lanes` says whether its plans are made in lanes."""
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
        room=vectors(1),
        policy=frozen.astype(np.int16),
        nowhere=np.full((H, S), -1, dtype=np.int32),
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
def worth_lanes_into(mixture: Mixture, lanes: Lanes, rows: Rows, radii: Radii) -> None:
    """Fill the upper value of pi_b in every lane."""
    if len(mixture.oracle_value) > 0:
        return
    for x in range(len(mixture.worth)):
        for j in range(LANES):
            mixture.stages[0, x, j] = 0.0
    end = _frozen_lanes(mixture, lanes, rows, radii, 1.0, radii.horizon)
    for x in range(len(mixture.worth)):
        copy_into(mixture.worth, x, mixture.stages[end], x)


@bare
def may_explore(mixture: Mixture, lanes: Lanes, starts: Ints, n: int) -> bool:
    """Return whether any of n episodes with first states `starts` may go over to its explorer."""
    for j in range(n):
        if mixture.kind == CUCBVI or not _hopeless(mixture, lanes, starts[j], j):
            return True
    return False


@bare
def _hopeless(mixture: Mixture, lanes: Lanes, s: int, lane: int) -> bool:
    """Return whether no candidate can reach the threshold, since not even the lower optimum does.

    Sums and clips are monotone to the last bit: no policy's lower value exceeds the lower optimum.
    """
    return bool(lanes.lower.v[0, s, lane] < _worth(mixture, s, lane) - mixture.eta)


@bare
def candidates_lanes_into(
    mixture: Mixture, lanes: Lanes, rows: Rows, radii: Radii, starts: Ints, n: int, explores: bool
) -> None:
    """Fill the candidates' lower bounds that `switch_lane` asks for, from explorers planned in lanes.

    Where `explores` is False no candidate reaches its threshold, and none is looked at.
    """
    horizon, lower = radii.horizon, mixture.candidates
    for h0 in range(horizon + 1):
        for j in range(LANES):
            lower[h0, j] = -np.inf
    if not explores:
        return
    side, v = lanes.optimistic, mixture.explorer_lanes
    for t in range(horizon - 1, -1, -1):
        _stage_of_policy_into(
            v[t], v[t + 1], side.policy[t], side.split[t], side.action, mixture.room, -1.0, radii.vmax[t],
            radii.terminal, radii.discount, rows.pair_index, rows.begin, rows.length, rows.successor,
            rows.weight, rows.total, rows.reward_total, radii.width, lanes.versions.place,
            lanes.versions.begin, lanes.versions.length, lanes.versions.successor, lanes.versions.weight,
            lanes.versions.total, lanes.versions.reward_total, lanes.versions.width,
        )  # fmt: skip
    for j in range(n):
        lower[0, j] = v[0, starts[j], j]
    if mixture.kind == EPSMIX:
        _candidate_into(mixture, lanes, rows, radii, starts, n, horizon)
    elif mixture.kind == STEPMIX:
        for h0 in range(1, horizon + 1):
            # A candidate beyond the first that reaches the threshold is never asked for.
            waiting = False
            for j in range(n):
                reached = False
                for before in range(h0):
                    reached |= lower[before, j] >= _worth(mixture, starts[j], j) - mixture.eta
                waiting |= not (reached or _hopeless(mixture, lanes, starts[j], j))
            if not waiting:
                break
            _candidate_into(mixture, lanes, rows, radii, starts, n, h0)


@bare
def switch_lane(mixture: Mixture, lane: int, s: int, u: float, horizon: int) -> int:
    """Return what `switch_step` does, from what the lanes hold."""
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
    mixture: Mixture, lanes: Lanes, rows: Rows, radii: Radii, starts: Ints, n: int, h0: int
) -> None:
    """Fill LB(h0) of every lane: pi_b before step h0, the lane's explorer from there on; pi_b's own for H."""
    for x in range(len(mixture.worth)):
        copy_into(mixture.stages[0], x, mixture.explorer_lanes[h0], x)
    end = _frozen_lanes(mixture, lanes, rows, radii, -1.0, h0)
    for j in range(n):
        mixture.candidates[h0, j] = mixture.stages[end, starts[j], j]


@bare
def _frozen_lanes(
    mixture: Mixture, lanes: Lanes, rows: Rows, radii: Radii, direction: float, until: int
) -> int:
    """Evaluate pi_b from stage `until` back to 0, values in `stages[0]`; return where they end up."""
    stages, now = mixture.stages, 0
    for t in range(until - 1, -1, -1):
        _stage_of_policy_into(
            stages[1 - now], stages[now], mixture.policy[t], mixture.nowhere[t], lanes.optimistic.action,
            mixture.room, direction, radii.vmax[t], radii.terminal, radii.discount, rows.pair_index,
            rows.begin, rows.length, rows.successor, rows.weight, rows.total, rows.reward_total, radii.width,
            lanes.versions.place, lanes.versions.begin, lanes.versions.length, lanes.versions.successor,
            lanes.versions.weight, lanes.versions.total, lanes.versions.reward_total, lanes.versions.width,
        )  # fmt: skip
        now = 1 - now
    return now


@bare
def _stage_of_policy_into(
    earlier: Floats,
    value: Floats,
    policy: NDArray[np.int16],
    split: NDArray[np.int32],
    split_action: NDArray[np.int16],
    room: Floats,
    direction: float,
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
    place: Ints,
    its_begin: Ints,
    its_length: Ints,
    its_successor: Ints,
    its_weight: Floats,
    its_total: Floats,
    its_reward: Floats,
    its_width: Floats,
) -> None:
    """Do in every lane, with its own counts and policy, what `backward_into` does in mode EVALUATE."""
    unseen = top if direction > 0.0 else 0.0
    for x in range(len(terminal)):
        if terminal[x] or pair_index[x, policy[x]] < 0:
            for j in range(LANES):
                earlier[x, j] = 0.0
            continue
        done = -1
        for k in range(LANES):
            p = pair_index[x, policy[x] if split[x] < 0 else split_action[split[x], k]]
            if p != done:
                done = p
                o = place[p]
                if o >= 0:
                    entry, end = its_begin[o], its_begin[o] + its_length[o]
                    versions_into(
                        room, FIRST, entry, end, its_successor, its_weight, value,
                        o, its_reward, discount, its_total, direction, its_width, top,
                    )  # fmt: skip
                    for j in range(LANES):
                        if its_total[o, j] == 0.0:
                            room[FIRST, j] = unseen
                elif total[p] == 0.0:
                    for j in range(LANES):
                        room[FIRST, j] = unseen
                else:
                    end, r, n, shift = begin[p] + length[p], reward_total[p], total[p], direction * width[p]
                    one_row_into(
                        room, FIRST, begin[p], end, successor, weight, value, r, discount, n, shift, top
                    )
                floor_into(room, FIRST)
            if split[x] < 0:
                copy_into(earlier, x, room, FIRST)
                break
            earlier[x, k] = room[FIRST, k]


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
