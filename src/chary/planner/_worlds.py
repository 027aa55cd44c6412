"""One backward induction over all worlds: baseline, values, explorers, and gaps on demand, section 11.

The slow twin is `reference.worlds`. K worlds judge and the others explore; all share the last axis of arrays.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from chary._compile import bare, folded, jit
from chary.arrays import Bools, Floats, Ints
from chary.mdp import Setting
from chary.model._world_draws import WorldRows
from chary.planner._vectors import fetch
from chary.shield.worlds import Panel, upper

upper_kernel: Any = bare(upper)

# A stage of values with more numbers does not lie in the nearest cache.
NEAR = 4096
# The number of atoms in a line of a cache.
LINE = 16

# The user's policy is no baseline, decides ties, is the baseline where worlds doubt, or everywhere.
NOBODY, PRIOR, FLOOR, ONLY = range(4)


class Shape(NamedTuple):
    """The problem as kernels read it, and `rank` (P,): of two actions as good the lower rank is played."""

    pair_start: Ints
    pair_action: Ints
    pair_index: Ints
    terminal: Bools
    vmax: Floats
    discount: float
    rank: Ints


class WorldPlan(NamedTuple):
    """A plan for L worlds, of which the first K judge.

    `value` (H + 1, S, L) is what each judging world thinks of the `baseline` (H, S), and what each of the
    others thinks of its own `explorer`, (H, S, L - K); `spread` (H, L) is the value behind each stage of the
    successor frequencies that rows back off to. Where outcomes get lost, they are worth nothing in `value`,
    and `top` (H + 1, S, L) is the value of the baseline where they are worth the most; else it is empty.
    `atoms` (P, L) and `behind` (L, S) are room for one stage, `q` (A, L) and `pooled` (A + 1, L) for one
    state.
    """

    judges: int
    value: Floats
    baseline: Ints
    explorer: NDArray[np.int16]
    q: Floats
    pooled: Floats
    spread: Floats
    atoms: Floats
    behind: Floats
    top: Floats


class Own(NamedTuple):
    """The user's policy: its role, its actions `table` (H, S), and what every world thinks of it.

    `value` (H + 1, S, L) and `panel` are for role FLOOR alone.
    """

    role: int
    table: Ints
    value: Floats
    panel: Panel


def no_own() -> Own:
    """Return the policy of nobody."""
    return Own(NOBODY, np.zeros((0, 0), dtype=np.int64), np.zeros((0, 0, 0)), Panel(0, 0.0))


def shape_of(setting: Setting, rank: Ints) -> Shape:
    """Return the shape of a problem; copies, since kernels take one type of array."""
    return Shape(
        pair_start=np.array(setting.pair_start),
        pair_action=np.array(setting.pair_action),
        pair_index=np.array(setting.pair_index),
        terminal=np.array(setting.terminal),
        vmax=setting.value_bounds,
        discount=setting.discount,
        rank=rank,
    )


def new_world_plan(setting: Setting, judges: int, explorers: int) -> WorldPlan:
    """Return room for a plan."""
    H, S, A, L = setting.horizon, setting.n_states, setting.n_actions, judges + explorers
    return WorldPlan(
        judges=judges,
        value=np.zeros((H + 1, S, L)),
        baseline=np.zeros((H, S), dtype=np.int64),
        explorer=np.zeros((H, S, explorers), dtype=np.int16),
        q=np.zeros((A, L)),
        pooled=np.zeros((A + 1, L)),
        spread=np.zeros((H, L)),
        atoms=np.zeros((setting.n_pairs, L)),
        behind=np.zeros((L, S)),
        top=np.zeros((0, 0, 0)),
    )


def plan_worlds_into(
    plan: WorldPlan,
    rows: WorldRows,
    shape: Shape,
    pessimism: float,
    optimism: float,
    own: Own | None = None,
) -> None:
    """Plan all worlds backwards, stage by stage.

    The baseline is the argmax of mean - `pessimism` * sd over the judging worlds, and every judging world
    values that policy. An explorer is the optimal policy of its world where `optimism` is NaN; else all are
    the argmax of mean + `optimism` * sd over the exploring worlds. The policy `own` is preferred by its role:
    FLOOR replaces it where the panel's upper bound on its value less that of the best action, over the
    worlds, is not above 0.
    """
    _plan_into(plan, rows, shape, pessimism, optimism, own or no_own())


@jit
def _plan_into(
    plan: WorldPlan, rows: WorldRows, shape: Shape, pessimism: float, optimism: float, own: Own
) -> None:
    K, L = plan.judges, plan.value.shape[2]
    joint = not math.isnan(optimism)
    for t in range(len(plan.baseline) - 1, -1, -1):
        _spread_into(plan, rows, t)
        _atoms_into(plan, rows, t)
        for s in range(len(shape.terminal)):
            first, last = shape.pair_start[s], shape.pair_start[s + 1]
            if shape.terminal[s] or first == last:
                continue
            _state_into(plan, rows, shape, t, s)
            theirs = -1
            if own.role != NOBODY:
                theirs = shape.pair_index[s, own.table[t, s]] - first
            best = _best_by_mean(plan.q, 0, K, -pessimism, shape.rank, first, last, theirs)
            if own.role == ONLY or (own.role == FLOOR and not _is_better(plan, own, t, s, best)):
                best = theirs
            plan.baseline[t, s] = shape.pair_action[first + best]
            for k in range(K):
                plan.value[t, s, k] = plan.q[best, k]
            if joint and L > K:
                best = _best_by_mean(plan.q, K, L, optimism, shape.rank, first, last, -1)
            for k in range(K, L):
                if not joint:
                    best = 0
                    for i in range(1, last - first):
                        better = plan.q[i, k] > plan.q[best, k]
                        equal = plan.q[i, k] == plan.q[best, k]
                        if better or (equal and shape.rank[first + i] < shape.rank[first + best]):
                            best = i
                plan.explorer[t, s, k - K] = shape.pair_action[first + best]
                plan.value[t, s, k] = plan.q[best, k]


@bare
def _best_by_mean(
    q: Floats, begin: int, end: int, factor: float, rank: Ints, first: int, last: int, preferred: int
) -> int:
    """Return the action, counted from 0, with the largest mean + factor * sd over worlds begin..end-1.

    Among equals the `preferred` one is chosen, else that of the lowest rank.
    """
    best, largest = 0, -math.inf
    for i in range(last - first):
        mean, sd = mean_and_sd(q[i], begin, end)
        score = mean + factor * sd
        ahead = best != preferred and (i == preferred or rank[first + i] < rank[first + best])
        if score > largest or (score == largest and ahead):
            best, largest = i, score
    return best


@bare
def _is_better(plan: WorldPlan, own: Own, t: int, s: int, best: int) -> bool:
    """Return whether the worlds agree that action `best`, from 0 on, is no worse than the user's policy."""
    lost = plan.pooled[0, : plan.judges]
    for k in range(plan.judges):
        lost[k] = own.value[t, s, k] - plan.q[best, k]
    return bool(upper_kernel(lost, own.panel) <= 0.0)


