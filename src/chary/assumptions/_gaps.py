"""Assumption 2.3 (gaps): for *every* policy, V_t(s) - Q_t(s, a) is at most a bound, eta / 2 in the paper.

This is about A^(S H) policies, and no recursion solves it: the later policy is the same for the action
played and for the alternative. So the largest gap is bounded from below by trying policies and from above
by letting the later policies differ (docs/algorithm.md section 7).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from chary.arrays import Floats, Ints, frozen
from chary.assumptions._verdict import FAILS, HOLDS, UNDECIDED, finite, says, sparse_rows
from chary.audit import Truth
from chary.mdp import FiniteMDP, RewardScale

GAP_TOLERANCE = 1e-12
# Entries of the difference matrices handled at once, and of the tables of the refined bound.
CHUNK_ENTRIES = 4_000_000
REFINE_ENTRIES = 4_000_000
SEARCHES = 24
SEARCHES_PER_STAGE = 3
SWEEPS = 20
RANDOM_POLICIES = 8


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GapWitness:
    """A policy, (H, S) actions, whose V_t(s) - Q_t(s, a) at step `t`, state `s`, action `a` is `gap`."""

    found_by: str
    policy: Ints
    t: int
    s: int
    a: int
    gap: float

    def describe(self, scale: RewardScale) -> str:
        """Return the witness as a clause, with the gap in the user's units and scaled ones."""
        return (
            f"{self.found_by} loses {_both(self.gap, scale)} by action {self.a} instead of "
            f"{int(self.policy[self.t, self.s])} in state {self.s} at step {self.t}"
        )

    def to_json(self, scale: RewardScale) -> dict[str, Any]:
        """Return the witness as plain numbers; the policy itself is left out because of its size."""
        return {
            "policy": self.found_by,
            "t": self.t,
            "s": self.s,
            "a": self.a,
            "policy_action": int(self.policy[self.t, self.s]),
            "gap": scale.raw_difference(self.gap),
            "gap_scaled": self.gap,
        }


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GapReport:
    """Assumption 2.3: the largest gap of any policy lies in [`lower`, `upper`]; it is compared with `bound`.

    All three are in scaled units. `witness` has the gap `lower`, and refutes the assumption if the
    status is `fails`.
    """

    status: str
    lower: float
    upper: float
    bound: float
    witness: GapWitness
    scale: RewardScale

    def describe(self) -> str:
        """Return the answer as a sentence or two."""
        bound = _both(self.bound, self.scale)
        start = f"Assumption 2.3 (gaps at most {bound}) {says(self.status)}"
        if self.status == HOLDS:
            return f"{start}: no policy has a gap above {_both(self.upper, self.scale)}."
        if self.status == FAILS:
            return f"{start}: {self.witness.describe(self.scale)}."
        return (
            f"{start}: the largest gap of any policy lies between {_both(self.lower, self.scale)} and "
            f"{_both(self.upper, self.scale)}. The largest one found: {self.witness.describe(self.scale)}."
        )

    def to_json(self) -> dict[str, Any]:
        """Return the answer as plain numbers and words; plain names are in the user's units."""
        raw = self.scale.raw_difference
        return {
            "status": self.status,
            "bound": finite(raw(self.bound)),
            "bound_scaled": finite(self.bound),
            "gap_lower": raw(self.lower),
            "gap_lower_scaled": self.lower,
            "gap_upper": raw(self.upper),
            "gap_upper_scaled": self.upper,
            "witness": self.witness.to_json(self.scale),
            "description": self.describe(),
        }


