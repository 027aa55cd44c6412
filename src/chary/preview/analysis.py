"""What budgets allow on replayed states, by confidence bounds and by posterior worlds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

import numpy as np

from chary.agents.chary_ucbvi import CharyUCBVI
from chary.arrays import Bools, Ints
from chary.data.logs import Log
from chary.errors import InvalidSetting
from chary.model.knowledge import Knowledge
from chary.planner.plan import TabularPlan, check_cap, own_plan
from chary.preview import measure
from chary.preview.credible import (
    Planned,
    ballots_of,
    classify_by_worlds,
    credible_of,
    learn_worlds,
    play_votes,
    proposals_of,
    sampled_episodes,
    upper_of,
)
from chary.preview.helpful import rank_pairs
from chary.preview.options import PreviewOptions
from chary.preview.problem import Problem, learn_log, make_prior
from chary.preview.result import (
    BaselineKnowledge,
    BudgetOutcome,
    Charges,
    Credible,
    Curve,
    HelpfulPair,
    Threshold,
)
from chary.shield.worlds import Panel

SHARES = (0.05, 0.25, 0.5)
# Pricing a proposal takes about as long as sorting the states; beyond this much work, a sample of episodes
# is replayed.
MOST_PRICING = 40_000_000
PRICING_ANYWAY = 100
NO_HELP = "Which data would help is not computed with posterior worlds."


class Parts(NamedTuple):
    """Which rows of a log are learnt from and which are replayed, (N,): all, or the last episodes only.

    `ties` are the actions (S,) that decide ties, -1 for none, and `called` is their name.
    """

    learnt: Bools
    held: Bools
    ties: Ints
    called: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """What budgets allow by one family. Compared families have neither curves nor helpful pairs.

    `planned` are the worlds behind it, `cells` the steps and states replayed, `policy` the baseline (H, S),
    `starts` the first states of the episodes that were learnt from, and `today` today's policy.
    """

    outcomes: tuple[BudgetOutcome, ...]
    baseline: BaselineKnowledge
    charges: Charges
    cells: measure.Cells
    policy: Ints
    starts: Ints
    sampled: int | None
    replayed: tuple[int, int]
    pairs_seen: int
    curves: tuple[Curve, ...] = ()
    thresholds: tuple[Threshold, ...] = ()
    helpful: tuple[HelpfulPair, ...] = ()
    helpful_note: str = NO_HELP
    credible: Credible | None = None
    planned: Planned | None = None
    today: Ints | None = None


def split(problem: Problem, options: PreviewOptions) -> Parts:
    """Return the rows to learn from and those to replay, and the policy that decides ties."""
    log, share = problem.log, options.holdout
    learnt, held = np.ones(len(log), dtype=bool), problem.real
    if share > 0.0:
        number = np.cumsum(log.t == 0) - 1
        episodes = int(number[-1]) + 1
        kept = episodes - max(1, round(share * episodes))
        if kept < 1:
            raise InvalidSetting(
                f"'holdout' must leave an episode to learn from, got {share:g} of {episodes}. Hold out less."
            )
        learnt, held = number < kept, problem.real & (number >= kept)
    ties, called = make_prior(options.prior, log, learnt & problem.real, problem.setting)
    return Parts(learnt, held, ties, called)


def by_bounds(
    problem: Problem, options: PreviewOptions, parts: Parts, report: Callable[[], None] | None
) -> Analysis:
    """Return what budgets allow by confidence bounds; `report` is None where it is only compared."""
    specs, setting, log = options.specs(), problem.setting, problem.log
    bounds, charge, span = specs[0].bounds, str(options.charge), setting.scale.span
    specs[0].check_problem(setting)

    def plan_of(knowledge: Knowledge) -> TabularPlan:
        if problem.own is None:
            return TabularPlan(setting, knowledge, parts.ties, charge=charge)
        return own_plan(setting, knowledge, problem.own, charge=charge)

    tell = report or (lambda: None)
    tell()
    read = np.flatnonzero(parts.learnt)
    knowledge = learn_log(log, read, setting, bounds, max_episodes=options.max_episodes)
    tell()
    plan = plan_of(knowledge)
    check_cap(setting, bounds, knowledge, plan.arrays.baseline, plan.arrays.v_lower)
    own = None if problem.own is None else plan.arrays.baseline
    kind, worth, explorer = measure.classify(setting, knowledge, parts.ties, own)
    logged = _steps(log, parts.held)
    known = measure.know_baseline(kind, worth, measure.Cells.of(logged, setting.n_states))
    steps, sampled = _sampled(logged, explorer != plan.arrays.baseline)
    cells = measure.Cells.of(steps, setting.n_states)
    proposals = explorer[cells.t, cells.state]
    differs = proposals != plan.arrays.baseline[cells.t, cells.state]
    cost = measure.price(plan, cells, proposals)
    tell()
    replay = measure.charges_by_step(steps, cost[cells.of_step], differs[cells.of_step])
    found = Analysis(
        outcomes=tuple(measure.play(spec, replay, span) for spec in specs),
        baseline=known,
        charges=measure.charges_of(cost, cost, differs, cells, span),
        cells=cells,
        policy=np.array(plan.arrays.baseline[:, : setting.n_states]),
        starts=log.state[parts.learnt & (log.t == 0)],
        sampled=sampled,
        replayed=(replay.episodes, replay.steps),
        pairs_seen=int((knowledge.rows.total > 0).sum()),
    )
    if report is None:
        return found
    twice = learn_log(log, np.tile(read, 2), setting, bounds, max_episodes=options.max_episodes)
    doubled = measure.price(plan_of(twice), cells, proposals)
    reach = {rule: 2.0 if rule == "paper" else 1.0 for rule in options.rules}
    apart = sum(int(each.sum()) for each in replay.differs) / replay.steps
    curves, thresholds = _against_eta(
        options,
        # Rule paper explores while the ledger is at most eta / 2.
        lambda rule: [eta * span for eta in measure.grid_of(replay, reach[rule])],
        lambda spec: measure.play(spec, replay, span),
        apart,
    )
    tell()
    helpful, helpful_note = rank_pairs(
        setting,
        knowledge,
        plan,
        plan_of,
        cells,
        proposals,
        cost,
        added=options.more_visits,
        progress=tell,
    )
    return replace(
        found,
        charges=measure.charges_of(cost, doubled, differs, cells, span),
        curves=curves,
        thresholds=thresholds,
        helpful=helpful,
        helpful_note=helpful_note,
    )


def by_worlds(
    problem: Problem, options: PreviewOptions, parts: Parts, report: Callable[[], None] | None
) -> Analysis:
    """Return what budgets allow by posterior worlds; `report` is None where it is only compared."""
    specs, setting, log = options.specs(), problem.setting, problem.log
    span = setting.scale.span
    specs[0].check_problem(setting)
    tell = report or (lambda: None)
    planned = learn_worlds(specs[0], problem, np.flatnonzero(parts.learnt), parts.ties, options.seed)
    tell()
    logged = _steps(log, parts.held)
    every = measure.Cells.of(logged, setting.n_states)
    found, worth = classify_by_worlds(planned, every.t, every.state, options.risk)
    kind = np.zeros((setting.horizon, setting.n_states), dtype=np.int8)
    valued = np.zeros(kind.shape, dtype=bool)
    kind[every.t, every.state], valued[every.t, every.state] = found, worth
    tell()
    steps, sampled = sampled_episodes(logged, options.worlds)
    ballots, row, actions = ballots_of(planned, steps)
    # Every replayed step counts for itself: explorers differ from episode to episode.
    priced = upper_of(ballots.gaps, Panel.of(options.risk, worlds=options.worlds))[row]
    differs = actions != planned.plan.baseline[steps.t, steps.state]
    each = measure.Cells(steps.t, steps.state, np.ones(len(row), dtype=np.int64), np.arange(len(row)))
    charges = measure.charges_of(priced, priced, differs, each, span)
    allowed: list[Ints] = []
    # Rule by rule, and of each the largest budget last.
    last = len(tuple(options.etas)) - 1
    outcomes = [
        play_votes(spec, ballots, span, allowed if i == last else None) for i, spec in enumerate(specs)
    ]
    tell()
    rows = np.concatenate(allowed) if allowed else np.zeros(0, dtype=np.int64)
    # Without a policy of the user, today's is what was logged most often.
    if problem.own is not None:
        today, called = problem.own.table, "given"
    elif parts.called == "given":
        today, called = parts.ties, parts.called
    else:
        today, called = make_prior("logged", log, parts.learnt & problem.real, setting)
    observed = float(
        (log.reward * setting.discount**log.t)[parts.learnt].sum() / (parts.learnt & (log.t == 0)).sum()
    )
    starts = log.state[parts.learnt & (log.t == 0)]
    credible = credible_of(
        planned,
        today,
        called,
        starts,
        observed,
        proposals_of(planned, ballots, rows, steps, row, actions),
    )
    analysis = Analysis(
        outcomes=tuple(outcomes),
        baseline=measure.know_baseline(kind, valued, every),
        charges=replace(charges, mean_doubled=None),
        cells=every,
        policy=planned.plan.baseline,
        starts=starts,
        sampled=sampled,
        replayed=(ballots.episodes, ballots.steps),
        pairs_seen=len(np.unique(planned.worlds.counts.pair)),
        credible=credible,
        planned=planned,
        today=np.where(today >= 0, today, planned.plan.baseline),
    )
    if report is None:
        return analysis
    replay = measure.charges_by_step(steps, priced, differs)
    grid = [eta * span for eta in measure.grid_of(replay, 1.0)]
    curves, thresholds = _against_eta(
        options, lambda rule: grid, lambda spec: play_votes(spec, ballots, span), float(differs.mean())
    )
    return replace(analysis, curves=curves, thresholds=thresholds)


def _steps(log: Log, held: Bools) -> measure.LoggedSteps:
    t, state = log.t[held], log.state[held]
    return measure.LoggedSteps(t, state, np.cumsum(t == 0) - 1)


def _sampled(steps: measure.LoggedSteps, differs: Bools) -> tuple[measure.LoggedSteps, int | None]:
    """Return the steps to replay, and the number of their episodes if they are a sample.

    A sample is spread evenly over the log, not drawn: the same log gives the same one. `differs`, (H, S),
    is where the explorer differs from the baseline, which determines the time.
    """
    episodes, S = int(steps.episode[-1]) + 1, differs.shape[1]
    every = 1
    while True:
        keep = steps.episode % every == 0
        cells = np.unique(steps.t[keep] * S + steps.state[keep])
        work = int(differs.reshape(-1)[cells].sum()) * (S + PRICING_ANYWAY)
        if work <= MOST_PRICING or every >= episodes:
            break
        every *= 2
    some = measure.LoggedSteps(steps.t[keep], steps.state[keep], steps.episode[keep] // every)
    return some, None if every == 1 else -(-episodes // every)


def _against_eta(
    options: PreviewOptions,
    grid_of: Callable[[str], Sequence[float]],
    play: Callable[[CharyUCBVI], BudgetOutcome],
    apart: float,
) -> tuple[tuple[Curve, ...], tuple[Threshold, ...]]:
    """Return the shares explored against the budget by rule, and the budgets that allow some of them.

    `play` replays the log, and `apart` is the share of steps at which explorers differ from the baseline.
    """

    @cache
    def at(rule: str, eta: float) -> BudgetOutcome:
        return play(options.spec(rule, eta))

    def smallest(rule: str, grid: Sequence[float], field: str, wanted: float) -> float | None:
        return measure.smallest_eta(grid, lambda eta: float(getattr(at(rule, eta), field)), wanted)

    curves, thresholds = [], []
    for rule in options.rules:
        grid = grid_of(rule)
        drawn = sorted({*grid, *options.etas})
        curves.append(
            Curve(
                rule=rule,
                eta=tuple(drawn),
                explored=tuple(at(rule, eta).explored for eta in drawn),
                deviating=tuple(at(rule, eta).deviating for eta in drawn),
            )
        )

        thresholds += [
            Threshold(
                rule=rule,
                share=share,
                eta_explored=smallest(rule, grid, "explored", share),
                eta_deviating=smallest(rule, grid, "deviating", share * apart) if apart else None,
            )
            for share in SHARES
        ]
    return tuple(curves), tuple(thresholds)