@jit
def evaluate_worlds_into(plan: WorldPlan, rows: WorldRows, shape: Shape, policy: Ints, lost: Floats) -> None:
    """Fill `plan.value` with what every world thinks of a policy (H, S), and `plan.spread` with it.

    `lost` (2, P, L) are the shares of transitions and of rewards that got lost, see `Worlds.lost_shares`:
    here they are worth the most. It is (2, 0, 0) where they are to be worth nothing.
    """
    value, some = plan.value, lost.shape[1] > 0
    for t in range(len(policy) - 1, -1, -1):
        _spread_into(plan, rows, t)
        _atoms_into(plan, rows, t)
        for s in range(len(shape.terminal)):
            first, last = shape.pair_start[s], shape.pair_start[s + 1]
            if shape.terminal[s] or first == last:
                continue
            _state_into(plan, rows, shape, t, s)
            p, ahead = shape.pair_index[s, policy[t, s]], shape.discount * shape.vmax[t + 1]
            for k in range(value.shape[2]):
                q = plan.q[p - first, k]
                if some:
                    q = min(q + lost[1, p, k] + lost[0, p, k] * ahead, shape.vmax[t])
                value[t, s, k] = q


@bare
def mean_and_sd(values: Floats, begin: int, end: int) -> tuple[float, float]:
    """Return the mean and the standard deviation of values begin..end-1, with n - 1 in the denominator."""
    total = 0.0
    for k in range(begin, end):
        total += values[k]
    mean = total / (end - begin)
    squares = 0.0
    for k in range(begin, end):
        squares += (values[k] - mean) * (values[k] - mean)
    return mean, math.sqrt(squares / max(end - begin - 1, 1))


@bare
def _spread_into(plan: WorldPlan, rows: WorldRows, t: int) -> None:
    spread, v = plan.spread[t], plan.value[t + 1]
    for k in range(len(spread)):
        spread[k] = 0.0
    for x in range(len(rows.back_off)):
        weight = rows.back_off[x]
        for k in range(len(spread)):
            spread[k] += weight * v[x, k]


@bare
def _atoms_into(plan: WorldPlan, rows: WorldRows, t: int) -> None:
    """Fill `plan.atoms` with the weighted values behind stage t of all atoms, world by world.

    Atoms are at random states: the values of one world fit into the nearest cache.
    """
    behind, v, atoms = plan.behind, plan.value[t + 1], plan.atoms
    start, state, weight = rows.atom_start, rows.atom_state, rows.atom_weight
    for x in range(len(v)):
        for k in range(len(behind)):
            behind[k, x] = v[x, k]
    for k in range(len(behind)):
        mine = behind[k]
        for p in range(len(atoms)):
            first, last = start[k * len(atoms) + p], start[k * len(atoms) + p + 1]
            # Four sums at once: one would wait for every addition before the next.
            a, b, c, d = 0.0, 0.0, 0.0, 0.0
            for i in range(first, last - 3, 4):
                a += weight[i] * mine[state[i]]
                b += weight[i + 1] * mine[state[i + 1]]
                c += weight[i + 2] * mine[state[i + 2]]
                d += weight[i + 3] * mine[state[i + 3]]
            for i in range(last - (last - first) % 4, last):
                a += weight[i] * mine[state[i]]
            atoms[p, k] = (a + b) + (c + d)


