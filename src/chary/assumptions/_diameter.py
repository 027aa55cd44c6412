"""Assumption 2.2 (ergodicity): the worst-case diameter is at most H / 2.

The diameter is Upsilon = max over s' != s and stationary deterministic policies of E[T(s', s)]. A search of
the graph finds where it is infinite; policy iteration solves it otherwise (docs/algorithm.md section 7).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph

from chary.arrays import Bools, Floats, Ints, frozen
from chary.assumptions._verdict import FAILS, HOLDS, UNDECIDED, finite, says, sparse_rows
from chary.mdp import FiniteMDP

# Hitting times come out of linear solves; relative to the time.
TIME_TOLERANCE = 1e-9
# Below this many states the diameter is solved exactly, one policy iteration per target (seconds at the
# limit).
EXACT_STATES = 200
# The graph search visits every stored transition once per target; beyond this many it tries fewer targets.
GRAPH_WORK = 100_000_000
STATES_NAMED = 6


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DiameterWitness:
    """A stationary policy, (S,) actions, that takes `expected_time` from `origin` to `target`.

    If that is infinite, `loop` lists states that the policy can reach from `origin` without reaching the
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
                f"from state {self.origin} some policy stays in {place} forever "
                f"and never reaches state {self.target}."
            )
        return (
            f"from state {self.origin} some policy can reach {place} before state {self.target}, "
            "and stays there forever."
        )

    def to_json(self) -> dict[str, Any]:
        """Return the witness as plain numbers; the policy itself is left out because of its size."""
        ends, time = {"target": self.target, "origin": self.origin}, finite(self.expected_time)
        return {**ends, "expected_time": time, "loop": list(self.loop)}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DiameterReport:
    """Assumption 2.2: the diameter lies in [`lower`, `upper`], equal if solved; `limit` is H / 2."""

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
            f"Assumption 2.2 (ergodicity) {says(self.status)}: "
            f"the worst-case diameter is {size}, H/2 is {self.limit:g}."
        )
        return sentence if self.witness is None else f"{sentence} Witness: {self.witness.describe()}"

    def to_json(self) -> dict[str, Any]:
        """Return the answer as plain numbers and words; null stands for infinity."""
        return {
            "status": self.status,
            "infinite": math.isinf(self.lower),
            "diameter_lower": finite(self.lower),
            "diameter_upper": finite(self.upper),
            "limit": self.limit,
            "witness": None if self.witness is None else self.witness.to_json(),
            "description": self.describe(),
        }


def check_diameter(mdp: FiniteMDP) -> DiameterReport:
    """Compare the worst-case diameter with H / 2, Assumption 2.2.

    It is infinite exactly if some policy can keep to a set of states without some target, which a search
    of the graph decides. A terminal state is such a set: an episode that ended reaches nothing more.
    Otherwise every policy reaches every state, and policy iteration maximises the mean hitting time of each
    target exactly.

    Beyond 200 states the finite case is bounded from below only, which nearly always decides it: under any
    policy some state has stationary probability <= 1 / S, is reached again after S steps on average or more,
    and so takes S - 1 or more from some other state.
    """
    limit = mdp.horizon / 2
    rows = sparse_rows(mdp)
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


def _avoided_target(mdp: FiniteMDP, rows: sparse.csr_array) -> DiameterWitness | None:
    """Find a target that some policy can avoid forever, or None if there is none.

    Targets are tried in an order that gives informative witnesses: acting states before terminal ones, and
    states where no episode starts before those where one does. If there are too many, only the first are
    tried, and one that the policy of lowest actions misses, if it misses any.
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
    """Return the states, (S,), from which some policy never reaches `target`: a greatest fixed point."""
    setting = mdp.setting
    state = np.repeat(np.arange(setting.n_states), np.diff(setting.pair_start))
    safe = np.ones(setting.n_states, dtype=bool)
    open_pairs = np.diff(setting.pair_start).astype(np.int64)
    usable = np.ones(setting.n_pairs, dtype=bool)
    frontier = np.array([target])
    safe[target] = False
    while len(frontier):
        spans = [slice(columns.indptr[x], columns.indptr[x + 1]) for x in frontier]
        leading = np.unique(np.concatenate([columns.indices[span] for span in spans]))
        leading = leading[usable[leading]]
        usable[leading] = False
        lost = np.bincount(state[leading], minlength=setting.n_states)
        open_pairs -= lost
        # Terminal states have no pairs to lose and stay safe.
        frontier = np.flatnonzero((lost > 0) & (open_pairs == 0) & safe)
        safe[frontier] = False
    return safe


def _avoidance(mdp: FiniteMDP, rows: sparse.csr_array, target: int, safe: Bools) -> DiameterWitness:
    """Return a policy that keeps to `safe` and goes there with positive probability from where it can."""
    setting = mdp.setting
    S = setting.n_states
    state = np.repeat(np.arange(S), np.diff(setting.pair_start))
    pattern = (rows > 0).astype(np.int64)
    chosen = np.full(S, -1, dtype=np.int64)

    def choose(pairs: NDArray[np.int64]) -> None:
        # Backwards, so that the lowest action of a state is stored last.
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
    """Return the transitions, (S, S), of the pair `chosen` in each state (-1: none), except `without`."""
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
    return frozen(np.where(chosen >= 0, mdp.setting.pair_action[chosen], 0), np.int64)


def _slowest(mdp: FiniteMDP, rows: Floats) -> DiameterWitness:
    """Return the policy, origin and target of the diameter if every policy reaches every state."""
    setting = mdp.setting
    S = setting.n_states
    starts = setting.pair_start[:-1]
    chosen = starts.copy()
    slowest: DiameterWitness | None = None
    for target in range(S):
        others = np.delete(np.arange(S), target)
        # Policy iteration; the last target's policy is a good start.
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
        if slowest is None or time.max() > slowest.expected_time:
            slowest = _witness(mdp, target, chosen, time)
    assert slowest is not None
    return slowest


def _slow(mdp: FiniteMDP, rows: sparse.csr_array) -> DiameterWitness:
    """Return a policy and the state it reaches least often: at least S - 1 steps from some other state."""
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
    return _witness(mdp, target, chosen, time)


def _witness(mdp: FiniteMDP, target: int, chosen: Ints, time: Floats) -> DiameterWitness:
    """Return the policy of the `chosen` pairs with the state from which it takes longest, of `time` (S,)."""
    origin, policy = int(time.argmax()), _actions(mdp, chosen)
    return DiameterWitness(target=target, origin=origin, policy=policy, expected_time=float(time[origin]))
