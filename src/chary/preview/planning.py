"""The preview itself: from a log and a budget to what the budget allows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, update_wrapper
from inspect import signature
from typing import Any, Concatenate, ParamSpec

import numpy as np

from chary.agents.chary_ucbvi import CharyUCBVI
from chary.agents.protocol import POSTERIOR
from chary.arrays import Bools, Ints
from chary.data.logs import Log, check_log
from chary.errors import InvalidSetting
from chary.planner.plan import TabularPlan, check_cap
from chary.preview import measure
from chary.preview.credible import (
    ballots_of,
    classify_by_worlds,
    credible_of,
    learn_worlds,
    play_votes,
    proposals_of,
    sampled_episodes,
    upper_of,
)
from chary.preview.helpful import MOST_PAIRS, rank_pairs
from chary.preview.options import WORLDS, PreviewOptions
from chary.preview.problem import Problem, learn_log, make_prior, make_problem
from chary.preview.result import Basis, BudgetOutcome, Curve, Preview, RuleBasis, Threshold
from chary.shield.worlds import Panel
from chary.standing import Grounds

P = ParamSpec("P")


SHARES = (0.05, 0.25, 0.5)
# Pricing a proposal takes about as long as sorting the states; beyond this much work, a sample of episodes
# is replayed.
MOST_PRICING = 40_000_000
PRICING_ANYWAY = 100


def _keywords(
    make: Callable[P, PreviewOptions],
) -> Callable[[Callable[[Log, PreviewOptions], Preview]], Callable[Concatenate[Log, P], Preview]]:
    """Return a decorator for a function that takes the fields of its options as keywords."""

    def decorate(
        function: Callable[[Log, PreviewOptions], Preview],
    ) -> Callable[Concatenate[Log, P], Preview]:
        def call(log: Log, *fields: P.args, **options: P.kwargs) -> Preview:
            return function(log, make(*fields, **options))

        update_wrapper(call, function)
        keywords = [next(iter(signature(function).parameters.values())), *signature(make).parameters.values()]
        call.__signature__ = signature(function).replace(parameters=keywords)  # type: ignore[attr-defined]
        return call  # type: ignore[return-value]  # `log` may be a keyword, too

    return decorate


@_keywords(PreviewOptions)
def preview(log: Log, options: PreviewOptions) -> Preview:
    """Return what an exploration budget allows, from logged decisions alone.

    The log is turned into what an agent would have learnt before its first episode: counts with bounds, the
    baseline, an optimistic explorer, and the charges of its proposals. Then the states of the logged episodes
    are replayed: at every step `authorise` decides about the explorer's proposal with the ledger of its
    episode. Neither the true MDP nor a simulation is used; had the explorer acted, other states would have
    followed. Chains are left out: the explorer proposes an action at every step.

    Args:
        log: The logged decisions.
        options: The fields of `PreviewOptions`, each as a keyword; `etas` is required.

    Raises:
        InvalidData: if the log contradicts what was declared.
        CharyError: if an option is out of range.

    Example:
        >>> log = Log(episode=[0, 1, 2], t=[0, 0, 0], state=[0, 0, 0], action=[1, 1, 1], reward=[1, 1, 1],
        ...           next_state=[0, 0, 0], terminated=[False, False, False])
        >>> found = preview(log, etas=[0.5, 2.0], reward_low=0, reward_high=1)
        >>> [(each.eta, each.deviating) for each in found.outcomes if each.rule == "strict"]
        [(0.5, 0.0), (2.0, 1.0)]
    """
    check_log(log)
    specs = options.specs()
    if options.bonus == POSTERIOR:
        return _by_worlds(log, options, specs)
    bounds, charge = specs[0].bounds, str(options.charge)
    done = 0

    def report() -> None:
        nonlocal done
        done += 1
        if options.progress is not None:
            options.progress(min(done, MOST_PAIRS + 4), MOST_PAIRS + 4)

    problem = make_problem(log, options)
    setting, span = problem.setting, problem.setting.scale.span
    specs[0].check_problem(setting)
    learnt, held = _split(problem, options.holdout)
    ties, ties_called = make_prior(options.prior, problem.log, learnt & problem.real, setting)
    report()
    read = np.flatnonzero(learnt)
    knowledge = learn_log(problem.log, read, setting, bounds, max_episodes=options.max_episodes)
    report()
    plan = TabularPlan(setting, knowledge, ties, charge=charge)
    check_cap(setting, bounds, knowledge, plan.arrays.baseline, plan.arrays.v_lower)
    kind, worth, explorer = measure.classify(setting, knowledge, ties)
    t, state = problem.log.t[held], problem.log.state[held]
    logged = measure.LoggedSteps(t, state, np.cumsum(t == 0) - 1)
    known = measure.know_baseline(kind, worth, measure.Cells.of(logged, setting.n_states))
    steps, sampled = _sampled(logged, explorer != plan.arrays.baseline)
    cells = measure.Cells.of(steps, setting.n_states)
    proposals = explorer[cells.t, cells.state]
    differs = proposals != plan.arrays.baseline[cells.t, cells.state]
    cost = measure.price(plan, cells, proposals)
    report()
    twice = learn_log(problem.log, np.tile(read, 2), setting, bounds, max_episodes=options.max_episodes)
    doubled = measure.price(TabularPlan(setting, twice, ties, charge=charge), cells, proposals)
    replay = measure.charges_by_step(steps, cost[cells.of_step], differs[cells.of_step])
    outcomes = [
        replace(measure.play(spec, replay, span), standing=_grounds(spec, problem).standing) for spec in specs
    ]
    reach = {rule: 2.0 if rule == "paper" else 1.0 for rule in options.rules}
    apart = sum(int(each.sum()) for each in replay.differs) / replay.steps
    curves, thresholds = zip(
        *(
            _against_eta(
                rule,
                options,
                # Rule paper explores while the ledger is at most eta / 2.
                [eta * span for eta in measure.grid_of(replay, reach[rule])],
                lambda spec: measure.play(spec, replay, span),
                apart,
            )
            for rule in options.rules
        ),
        strict=True,
    )
    report()
    priced = (cells, proposals, cost)
    helpful, helpful_note = rank_pairs(
        setting, knowledge, plan, ties, *priced, kind=charge, added=options.more_visits, progress=report
    )
    if options.progress is not None:
        options.progress(MOST_PAIRS + 4, MOST_PAIRS + 4)
    seen = int((knowledge.rows.total > 0).sum())
    return Preview(
        basis=_facts(log, problem, options, learnt, (replay.episodes, replay.steps), seen, ties_called),
        notes=(*problem.notes, *_notes(options, sampled, known.tied, ties_called)),
        baseline=known,
        charges=measure.charges_of(cost, doubled, differs, cells, span),
        outcomes=tuple(outcomes),
        curves=curves,
        thresholds=tuple(each for some in thresholds for each in some),
        rules=tuple(_basis_of(rule, options, problem) for rule in options.rules),
        helpful=helpful,
        helpful_note=helpful_note,
    )


def _by_worlds(log: Log, options: PreviewOptions, specs: list[CharyUCBVI]) -> Preview:
    """Return the preview that posterior worlds give."""
    problem = make_problem(log, options)
    setting, span, rules = problem.setting, problem.setting.scale.span, tuple(options.rules)
    specs[0].check_problem(setting)
    learnt, held = _split(problem, options.holdout)
    ties, ties_called = make_prior(options.prior, problem.log, learnt & problem.real, setting)
    planned = learn_worlds(specs[0], setting, problem.log, np.flatnonzero(learnt), ties, options.seed)
    t, state = problem.log.t[held], problem.log.state[held]
    logged = measure.LoggedSteps(t, state, np.cumsum(t == 0) - 1)
    every = measure.Cells.of(logged, setting.n_states)
    found, worth = classify_by_worlds(planned, every.t, every.state, options.risk)
    kind = np.zeros((setting.horizon, setting.n_states), dtype=np.int8)
    valued = np.zeros(kind.shape, dtype=bool)
    kind[every.t, every.state], valued[every.t, every.state] = found, worth
    known = measure.know_baseline(kind, valued, every)
    steps, sampled = sampled_episodes(logged, options.worlds)
    ballots, row, actions = ballots_of(planned, steps)
    # Every replayed step counts for itself: explorers differ from episode to episode.
    priced = upper_of(ballots.gaps, Panel.of(options.risk, worlds=options.worlds))[row]
    differs = actions != planned.plan.baseline[steps.t, steps.state]
    each = measure.Cells(steps.t, steps.state, np.ones(len(row), dtype=np.int64), np.arange(len(row)))
    charges = measure.charges_of(priced, priced, differs, each, span)
    replay = measure.charges_by_step(steps, priced, differs)
    allowed: list[Ints] = []
    # Rule by rule, and of each the largest budget last.
    last = len(tuple(options.etas)) - 1
    outcomes = [
        replace(
            play_votes(spec, ballots, span, allowed if i == last else None),
            standing=_grounds(spec, problem).standing,
        )
        for i, spec in enumerate(specs)
    ]
    grid = [eta * span for eta in measure.grid_of(replay, 1.0)]
    curves, thresholds = zip(
        *(
            _against_eta(
                rule, options, grid, lambda spec: play_votes(spec, ballots, span), float(differs.mean())
            )
            for rule in rules
        ),
        strict=True,
    )
    rows = np.concatenate(allowed) if allowed else np.zeros(0, dtype=np.int64)
    # Without a policy of the user, today's is what was logged most often.
    own, called = (ties, ties_called) if ties_called == "given" else _logged(problem, learnt)
    starts = problem.log.state[learnt & (problem.log.t == 0)]
    credible = credible_of(
        planned,
        own,
        called,
        starts,
        _observed(problem.log, learnt, setting.discount),
        proposals_of(planned, ballots, rows, steps, row, actions),
    )
    seen = len(np.unique(planned.worlds.counts.pair))
    replayed = (ballots.episodes, ballots.steps)
    return Preview(
        basis=_facts(log, problem, options, learnt, replayed, seen, ties_called),
        notes=(*problem.notes, *_notes(options, sampled, known.tied, ties_called)),
        baseline=known,
        charges=replace(charges, mean_doubled=None),
        outcomes=tuple(outcomes),
        curves=curves,
        thresholds=tuple(one for some in thresholds for one in some),
        rules=tuple(_basis_of(rule, options, problem) for rule in rules),
        helpful=(),
        helpful_note="Which data would help is not computed with posterior worlds.",
        credible=credible,
    )


def _logged(problem: Problem, learnt: Bools) -> tuple[Ints, str]:
    return make_prior("logged", problem.log, learnt & problem.real, problem.setting)


def _observed(log: Log, learnt: Bools, discount: float) -> float:
    """Return the mean discounted return of the episodes that were learnt from."""
    return float((log.reward * discount**log.t)[learnt].sum() / (learnt & (log.t == 0)).sum())


def _facts(
    log: Log,
    problem: Problem,
    options: PreviewOptions,
    learnt: Bools,
    replayed: tuple[int, int],
    pairs_seen: int,
    prior: str,
) -> Basis:
    """Return what a preview is based on; `replayed` are episodes and steps."""
    setting = problem.setting
    said = {
        name: getattr(options, name) for name in ("support", "allowed", "bonus", "max_episodes", "charge")
    }
    posterior = options.bonus == POSTERIOR
    of_worlds: dict[str, Any] = {
        name: getattr(options, name) if posterior else None for name in (*WORLDS, "seed")
    }
    return Basis(
        episodes=log.n_episodes,
        steps=log.n_transitions,
        learnt_episodes=int((learnt & (problem.log.t == 0)).sum()),
        learnt_steps=int((learnt & problem.real).sum()),
        replayed_episodes=replayed[0],
        replayed_steps=replayed[1],
        states=setting.n_states,
        actions=setting.n_actions,
        pairs=setting.n_pairs,
        pairs_seen=pairs_seen,
        horizon=setting.horizon,
        discount=float(setting.discount),
        reward_low=setting.scale.low,
        reward_high=setting.scale.high,
        value_cap=None if options.value_cap is None else float(options.value_cap),
        prior=prior,
        bonus_scale=float(options.bonus_scale),
        delta=float(options.delta),
        **said,
        **of_worlds,
    )


def _split(problem: Problem, share: float) -> tuple[Bools, Bools]:
    """Return which rows are learnt from and which are replayed, (N,): all, or the last episodes only."""
    log = problem.log
    if share == 0.0:
        return np.ones(len(log), dtype=bool), problem.real
    number = np.cumsum(log.t == 0) - 1
    episodes = int(number[-1]) + 1
    kept = episodes - max(1, round(share * episodes))
    if kept < 1:
        raise InvalidSetting(
            f"'holdout' must leave an episode to learn from, got {share:g} of {episodes}. Hold out less."
        )
    return number < kept, problem.real & (number >= kept)


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
    rule: str,
    options: PreviewOptions,
    grid: Sequence[float],
    play: Callable[[CharyUCBVI], BudgetOutcome],
    apart: float,
) -> tuple[Curve, list[Threshold]]:
    """Return the shares explored against the budget, and the budgets that allow some of them.

    `play` replays the log, and `apart` is the share of steps at which explorers differ from the baseline.
    """

    @cache
    def at(eta: float) -> BudgetOutcome:
        return play(options.spec(rule, eta))

    drawn = sorted({*grid, *options.etas})
    curve = Curve(
        rule=rule,
        eta=tuple(drawn),
        explored=tuple(at(eta).explored for eta in drawn),
        deviating=tuple(at(eta).deviating for eta in drawn),
    )
    thresholds = [
        Threshold(
            rule=rule,
            share=share,
            eta_explored=measure.smallest_eta(grid, lambda eta: at(eta).explored, share),
            eta_deviating=measure.smallest_eta(grid, lambda eta: at(eta).deviating, share * apart)
            if apart
            else None,
        )
        for share in SHARES
    ]
    return curve, thresholds


def _grounds(spec: CharyUCBVI, problem: Problem) -> Grounds:
    used = spec.grounds(problem.setting)
    log = problem.log
    left_out = log.dropped is not None
    return replace(used, logs=True, dropped=left_out, discretised=log.discretised, inferred=problem.inferred)


def _basis_of(rule: str, options: PreviewOptions, problem: Problem) -> RuleBasis:
    """Return the standing of a rule with any budget."""
    used = _grounds(options.spec(rule, next(iter(options.etas))), problem)
    return RuleBasis(rule=rule, standing=replace(used, eta=None, step_bound=options.step_bound).standing)


def _notes(options: PreviewOptions, sampled: int | None, tied: float, prior: str) -> list[str]:
    notes = []
    if sampled is not None:
        notes.append(f"To save time, {sampled:,} of the episodes were replayed, evenly spread over the log.")
    if options.holdout:
        notes.append(
            f"The last {100 * options.holdout:g} % of the episodes were replayed and not learnt from."
        )
    else:
        notes.append(
            "The replayed states are those that were learnt from: new episodes will meet less familiar "
            "ones. With --holdout 0.2 the last fifth is replayed without being learnt from."
        )
    if tied > 0 and prior == "none":
        notes.append(
            "Where the data do not decide, the lowest-numbered action is the baseline. With --prior logged "
            "it is the action logged most often."
        )
    if "capped" in (options.rules) and options.step_bound is None:
        notes.append("Rule capped was tried with a step bound of eta / 2, as rule paper assumes.")
    return notes