def check_gaps(mdp: FiniteMDP, bound: float, *, rng: np.random.Generator | None = None) -> GapReport:
    """Compare the largest gap of any deterministic policy with `bound` (scaled), Assumption 2.3.

    Policies may depend on the step. The gap of (t, s, a) under one that plays a1 is R1 - R + gamma
    (P1 - P).V_{t+1}. From above, V_{t+1} may vary in the box between the worst and the best value of each
    state, and on small problems also within bounds on V(x) - V(y) carried backwards through transport
    plans. From below, policies are tried: the best, the worst, the greedy, the recorded one, and local
    searches from where the upper bound is largest.
    """
    truth = Truth(mdp)
    best, worst = truth.solve(), truth.solve(worst=True)
    rows = sparse_rows(mdp)
    candidates, upper = _upper_bound(truth, rows, best.value, worst.value)
    witness = None
    for found_by, policy in _plain_policies(truth, best.policy, worst.policy, rng):
        witness = _wider(witness, _widest_gap(truth, policy, found_by))
    assert witness is not None
    for candidate in candidates:
        if candidate.bound <= witness.gap + GAP_TOLERANCE:
            continue
        policy = _ascend(truth, rows, candidate, best.policy, worst.policy)
        witness = _wider(witness, _widest_gap(truth, policy, "a policy found by local search"))
    lower = witness.gap
    # The bounds agree up to rounding if the box is tight, as in the last two steps.
    upper = max(upper, lower)
    status = (
        FAILS if lower > bound + GAP_TOLERANCE else HOLDS if upper <= bound + GAP_TOLERANCE else UNDECIDED
    )
    return GapReport(status=status, lower=lower, upper=upper, bound=bound, witness=witness, scale=mdp.scale)


class _Candidate(NamedTuple):
    """A step, the pair played and its alternative, with a bound on the gap between them."""

    bound: float
    t: int
    first: int
    second: int


def _upper_bound(
    truth: Truth, rows: sparse.csr_array, highest: Floats, lowest: Floats
) -> tuple[list[_Candidate], float]:
    """Return the places where the upper bound on gaps is largest, the largest first, and that bound.

    `highest` and `lowest` are the values of the best and the worst policy, (H + 1, S).
    """
    H = truth.mdp.horizon
    refined = _refined_bound(truth, rows, highest, lowest)
    best: list[list[_Candidate]] = [[] for _ in range(H)]
    for first, second in _rivals(truth, rows):
        if refined is None:
            forward, backward = _box(truth, rows, first, second, highest, lowest)
            bound = np.concatenate([forward, backward], axis=1)
            first, second = np.concatenate([first, second]), np.concatenate([second, first])
        else:
            first, second = np.concatenate([first, second]), np.concatenate([second, first])
            bound = refined[:, first, second]
        keep = min(SEARCHES_PER_STAGE, len(first))
        top = np.argpartition(-bound, keep - 1, axis=1)[:, :keep]
        for t in range(H):
            found = [_Candidate(float(bound[t, i]), t, int(first[i]), int(second[i])) for i in top[t]]
            best[t] = sorted(best[t] + found, reverse=True)[:SEARCHES_PER_STAGE]
    every = sorted((c for stage in best for c in stage), reverse=True)
    # No state has two actions: playing the only one loses nothing.
    return every[:SEARCHES], max(every[0].bound, 0.0) if every else 0.0


def _rivals(truth: Truth, rows: sparse.csr_array) -> Iterator[tuple[Ints, Ints]]:
    """Yield all unordered pairs of pairs that share a state, in chunks of bounded size."""
    setting = truth.mdp.setting
    n = setting.n_pairs
    partners = setting.pair_start[truth.pair_state + 1] - np.arange(n) - 1
    entries = np.cumsum(partners * 2 * np.diff(rows.indptr).max())
    first_of_chunk = np.searchsorted(entries, np.arange(0, int(entries[-1]) + 1, CHUNK_ENTRIES), side="right")
    edges = np.unique(np.concatenate([[0], first_of_chunk, [n]]))
    for low, high in itertools.pairwise(edges):
        counts = partners[low:high]
        if not counts.sum():
            continue
        first = np.repeat(np.arange(low, high), counts)
        offset = np.arange(len(first)) - np.repeat(np.cumsum(counts) - counts, counts)
        yield first, first + 1 + offset


