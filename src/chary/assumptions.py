"""Do the paper's two assumptions hold for a known MDP: yes, no with a witness, or between two bounds.

Assumption 2.2 (ergodicity): the worst-case diameter Upsilon = max over s' != s and stationary
deterministic policies of E[T(s', s)] is at most H / 2. Assumption 2.3 (gaps): for *every* policy, V_t(s) -
Q_t(s, a) is at most eta / 2. The second quantifies over A^(S H) policies, and no recursion solves it: the
same later policy must serve the action played and the one given up. So it is bounded from below by policies
tried and from above by letting that policy differ (docs/algorithm.md section 7).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph

from chary.audit import Truth
from chary.errors import InvalidBudget, check_real
from chary.mdp import Bools, FiniteMDP, Floats, Ints, RewardScale

__all__ = [
    "FAILS",
    "HOLDS",
    "UNDECIDED",
    "AssumptionReport",
    "DiameterReport",
    "DiameterWitness",
    "GapReport",
    "GapWitness",
    "check_assumptions",
    "check_diameter",
    "check_gaps",
]

HOLDS, FAILS, UNDECIDED = "holds", "fails", "undecided"

GAP_TOLERANCE = 1e-12
# Hitting times come out of linear solves; relative to the time.
TIME_TOLERANCE = 1e-9
# Below this many states the diameter is solved exactly, one policy iteration a target (seconds at the limit).
EXACT_STATES = 200
# The graph search touches every stored transition once a target; beyond this many it looks at fewer targets.
GRAPH_WORK = 100_000_000
# Entries of the difference matrices handled at once, and of the tables of the refined bound.
CHUNK_ENTRIES = 4_000_000
REFINE_ENTRIES = 4_000_000
SEARCHES = 24
SEARCHES_PER_STAGE = 3
SWEEPS = 20
RANDOM_POLICIES = 8
STATES_NAMED = 6


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DiameterWitness:
    """A stationary policy, (S,) actions, that takes `expected_time` from `origin` to `target`.

    If that is infinite, `loop` lists states that the policy can reach from `origin` without meeting the
    target and never leaves again.
    """

    target: int
    origin: int
    policy: Ints
    expected_time: float
    loop: tuple[int, ...] = ()

    def describe(self) -> str:
        """Return the witness as one sentence."""
        if not self.loop:
            return (
                f"from state {self.origin} some policy takes {self.expected_time:.6g} steps on average "
                f"to reach state {self.target}."
            )
        place = f"state {self.loop[0]}"
        if len(self.loop) > 1:
            rest = f" and {len(self.loop) - STATES_NAMED} more" if len(self.loop) > STATES_NAMED else ""
            place = f"states {', '.join(str(x) for x in self.loop[:STATES_NAMED])}{rest}"
        if self.origin in self.loop:
            return (
                f"from state {self.origin} some policy stays in {place} for ever "
                f"and never meets state {self.target}."
            )
        return (
            f"from state {self.origin} some policy can come to {place} before it meets state {self.target}, "
            "and stays there for ever."
        )

    def to_json(self) -> dict[str, Any]:
        """Return the witness as plain numbers; the policy itself is left out for its size."""
        return {
            "target": self.target,
            "origin": self.origin,
            "expected_time": _finite(self.expected_time),
            "loop": list(self.loop),
        }


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DiameterReport:
    """Assumption 2.2: the diameter lies in [`lower`, `upper`], equal where solved, against `limit`, H / 2."""

    status: str
    lower: float
    upper: float
    limit: float
    witness: DiameterWitness | None

    def describe(self) -> str:
        """Return the answer as a sentence or two."""
        if math.isinf(self.lower):
            size = "infinite"
        elif self.lower == self.upper:
            size = f"{self.lower:.6g}"
        else:
            size = f"at least {self.lower:.6g}"
        sentence = (
            f"Assumption 2.2 (ergodicity) {_says(self.status)}: "
            f"the worst-case diameter is {size}, H/2 is {self.limit:g}."
        )
        return sentence if self.witness is None else f"{sentence} Witness: {self.witness.describe()}"

    def to_json(self) -> dict[str, Any]:
        """Return the answer as plain numbers and words; null stands for infinity."""
        return {
            "status": self.status,
            "infinite": math.isinf(self.lower),
            "diameter_lower": _finite(self.lower),
            "diameter_upper": _finite(self.upper),
            "limit": self.limit,
            "witness": None if self.witness is None else self.witness.to_json(),
            "description": self.describe(),
        }


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
        """Return the witness as plain numbers; the policy itself is left out for its size."""
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
    """Assumption 2.3: the largest gap of any policy lies in [`lower`, `upper`], against `bound`.

    All three are in scaled units. `witness` has the gap `lower`, and refutes the assumption where the
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
        start = f"Assumption 2.3 (gaps at most {bound}) {_says(self.status)}"
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
            "bound": _finite(raw(self.bound)),
            "bound_scaled": _finite(self.bound),
            "gap_lower": raw(self.lower),
            "gap_lower_scaled": self.lower,
            "gap_upper": raw(self.upper),
            "gap_upper_scaled": self.upper,
            "witness": self.witness.to_json(self.scale),
            "description": self.describe(),
        }


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AssumptionReport:
    """Both answers for one problem; `eta` is in the user's units."""

    problem: str
    eta: float
    scale: RewardScale
    diameter: DiameterReport
    gaps: GapReport

    @property
    def holds(self) -> bool:
        """Whether both assumptions are known to hold."""
        return self.diameter.status == self.gaps.status == HOLDS

    def describe(self) -> str:
        """Return both answers in words, a line each."""
        return f"{self.diameter.describe()}\n{self.gaps.describe()}"

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain numbers and words; null stands for infinity."""
        return {
            "problem": self.problem,
            "eta": _finite(self.eta),
            "eta_scaled": _finite(self.scale.scaled_difference(self.eta)),
            "holds": self.holds,
            "assumption_2_2": self.diameter.to_json(),
            "assumption_2_3": self.gaps.to_json(),
        }


def check_assumptions(
    mdp: FiniteMDP,
    eta: float,
    *,
    step_bound: float | None = None,
    rng: np.random.Generator | None = None,
) -> AssumptionReport:
    """Check the paper's Assumptions 2.2 and 2.3 on a known MDP.

    Args:
        mdp: The true MDP.
        eta: The budget, in the user's reward units; infinity is allowed.
        step_bound: What 2.3 bounds gaps by, in the user's units; eta / 2 by default, as rule `paper` needs.
            Give the xi of rule `capped` to check that rule's assumption instead.
        rng: Where given, some random policies are tried too.

    Raises:
        InvalidBudget: if `eta` or `step_bound` is negative or no number.

    Example:
        >>> swap = FiniteMDP.from_arrays([[[0.0, 1.0]], [[1.0, 0.0]]], [[0.0], [1.0]], horizon=4)
        >>> print(check_assumptions(swap, eta=0.5).describe())
        Assumption 2.2 (ergodicity) holds: the worst-case diameter is 1, H/2 is 2.
        Assumption 2.3 (gaps at most 0.25) holds: no policy has a gap above 0.
    """
    budget = check_real("eta", eta, low=0.0, error=InvalidBudget)
    bound = budget / 2
    if step_bound is not None:
        bound = check_real("step_bound", step_bound, low=0.0, error=InvalidBudget)
    return AssumptionReport(
        problem=mdp.name,
        eta=budget,
        scale=mdp.scale,
        diameter=check_diameter(mdp),
        gaps=check_gaps(mdp, mdp.scale.scaled_difference(bound), rng=rng),
    )


def check_diameter(mdp: FiniteMDP) -> DiameterReport:
    """Compare the worst-case diameter with H / 2, Assumption 2.2.

    It is infinite exactly if some policy can keep to a set of states without some target, which a search
    of the graph decides. A terminal state is such a set: an episode that ended meets nothing any more.
    Otherwise every policy meets every state, and policy iteration maximises the mean hitting time of each
    target exactly.

    Beyond 200 states the finite case is bounded from below only, which nearly always decides it: under any
    policy some state has stationary probability <= 1 / S, is met again after S steps on average or more,
    and so takes S - 1 or more from some other state.
    """
    limit = mdp.horizon / 2
    rows = _rows(mdp)
    avoided = _avoided_target(mdp, rows)
    if avoided is not None:
        return DiameterReport(status=FAILS, lower=math.inf, upper=math.inf, limit=limit, witness=avoided)
    if mdp.n_states == 1:
        return DiameterReport(status=HOLDS, lower=0.0, upper=0.0, limit=limit, witness=None)
    if mdp.n_states <= EXACT_STATES:
        slowest = _slowest(mdp, rows.toarray())
        upper = slowest.expected_time
    else:
        slowest, upper = _slow(mdp, rows), math.inf
    lower, slack = slowest.expected_time, TIME_TOLERANCE * limit
    status = FAILS if lower > limit + slack else HOLDS if upper <= limit + slack else UNDECIDED
    return DiameterReport(
        status=status, lower=lower, upper=upper, limit=limit, witness=slowest if status == FAILS else None
    )


def check_gaps(mdp: FiniteMDP, bound: float, *, rng: np.random.Generator | None = None) -> GapReport:
    """Compare the largest gap of any deterministic policy with `bound` (scaled), Assumption 2.3.

    Policies may depend on the step. The gap of (t, s, a) under one that plays a1 is R1 - R + gamma
    (P1 - P).V_{t+1}. From above, V_{t+1} is let vary in the box between the worst and the best value of each
    state, and on small problems also within bounds on V(x) - V(y) carried backwards through transport
    plans. From below, policies are tried: the best, the worst, the greedy, the recorded one, and local
    searches from where the upper bound is largest.
    """
    truth = Truth(mdp)
    best, worst = truth.solve(), truth.solve(worst=True)
    rows = _rows(mdp)
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
    # The bounds meet up to rounding where the box is tight, as in the last two steps.
    upper = max(upper, lower)
    status = (
        FAILS if lower > bound + GAP_TOLERANCE else HOLDS if upper <= bound + GAP_TOLERANCE else UNDECIDED
    )
    return GapReport(status=status, lower=lower, upper=upper, bound=bound, witness=witness, scale=mdp.scale)


def _avoided_target(mdp: FiniteMDP, rows: sparse.csr_array) -> DiameterWitness | None:
    """Find a target that some policy can avoid for ever, or None if there is none.

    Targets are tried in an order that gives telling witnesses: states to act in before terminal ones, and
    states where no episode starts before those where one does. Where there are too many, only the first are
    tried, and one that the policy of lowest actions misses if it misses any.
    """
    setting = mdp.setting
    order = np.lexsort((np.arange(mdp.n_states), mdp.start > 0, setting.terminal))
    affordable = max(1, GRAPH_WORK // max(1, rows.nnz))
    if affordable < mdp.n_states:
        lowest = np.where(setting.terminal, -1, setting.pair_start[:-1])
        label, closed = _classes(_graph(rows, lowest))
        missed = np.flatnonzero(label != np.flatnonzero(closed)[0])
        order = np.concatenate([order[:affordable], missed[:1]])
    columns = rows.tocsc()
    for target in order:
        safe = _largest_closed_set(mdp, columns, int(target))
        if safe.any():
            return _avoidance(mdp, rows, int(target), safe)
    return None


def _largest_closed_set(mdp: FiniteMDP, columns: sparse.csc_array, target: int) -> Bools:
    """Return the states, (S,), from which some policy surely never meets `target`: a greatest fixed point."""
    setting = mdp.setting
    state = np.repeat(np.arange(setting.n_states), np.diff(setting.pair_start))
    safe = np.ones(setting.n_states, dtype=bool)
    open_pairs = np.diff(setting.pair_start).astype(np.int64)
    usable = np.ones(setting.n_pairs, dtype=bool)
    frontier = np.array([target])
    safe[target] = False
    while len(frontier):
        leading = np.unique(np.concatenate([columns.indices[_column(columns, x)] for x in frontier]))
        leading = leading[usable[leading]]
        usable[leading] = False
        lost = np.bincount(state[leading], minlength=setting.n_states)
        open_pairs -= lost
        # Terminal states have no pairs to lose and stay safe.
        frontier = np.flatnonzero((lost > 0) & (open_pairs == 0) & safe)
        safe[frontier] = False
    return safe


def _column(columns: sparse.csc_array, x: int) -> slice:
    return slice(columns.indptr[x], columns.indptr[x + 1])


def _avoidance(mdp: FiniteMDP, rows: sparse.csr_array, target: int, safe: Bools) -> DiameterWitness:
    """Return a policy that keeps to `safe` and goes there with positive probability from where it can."""
    setting = mdp.setting
    S = setting.n_states
    state = np.repeat(np.arange(S), np.diff(setting.pair_start))
    pattern = (rows > 0).astype(np.int64)
    chosen = np.full(S, -1, dtype=np.int64)

    def choose(pairs: NDArray[np.int64]) -> None:
        # Backwards, so that the lowest action of a state is the one kept.
        chosen[state[pairs[::-1]]] = pairs[::-1]

    choose(np.flatnonzero(safe[state] & (pattern @ ~safe == 0)))
    near = safe.copy()
    while True:
        toward = np.flatnonzero(~near[state] & (state != target) & (pattern @ near > 0))
        if not len(toward):
            break
        choose(toward)
        near[state[toward]] = True
    rest = (chosen < 0) & ~setting.terminal
    chosen[rest] = setting.pair_start[:-1][rest]

    graph = _graph(rows, chosen, without=target)
    origin = next(
        int(np.flatnonzero(kind)[0])
        for kind in (near & (mdp.start > 0), near & ~setting.terminal, near)
        if kind.any()
    )
    reached = csgraph.breadth_first_order(graph, origin, return_predecessors=False)
    label, closed = _classes(graph)
    closed[label[target]] = False
    sizes = np.bincount(label)
    loops = [int(i) for i in np.unique(label[reached]) if closed[i]]
    loop = np.flatnonzero(label == min(loops, key=lambda i: int(sizes[i])))
    return DiameterWitness(
        target=target,
        origin=origin,
        policy=_actions(mdp, chosen),
        expected_time=math.inf,
        loop=tuple(int(x) for x in loop),
    )


def _graph(rows: sparse.csr_array, chosen: Ints, without: int = -1) -> sparse.csr_array:
    """Return the transitions, (S, S), of the pair `chosen` in each state (-1: none), but for `without`."""
    S = rows.shape[1]
    acting = np.flatnonzero((chosen >= 0) & (np.arange(S) != without))
    picked = rows[chosen[acting]].tocoo()
    return sparse.csr_array((picked.data, (acting[picked.coords[0]], picked.coords[1])), shape=(S, S))


def _classes(graph: sparse.csr_array) -> tuple[Ints, Bools]:
    """Return the communicating class of each state, (S,), and which classes are never left."""
    count, label = csgraph.connected_components(graph, connection="strong")
    closed = np.ones(count, dtype=bool)
    tail, head = graph.nonzero()
    closed[label[tail[label[tail] != label[head]]]] = False
    return label, closed


def _actions(mdp: FiniteMDP, chosen: Ints) -> Ints:
    setting = mdp.setting
    policy = np.where(chosen >= 0, setting.pair_action[chosen], 0).astype(np.int64)
    policy.setflags(write=False)
    return policy


def _slowest(mdp: FiniteMDP, rows: Floats) -> DiameterWitness:
    """Return the policy, origin and target of the diameter where every policy meets every state."""
    setting = mdp.setting
    S = setting.n_states
    starts = setting.pair_start[:-1]
    chosen = starts.copy()
    slowest: DiameterWitness | None = None
    for target in range(S):
        others = np.delete(np.arange(S), target)
        # Policy iteration; the last target's policy is a good one to begin with.
        while True:
            time = np.zeros(S)
            time[others] = np.linalg.solve(np.eye(S - 1) - rows[chosen[others]][:, others], np.ones(S - 1))
            ahead = 1.0 + rows @ time
            longest = np.maximum.reduceat(ahead, starts)
            better = longest > ahead[chosen] * (1.0 + TIME_TOLERANCE)
            better[target] = False
            if not better.any():
                break
            for s in np.flatnonzero(better):
                chosen[s] = starts[s] + int(ahead[starts[s] : setting.pair_start[s + 1]].argmax())
        origin = int(time.argmax())
        if slowest is None or time[origin] > slowest.expected_time:
            slowest = DiameterWitness(
                target=target, origin=origin, policy=_actions(mdp, chosen), expected_time=float(time[origin])
            )
    assert slowest is not None
    return slowest


def _slow(mdp: FiniteMDP, rows: sparse.csr_array) -> DiameterWitness:
    """Return a policy and the state it meets least often: at least S - 1 steps from some other state."""
    from scipy.sparse.linalg import spsolve

    S = mdp.n_states
    chosen = mdp.setting.pair_start[:-1]
    step = rows[chosen]
    # The last balance equation is implied by the others; the probabilities' sum takes its place.
    balance = sparse.vstack([(sparse.eye_array(S) - step.T).tocsr()[:-1], np.ones((1, S))], format="csc")
    stationary = spsolve(balance, np.eye(1, S, S - 1)[0])
    target = int(stationary.argmin())
    others = np.delete(np.arange(S), target)
    time = np.zeros(S)
    time[others] = spsolve((sparse.eye_array(S - 1) - step[others][:, others]).tocsc(), np.ones(S - 1))
    origin = int(time.argmax())
    return DiameterWitness(
        target=target, origin=origin, policy=_actions(mdp, chosen), expected_time=float(time[origin])
    )


class _Candidate(NamedTuple):
    """A step, the pair played and the pair given up for it, with a bound on the gap between them."""

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
    # No state with two actions: playing the only one there is loses nothing.
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
    taken where it is smaller. None where the tables would be large.
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

    What is played at (t, s) leaves V_{t+1} alone, so the gap there is largest for the action of largest Q.
    """
    q = truth.evaluate(policy).q
    extremes = [(truth.highest(row), truth.highest(-row)) for row in q]
    spread = np.array([high[1] + low[1] for high, low in extremes])
    t, s = (int(i) for i in np.unravel_index(int(spread.argmax()), spread.shape))
    (high, _), (low, _) = extremes[t]
    played = np.array(policy)
    played[t, s] = high[s]
    played.setflags(write=False)
    return GapWitness(found_by=found_by, policy=played, t=t, s=s, a=int(low[s]), gap=float(spread[t, s]))


