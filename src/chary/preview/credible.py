"""A preview by posterior worlds: what all worlds think of the log's policy, and what their vote affords."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from chary.agents._world_schedule import EXPLORERS, WorldSchedule
from chary.agents.chary_ucbvi import CharyUCBVI
from chary.arrays import Bools, Floats, Ints
from chary.mdp.setting import Setting
from chary.model.worlds import Worlds
from chary.planner._worlds import (
    Shape,
    WorldPlan,
    evaluate_worlds_into,
    new_world_plan,
    price_worlds_into,
)
from chary.preview.measure import BEST, CHOSEN, ONLY, LoggedSteps
from chary.preview.problem import Problem
from chary.preview.result import BudgetOutcome, Credible, CredibleValue, Proposal
from chary.shield import Ledger, authorise
from chary.shield.worlds import TAIL, Panel

INTERVAL = (0.025, 0.975)
# The number of proposals that are listed.
MOST_PROPOSALS = 10
# Numbers that one replay reads: beyond this a sample of episodes is replayed.
MOST_NUMBERS = 8_000_000


class Planned(NamedTuple):
    """Worlds that have learnt a log, and their joint plan."""

    setting: Setting
    worlds: Worlds
    shape: Shape
    plan: WorldPlan


class Ballots(NamedTuple):
    """Replayed proposals, one array per t over all episodes of that length, the longest episodes first.

    `gaps` has one row per proposal and one column per world; `rows` are the proposals' places in it.
    """

    gaps: Floats
    rows: tuple[Ints, ...]
    differs: tuple[Bools, ...]
    steps: int
    episodes: int


def learn_worlds(spec: CharyUCBVI, problem: Problem, learnt: Ints, prior: Ints, seed: int) -> Planned:
    """Return worlds that have learnt the rows `learnt`, and their plan; `prior` (S,) decides ties.

    They are those of an agent with a generator of this seed.
    """
    setting, log = problem.setting, problem.log
    generator = np.random.default_rng(seed)
    schedule = WorldSchedule(
        spec,
        setting,
        prior=prior,
        rank=spec.tie_rank(setting, generator),
        generator=generator,
        own=problem.own,
    )
    pairs = setting.pair_index[log.state[learnt], log.action[learnt]]
    nexts, rewards = log.next_state[learnt], log.scaled_rewards(setting)[learnt]
    schedule.learn(pairs, nexts, rewards, nexts[log.terminated[learnt]])
    return Planned(setting, schedule.worlds, schedule.shape, schedule.planned())


def price_steps(planned: Planned, steps: Ints) -> Floats:
    """Return the gaps of steps (B, 3), step, state and action, in every judging world, (B, K)."""
    prices = np.zeros((len(steps), planned.plan.judges))
    price_worlds_into(prices, planned.plan, planned.worlds.rows, planned.shape, steps)
    return prices


def upper_of(deficits: Floats, panel: Panel) -> Floats:
    """Return `chary.shield.worlds.upper` of every row, (N,), from deficits (N, K)."""
    K = deficits.shape[1]
    place = K - 1 - min(max(panel.allowed, 0), K - 1)
    bound = np.asarray(np.partition(deficits, place, axis=1)[:, place])
    if panel.allowed >= 0:
        return bound
    fitted = K // TAIL
    if panel.reach > 0.0:
        top = np.sort(deficits, axis=1)[:, K - fitted - 1 :]
        bound = np.maximum(bound, top[:, 0] + (top[:, 1:].mean(axis=1) - top[:, 0]) * panel.reach)
    return np.asarray(np.maximum(bound, deficits.mean(axis=1) + panel.z * deficits.std(axis=1, ddof=1)))


def classify_by_worlds(planned: Planned, t: Ints, state: Ints, risk: float) -> tuple[NDArray[np.int8], Bools]:
    """Return how well worlds know the baseline at cells, (C,), and where it is worth something.

    An action is known to be best where no other one is as good in all worlds but a share `risk`.
    """
    setting, plan = planned.setting, planned.plan
    number = np.diff(setting.pair_start)[state]
    own = plan.baseline[t, state]
    alone = np.full((len(t), plan.judges), np.inf)
    for place in range(int(number.max(initial=0))):
        here = np.flatnonzero(number > place)
        action = setting.pair_action[setting.pair_start[state[here]] + place]
        other = action != own[here]
        some = here[other]
        steps = np.column_stack([t[some], state[some], action[other]])
        alone[some] = np.minimum(alone[some], price_steps(planned, steps))
    sure = (alone > 0.0).mean(axis=1) >= 1.0 - risk
    worth = (plan.value[t, state, : plan.judges] > 0.0).mean(axis=1) >= 1.0 - risk
    return np.where(number <= 1, ONLY, np.where(sure, BEST, CHOSEN)).astype(np.int8), worth


def sampled_episodes(steps: LoggedSteps, worlds: int) -> tuple[LoggedSteps, int | None]:
    """Return the steps to replay, and the number of their episodes if they are a sample, spread evenly."""
    episodes = int(steps.episode[-1]) + 1
    every = max(1, -(-len(steps.t) * worlds // MOST_NUMBERS))
    if every == 1:
        return steps, None
    keep = steps.episode % every == 0
    some = LoggedSteps(steps.t[keep], steps.state[keep], steps.episode[keep] // every)
    return some, -(-episodes // every)


def ballots_of(planned: Planned, steps: LoggedSteps) -> tuple[Ballots, Ints, Ints]:
    """Return the proposals at replayed steps, each with its gaps; and by step its row, and its action."""
    plan, S = planned.plan, planned.setting.n_states
    proposals = plan.explorer[steps.t, steps.state, steps.episode % EXPLORERS].astype(np.int64)
    differs = proposals != plan.baseline[steps.t, steps.state]
    code = (steps.t * S + steps.state) * planned.setting.n_actions + proposals
    _, first, row = np.unique(code, return_index=True, return_inverse=True)
    row = row.reshape(-1)
    gaps = price_steps(planned, np.column_stack([steps.t[first], steps.state[first], proposals[first]]))
    length = np.bincount(steps.episode)
    start = np.concatenate([[0], np.cumsum(length)])[:-1][np.argsort(-length, kind="stable")]
    running = [int((length > t).sum()) for t in range(int(length.max()))]
    at = [start[:n] + t for t, n in enumerate(running)]
    ballots = Ballots(
        gaps, tuple(row[each] for each in at), tuple(differs[each] for each in at), len(row), len(length)
    )
    return ballots, row, proposals


def play_votes(
    spec: CharyUCBVI, ballots: Ballots, span: float, allowed_rows: list[Ints] | None = None
) -> BudgetOutcome:
    """Replay all episodes at once: every step is put to the vote with the deficits of its episode.

    The rows of allowed steps that differ from the baseline are added to `allowed_rows`.
    """
    assert spec.eta is not None
    rule, panel = spec.resolved_rule(span), Panel.of(spec.risk, worlds=spec.worlds)
    E, K = ballots.episodes, ballots.gaps.shape[1]
    deficits, booked, closed = np.zeros((E, K)), np.zeros(E), np.zeros(E, dtype=bool)
    strayed = np.zeros(E, dtype=bool)
    explored = deviating = 0
    for rows, differs in zip(ballots.rows, ballots.differs, strict=True):
        n = len(rows)
        after = deficits[:n] + ballots.gaps[rows]
        upper = upper_of(after, panel)
        ledger = Ledger(closed[:n], np.zeros(n))  # type: ignore[arg-type]
        afforded, told = authorise(ledger, np.ones(n, dtype=bool), upper, rule)  # type: ignore[arg-type]
        closed[:n] = told.closed
        deficits[:n] = np.where(np.asarray(afforded)[:, None], after, deficits[:n])
        booked[:n] = np.where(afforded, np.maximum(booked[:n], upper), booked[:n])
        apart = afforded & differs
        strayed[:n] |= apart
        explored += int(np.sum(afforded))
        deviating += int(np.sum(apart))
        if allowed_rows is not None:
            allowed_rows.append(rows[apart])
    over = (1 + 1e-12) * spec.eta / span + 1e-12
    return BudgetOutcome(
        rule=spec.rule,
        eta=spec.eta,
        step_bound=spec.step_bound,
        standing=spec.grounds().standing,
        explored=explored / ballots.steps,
        deviating=deviating / ballots.steps,
        episodes_deviating=float(strayed.mean()),
        charge_per_step=float(booked.sum()) / ballots.steps * span,
        charge_per_episode=float(booked.mean()) * span,
        episodes_over_eta=float((booked > over).mean()),
        expected_loss=float(deficits.mean()) * span,
        exceeding=float((deficits > over).mean()),
    )


def value_of(planned: Planned, policy: Ints, starts: Ints) -> Floats:
    """Return the value of a policy (H, S) in every judging world, (K,), mean over first states, raw."""
    setting, plan, K = planned.setting, planned.plan, planned.plan.judges
    own = new_world_plan(setting, K, plan.value.shape[2] - K)
    evaluate_worlds_into(own, planned.worlds.rows, planned.shape, policy, np.zeros((2, 0, 0)))
    offset = setting.scale.low * float(np.sum(setting.discount ** np.arange(setting.horizon)))
    return np.asarray(own.value[0, starts, :K].mean(axis=0) * setting.scale.span + offset)


def credible_of(
    planned: Planned,
    today: Ints,
    called: str,
    starts: Ints,
    observed: float,
    proposals: tuple[Proposal, ...],
) -> Credible:
    """Return the values of today's policy and of the baseline, means over first states, in raw units.

    Today's policy is (S,) or (H, S); where it is -1, nothing was seen, and the baseline takes its place.
    """
    plan, K = planned.plan, planned.plan.judges
    policy = np.where(today >= 0, today, plan.baseline)
    values = [value_of(planned, each, starts) for each in (policy, plan.baseline)]
    gain = values[1] - values[0]
    return Credible(
        today=called,
        worlds=K,
        observed=observed,
        today_value=interval_of(values[0]),
        baseline_value=interval_of(values[1]),
        gain=interval_of(gain),
        better=float((gain > 0.0).mean()),
        proposals=proposals,
    )


def interval_of(values: Floats) -> CredibleValue:
    """Return the mean of a number over worlds, and the interval with 95 % of them."""
    low, high = np.quantile(values, INTERVAL).tolist()
    return CredibleValue(mean=float(values.mean()), low=low, high=high)


def proposals_of(
    planned: Planned, ballots: Ballots, allowed: Ints, steps: LoggedSteps, row: Ints, actions: Ints
) -> tuple[Proposal, ...]:
    """Return the most frequent of the proposals that were allowed, numbered by their rows, one per pair."""
    if not len(allowed):
        return ()
    A, span = planned.setting.n_actions, planned.setting.scale.span
    first = np.zeros(len(ballots.gaps), dtype=np.int64)
    first[row] = np.arange(len(row))
    pair = (steps.state * A + actions)[first]
    count = np.bincount(allowed, minlength=len(ballots.gaps))
    found = []
    for each in np.unique(pair[allowed]).tolist():
        rows = np.flatnonzero((pair == each) & (count > 0))
        weight = count[rows] / count[rows].sum()
        most = first[rows[count[rows].argmax()]]
        found.append(
            Proposal(
                state=each // A,
                action=each % A,
                baseline=int(planned.plan.baseline[steps.t[most], steps.state[most]]),
                steps=int(count[rows].sum()),
                gap=float(weight @ ballots.gaps[rows].mean(axis=1)) * span,
                better=float(weight @ (ballots.gaps[rows] == 0.0).mean(axis=1)),
            )
        )
    found.sort(key=lambda each: (-each.steps, each.state, each.action))
    return tuple(found[:MOST_PROPOSALS])
