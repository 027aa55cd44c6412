"""The computations of a preview: knowledge about the baseline, charges of proposals, effects of budgets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from chary.agents.chary_ucbvi import CharyUCBVI
from chary.arrays import Bools, Floats, Ints
from chary.mdp.setting import Setting
from chary.model.knowledge import Knowledge
from chary.planner._backup import LOWER, new_scratch
from chary.planner._full import OPTIMISE, START, backward_into, new_explorer
from chary.planner.plan import TabularPlan, optimistic_policy
from chary.preview.result import BaselineKnowledge, BudgetOutcome, Charges, StageKnowledge
from chary.shield import Ledger, authorise

KINDS = ("only", "tied", "chosen", "best")
ONLY, TIED, CHOSEN, BEST = range(4)
# The levels of quantiles.
LEVELS = tuple(i / 40 for i in range(41))
GRID_POINTS = 32
# Halvings of the interval between two points of the grid.
HALVINGS = 7


class LoggedSteps(NamedTuple):
    """Replayed steps in the order of the log, (N,): step, state, and number of the episode (0, 1, 2, ...)."""

    t: Ints
    state: Ints
    episode: Ints


class Cells(NamedTuple):
    """The distinct (t, state) of some steps, (C,), their counts, and the index of each step's, (N,)."""

    t: Ints
    state: Ints
    weight: Ints
    of_step: Ints

    @classmethod
    def of(cls, steps: LoggedSteps, n_states: int) -> Cells:
        """Return the cells of some steps."""
        code, of_step, weight = np.unique(
            steps.t * n_states + steps.state, return_inverse=True, return_counts=True
        )
        return cls(code // n_states, code % n_states, weight, of_step.reshape(-1))


class ReplayedCharges(NamedTuple):
    """The charges of the explorer's proposals, one array per t over all episodes of that length.

    Episodes are sorted by length, the longest first, so that those still running are always the first.
    """

    charge: tuple[Floats, ...]
    differs: tuple[Bools, ...]
    steps: int
    episodes: int


def classify(
    setting: Setting, knowledge: Knowledge, prior: Ints, own: Ints | None = None
) -> tuple[NDArray[np.int8], Bools, Ints]:
    """Return the knowledge about the baseline at (t, s), where its lower bound is > 0, and the explorer.

    Both bounds are those of the optimum: the lower one of the baseline's own plan, the upper one of the
    explorer's. A lower bound above every other action's upper bound therefore proves the action best. `own`,
    (H, S), is a baseline in place of the learnt one.
    """
    H, S, P = setting.horizon, setting.n_states, setting.n_pairs
    optimist = new_explorer(S, P, H, falling=False)
    explorer = optimistic_policy(setting, knowledge, optimist)
    v, q, baseline = np.zeros((H + 1, S)), np.zeros((H, P)), np.zeros((H, S), dtype=np.int64)
    none, stages = np.zeros((0, 0)), (START, START + (H - 1))
    backward_into(
        v, q, baseline, knowledge.rows, knowledge.radii, LOWER, OPTIMISE, prior, none, stages, new_scratch(S)
    )
    baseline = baseline if own is None else own
    kind = np.full((H, S), ONLY, dtype=np.int8)
    number = np.diff(setting.pair_start)
    acting = np.flatnonzero(number > 0)
    first = setting.pair_start[:-1][acting]
    several = number[acting] > 1
    for t in range(H):
        own = setting.pair_index[acting, baseline[t, acting]]
        lower = q[t, own]
        q[t, own] = optimist.q[t, own] = -np.inf
        others_lower = np.maximum.reduceat(q[t], first)
        others_upper = np.maximum.reduceat(optimist.q[t], first)
        known = np.where(lower > others_upper, BEST, np.where(lower > others_lower, CHOSEN, TIED))
        kind[t, acting] = np.where(several, known, ONLY)
    return kind, v[:H] > 0.0, explorer


def know_baseline(kind: NDArray[np.int8], worth: Bools, cells: Cells) -> BaselineKnowledge:
    """Return the knowledge about the baseline at the cells, from the results of `classify`."""
    found = kind[cells.t, cells.state]

    def shares(here: Bools) -> dict[str, float]:
        share = np.bincount(found[here], weights=cells.weight[here], minlength=len(KINDS))
        return dict(zip(KINDS, (share / cells.weight[here].sum()).tolist(), strict=True))

    stages = [(t, cells.t == t) for t in np.unique(cells.t).tolist()]
    total = int(cells.weight.sum())
    states = np.unique(cells.state)
    return BaselineKnowledge(
        **shares(np.ones(len(found), dtype=bool)),
        worth_something=float(cells.weight[worth[cells.t, cells.state]].sum() / total),
        states=len(states),
        states_best=len(np.setdiff1d(states, cells.state[found != BEST])),
        by_stage=tuple(
            StageKnowledge(t=t, steps=int(cells.weight[here].sum()), **shares(here)) for t, here in stages
        ),
    )


def price(plan: TabularPlan, cells: Cells, proposals: Ints) -> Floats:
    """Return the charges of `proposals`, (C,), at the cells, in scaled units."""
    steps = zip(cells.t.tolist(), cells.state.tolist(), proposals.tolist(), strict=True)
    return np.array([plan.charge(t, s, a) for t, s, a in steps])


def charges_of(charge: Floats, doubled: Floats, differs: Bools, cells: Cells, span: float) -> Charges:
    """Return the charges of proposals, from those of the cells and whether each differs, (C,).

    `doubled` are the charges of the same proposals with twice the data.
    """
    total = int(cells.weight.sum())
    apart = int(cells.weight[differs].sum())
    spent = float(charge[differs] @ cells.weight[differs]) * span

    def quantiles(which: Bools) -> tuple[float, ...]:
        if not which.any():
            return ()
        order = np.argsort(charge[which], kind="stable")
        values, weight = charge[which][order], cells.weight[which][order]
        # The smallest charge that at least this share of the proposals does not exceed.
        place = np.searchsorted(np.cumsum(weight), np.array(LEVELS) * weight.sum(), side="left")
        return tuple((values[np.minimum(place, len(values) - 1)] * span).tolist())

    return Charges(
        differing=apart / total,
        mean=float(charge @ cells.weight) * span / total,
        mean_differing=spent / apart if apart else None,
        mean_doubled=float(doubled[differs] @ cells.weight[differs]) * span / apart if apart else None,
        levels=LEVELS,
        overall=quantiles(differs),
        at_start=quantiles(differs & (cells.t == 0)),
    )


def charges_by_step(steps: LoggedSteps, charge: Floats, differs: Bools) -> ReplayedCharges:
    """Return the charges of all steps, (N,), by step of the episode."""
    length = np.bincount(steps.episode)
    start = np.concatenate([[0], np.cumsum(length)])[:-1]
    start = start[np.argsort(-length, kind="stable")]
    running = [int((length > t).sum()) for t in range(int(length.max()))]
    rows = [start[:n] + t for t, n in enumerate(running)]
    return ReplayedCharges(
        tuple(charge[row] for row in rows), tuple(differs[row] for row in rows), len(charge), len(length)
    )


def play(spec: CharyUCBVI, replay: ReplayedCharges, span: float) -> BudgetOutcome:
    """Replay all episodes at once: every step applies the rule to the explorer's proposal and its ledger.

    Replayed charges are in scaled units, each of `span` units of the user's. The states are the logged ones,
    whatever is decided.
    """
    assert spec.eta is not None
    rule, eta = spec.resolved_rule(span), spec.eta / span
    closed, deficit = np.zeros(replay.episodes, dtype=bool), np.zeros(replay.episodes)
    strayed = np.zeros(replay.episodes, dtype=bool)
    explored = deviating = 0
    for charge, differs in zip(replay.charge, replay.differs, strict=True):
        n = len(charge)
        ledger = Ledger(closed[:n], deficit[:n])  # type: ignore[arg-type]
        afforded, after = authorise(ledger, np.ones(n, dtype=bool), charge, rule)  # type: ignore[arg-type]
        closed[:n], deficit[:n] = after.closed, after.deficit
        apart = afforded & differs
        strayed[:n] |= apart
        explored += int(np.sum(afforded))
        deviating += int(np.sum(apart))
    booked = float(deficit.sum())
    return BudgetOutcome(
        rule=spec.rule,
        eta=spec.eta,
        step_bound=spec.step_bound,
        standing=spec.grounds().standing,
        explored=explored / replay.steps,
        deviating=deviating / replay.steps,
        episodes_deviating=float(strayed.mean()),
        charge_per_step=booked / replay.steps * span,
        charge_per_episode=booked / replay.episodes * span,
        # By more than the rounding of the sums.
        episodes_over_eta=float((deficit > eta * (1 + 1e-12) + 1e-12).mean()),
    )


def grid_of(replay: ReplayedCharges, reach: float) -> list[float]:
    """Return budgets to try, ascending: 0, one below every charge, and up to `reach` times their sum."""
    total = np.zeros(replay.episodes)
    least = np.inf
    for charge in replay.charge:
        total[: len(charge)] += charge
        least = min(least, float(charge[charge > 0].min(initial=np.inf)))
    if not np.isfinite(least):
        return [0.0]
    # Slightly more than the sum, which may be added up in another order elsewhere.
    top = reach * float(total.max()) * (1 + 1e-9)
    return [0.0, *np.geomspace(least / 2, max(top, least), GRID_POINTS).tolist()]


def smallest_eta(grid: Sequence[float], measure: Callable[[float], float], wanted: float) -> float | None:
    """Return the smallest budget found for which `measure` is at least `wanted`, 0 if any is enough."""
    place = next((i for i, eta in enumerate(grid) if measure(eta) >= wanted), None)
    if place is None:
        return None
    if place <= 1:
        # The first budget above 0 is below every charge: a rule that needs no more needs 0.
        return 0.0
    low, high = grid[place - 1], grid[place]
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        if measure(middle) >= wanted:
            high = middle
        else:
            low = middle
    return high