def _wider(one: GapWitness | None, other: GapWitness) -> GapWitness:
    return other if one is None or other.gap > one.gap + GAP_TOLERANCE else one


def _ascend(truth: Truth, rows: sparse.csr_array, place: _Candidate, best: Ints, worst: Ints) -> Ints:
    """Climb from the box's own wish to a policy that makes (P1 - P).V_{t+1} large.

    Under a policy the signed mass w = P1 - P flows on as d_{i+1} = d_i P, and (P1 - P).V is the reward that
    flow earns. With the other steps held, step i is best served state by state: the largest Q where
    d_i > 0, the smallest where d_i < 0. Sweeps from the last step to the first never lose, and stop when
    one gains nothing.
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


def _rows(mdp: FiniteMDP) -> sparse.csr_array:
    """Return P as sparse rows, (pairs, S)."""
    shape = (mdp.setting.n_pairs, mdp.n_states)
    return sparse.csr_array((mdp.probability, mdp.successor, mdp.row_start), shape=shape)


def _both(amount: float, scale: RewardScale) -> str:
    if scale == RewardScale():
        return f"{amount:.6g}"
    return f"{scale.raw_difference(amount):.6g} ({amount:.6g} scaled)"


def _says(status: str) -> str:
    return f"is {status}" if status == UNDECIDED else status


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None