@bare
def _state_into(plan: WorldPlan, rows: WorldRows, shape: Shape, t: int, s: int) -> None:
    """Fill `plan.q` for every pair of state s, in every world."""
    q, pooled, spread, v = plan.q, plan.pooled, plan.spread[t], plan.value[t + 1]
    weight, successor, start, counts = rows.weight, rows.successor, rows.start, rows.pooled
    first, last, L, most = shape.pair_start[s], shape.pair_start[s + 1], len(spread), shape.vmax[t]
    everybody = pooled[len(pooled) - 1]
    for k in range(L):
        everybody[k] = spread[k]
    for p in range(first, last):
        row, own = q[p - first], pooled[p - first]
        for k in range(L):
            row[k] = 0.0
            own[k] = 0.0
        for e in range(start[p], start[p + 1]):
            behind, data, n = v[successor[e]], weight[e], counts[e]
            for k in range(L):
                row[k] += data[k] * behind[k]
                own[k] += n * behind[k]
        for k in range(L):
            everybody[k] += own[k]
    for p in range(first, last):
        row, own, rest, atoms = q[p - first], pooled[p - first], rows.rest[p], plan.atoms[p]
        pools = rows.pools[p]
        for k in range(L):
            worth = row[k] + rest * pools[k] * (everybody[k] - own[k]) + atoms[k]
            value = rows.reward[p, k] + shape.discount * worth / rows.total[p, k]
            row[k] = min(max(value, 0.0), most)


@folded
def gaps_into(gaps: Floats, plan: WorldPlan, rows: WorldRows, shape: Shape, t: int, s: int, a: int) -> None:
    """Fill `gaps` (K,) with max(V - Q, 0) of playing a at (t, s), in every judging world.

    The same sums as in `_state_into`, but for one action and the worlds that judge.
    """
    if a == plan.baseline[t, s]:
        for k in range(len(gaps)):
            gaps[k] = 0.0
        return
    P, K, v, spread = len(plan.atoms), len(gaps), plan.value[t + 1], plan.spread[t]
    successor, start, counts = rows.successor, rows.start, rows.pooled
    played = shape.pair_index[s, a]
    if v.size > NEAR:
        _fetch_atoms(rows.atom_start, rows.atom_state, rows.atom_weight, v, played, P, K)
    row, own, other, everybody = plan.q[0], plan.atoms[0], plan.pooled[0], plan.pooled[1]
    for k in range(K):
        everybody[k] = spread[k]
        row[k] = 0.0
    for p in range(shape.pair_start[s], shape.pair_start[s + 1]):
        mine = own if p == played else other
        for k in range(K):
            mine[k] = 0.0
        for e in range(start[p], start[p + 1]):
            behind, n = v[successor[e]], counts[e]
            for k in range(K):
                mine[k] += n * behind[k]
        for k in range(K):
            everybody[k] += mine[k]
    for e in range(start[played], start[played + 1]):
        behind, data = v[successor[e]], rows.weight[e]
        for k in range(K):
            row[k] += data[k] * behind[k]
    rest, pools, most, lost = rows.rest[played], rows.pools[played], shape.vmax[t], len(plan.top) > 0
    for k in range(K):
        atoms = 0.0
        for i in range(rows.atom_start[k * P + played], rows.atom_start[k * P + played + 1]):
            atoms += rows.atom_weight[i] * v[rows.atom_state[i], k]
        worth = row[k] + rest * pools[k] * (everybody[k] - own[k]) + atoms
        value = rows.reward[played, k] + shape.discount * worth / rows.total[played, k]
        best = plan.top[t, s, k] if lost else plan.value[t, s, k]
        gaps[k] = max(best - min(max(value, 0.0), most), 0.0)


@bare
def _fetch_atoms(
    start: Ints, state: NDArray[np.int32], weight: NDArray[np.float32], v: Floats, p: int, P: int, K: int
) -> None:
    """Ask for the atoms of pair p in K worlds, and for the values of their states, all before any is read.

    They lie apart, and to wait for one after the other takes longer than the sums.
    """
    for k in range(K):
        fetch(start, k * P + p)
    for k in range(K):
        for i in range(start[k * P + p], start[k * P + p + 1], LINE):
            fetch(state, i)
            fetch(weight, i)
    for k in range(K):
        for i in range(start[k * P + p], start[k * P + p + 1]):
            fetch(v, state[i] * v.shape[1] + k)


@jit
def price_worlds_into(prices: Floats, plan: WorldPlan, rows: WorldRows, shape: Shape, steps: Ints) -> None:
    """Fill `prices` (B, K) with the gaps of `steps` (B, 3): step, state and action."""
    for i in range(len(steps)):
        gaps_into(prices[i], plan, rows, shape, steps[i, 0], steps[i, 1], steps[i, 2])