def _box(
    truth: Truth, rows: sparse.csr_array, first: Ints, second: Ints, highest: Floats, lowest: Floats
) -> tuple[Floats, Floats]:
    """Return the box bound on the gap of `second` under `first`, (H, n), and the other way round.

    It is R1 - R + gamma sum_x [w+ highest(x) - w- lowest(x)] with w = P1 - P and the values one step later:
    a linear form over a box is largest coordinate by coordinate.
    """
    gamma = truth.mdp.setting.discount
    rise = (rows[first] - rows[second]).tocsr()
    fall = rise.copy()
    rise.data, fall.data = np.maximum(rise.data, 0.0), np.maximum(-fall.data, 0.0)
    high, low = highest[1:].T, lowest[1:].T
    earned = (truth.reward[first] - truth.reward[second])[:, None]
    forward = earned + gamma * (rise @ high - fall @ low)
    backward = -earned + gamma * (fall @ high - rise @ low)
    return forward.T, backward.T


def _refined_bound(truth: Truth, rows: sparse.csr_array, highest: Floats, lowest: Floats) -> Floats | None:
    """Bound R_p - R_q + gamma (P_p - P_q).V_{t+1} for every policy and all pairs p, q, shape (H, P, P).

    D_t(x, y) >= V_t(x) - V_t(y), 0 on the diagonal, is carried backwards: any transport plan from P_p to
    P_q bounds (P_p - P_q).V by its cost at the prices D_{t+1}. The plans tried keep shared mass in place and
    move the rest in the order of the index, of the best and of the worst values. The bound of `_box` is
    used where it is smaller. None if the tables would be too large.
    """
    P, S = rows.shape
    H, gamma = truth.mdp.horizon, truth.mdp.setting.discount
    if P * P * 2 * S > REFINE_ENTRIES or P * P * H > REFINE_ENTRIES:
        return None
    dense = rows.toarray()
    rise = np.maximum(dense[:, None] - dense[None], 0.0)
    fall = rise.transpose(1, 0, 2)
    plans = [
        _plan(rise, fall, np.argsort(key, kind="stable")) for key in (np.arange(S), highest[0], lowest[0])
    ]
    earned = truth.reward[:, None] - truth.reward[None]
    bound = np.zeros((H, P, P))
    apart = np.zeros((S, S))
    for t in reversed(range(H)):
        ahead = rise @ highest[t + 1] - fall @ lowest[t + 1]
        for source, sink, mass in plans:
            ahead = np.minimum(ahead, (mass * apart[source, sink]).sum(axis=2))
        bound[t] = earned + gamma * ahead
        apart = highest[t][:, None] - lowest[t][None]
        acting = np.flatnonzero(~truth.mdp.setting.terminal)
        starts = truth.mdp.setting.pair_start[acting]
        most = np.maximum.reduceat(np.maximum.reduceat(bound[t], starts, axis=0), starts, axis=1)
        apart[np.ix_(acting, acting)] = np.minimum(apart[np.ix_(acting, acting)], most)
        np.fill_diagonal(apart, 0.0)
    return bound


def _plan(rise: Floats, fall: Floats, order: Ints) -> tuple[Ints, Ints, Floats]:
    """Return sources, sinks and masses, (P, P, 2 S), that move `rise` to `fall`, (P, P, S), in this order."""
    S = len(order)
    ends = np.concatenate(
        [np.cumsum(rise[:, :, order], axis=2), np.cumsum(fall[:, :, order], axis=2)], axis=2
    )
    ranked = np.argsort(ends, axis=2, kind="stable")
    mass = np.diff(np.take_along_axis(ends, ranked, axis=2), axis=2, prepend=0.0)
    of_rise = ranked < S
    source = np.minimum(np.cumsum(of_rise, axis=2) - of_rise, S - 1)
    sink = np.minimum(np.cumsum(~of_rise, axis=2) - ~of_rise, S - 1)
    return order[source], order[sink], mass


def _plain_policies(
    truth: Truth, best: Ints, worst: Ints, rng: np.random.Generator | None
) -> Iterator[tuple[str, Ints]]:
    mdp = truth.mdp
    shape = (mdp.horizon, mdp.n_states)
    yield "the optimal policy", best
    yield "the worst policy", worst
    yield "the policy greedy for the next reward", np.broadcast_to(truth.highest(truth.reward)[0], shape)
    if mdp.recorded_policy is not None:
        yield "the recorded policy", np.broadcast_to(mdp.recorded_policy, shape)
    if rng is None:
        return
    first, counts = mdp.setting.pair_start[:-1], np.diff(mdp.setting.pair_start)
    for _ in range(RANDOM_POLICIES):
        pair = first + (rng.random(shape) * counts).astype(np.int64)
        pair = np.minimum(pair, mdp.setting.n_pairs - 1)
        yield "a random policy", np.where(counts > 0, mdp.setting.pair_action[pair], 0)


def _widest_gap(truth: Truth, policy: Ints, found_by: str) -> GapWitness:
    """Return the largest gap that `policy` has after playing the best action, and the policy that does so.

    The action at (t, s) does not change V_{t+1}, so the gap there is largest for the action of largest Q.
    """
    q = truth.evaluate(policy).q
    extremes = [(truth.highest(row), truth.highest(-row)) for row in q]
    spread = np.array([high[1] + low[1] for high, low in extremes])
    t, s = (int(i) for i in np.unravel_index(int(spread.argmax()), spread.shape))
    (high, _), (low, _) = extremes[t]
    played = np.array(policy)
    played[t, s] = high[s]
    worst, gap = int(low[s]), float(spread[t, s])
    return GapWitness(found_by=found_by, policy=frozen(played), t=t, s=s, a=worst, gap=gap)


def _wider(one: GapWitness | None, other: GapWitness) -> GapWitness:
    return other if one is None or other.gap > one.gap + GAP_TOLERANCE else one


def _ascend(truth: Truth, rows: sparse.csr_array, place: _Candidate, best: Ints, worst: Ints) -> Ints:
    """Improve a policy from the box's maximiser until (P1 - P).V_{t+1} is large.

    Under a policy the signed mass w = P1 - P flows on as d_{i+1} = d_i P, and (P1 - P).V is the reward that
    flow earns. With the other steps fixed, step i is optimised state by state: the largest Q where d_i > 0,
    the smallest where d_i < 0. Sweeps from the last step to the first never decrease it, and stop when one
    gains nothing.
    """
    setting = truth.mdp.setting
    H, S = setting.horizon, setting.n_states
    acting = ~setting.terminal
    back = rows.T.tocsr()

    def push(mass: Floats, action: Ints) -> Floats:
        on_pair = np.zeros(setting.n_pairs)
        on_pair[setting.pair_index[acting, action[acting]]] = mass[acting]
        return np.asarray(back @ on_pair)

    start = (rows[[place.first]] - rows[[place.second]]).toarray()[0]
    policy = np.array(best)
    mass = start
    for i in range(place.t + 1, H):
        policy[i] = np.where(mass < 0, worst[i], best[i])
        mass = push(mass, policy[i])
    reached = -math.inf
    for _ in range(SWEEPS):
        masses = [start]
        for i in range(place.t + 1, H):
            masses.append(push(masses[-1], policy[i]))
        value = np.zeros(S)
        for i in reversed(range(place.t + 1, H)):
            q = truth.backup(value)
            d = masses[i - place.t - 1]
            policy[i] = np.where(d > 0, truth.highest(q)[0], np.where(d < 0, truth.highest(-q)[0], policy[i]))
            value = np.zeros(S)
            value[acting] = q[setting.pair_index[acting, policy[i, acting]]]
        earned = float(start @ value)
        if earned <= reached + GAP_TOLERANCE:
            break
        reached = earned
    return policy


def _both(amount: float, scale: RewardScale) -> str:
    if scale == RewardScale():
        return f"{amount:.6g}"
    return f"{scale.raw_difference(amount):.6g} ({amount:.6g} scaled)"
