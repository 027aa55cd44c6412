"""The preview itself: from a log and a budget to what the budget allows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import update_wrapper
from inspect import signature
from typing import Any, Concatenate, ParamSpec

import numpy as np

from chary.agents.protocol import POSTERIOR
from chary.data.logs import Log, check_log
from chary.preview.analysis import Analysis, Parts, by_bounds, by_worlds, split
from chary.preview.credible import MOST_NUMBERS
from chary.preview.gaps import check_step_bounds
from chary.preview.helpful import MOST_PAIRS
from chary.preview.options import WORLDS, PreviewOptions
from chary.preview.problem import Problem, make_problem
from chary.preview.result import Basis, Preview, RuleBasis, StepBound
from chary.preview.verdict import decide, grounds_of

P = ParamSpec("P")


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
        >>> found = preview(log, etas=[0.5, 2.0], reward_low=0, reward_high=1, bonus="kl")
        >>> [(each.eta, each.deviating) for each in found.outcomes if each.rule == "strict"]
        [(0.5, 0.0), (2.0, 1.0)]
    """
    check_log(log)
    problem = make_problem(log, options)
    done = 0

    def report() -> None:
        nonlocal done
        done += 1
        if options.progress is not None:
            options.progress(min(done, MOST_PAIRS + 4), MOST_PAIRS + 4)

    parts = split(problem, options)
    posterior = options.bonus == POSTERIOR
    found = (by_worlds if posterior else by_bounds)(problem, options, parts, report)
    # The other family is compared by rule strict and the same budgets.
    beside = None
    if posterior:
        beside = by_bounds(problem, options.by("kl"), parts, None)
    elif len(problem.log) * options.worlds <= MOST_NUMBERS:
        beside = by_worlds(problem, options.by(POSTERIOR), parts, None)
    if options.progress is not None:
        options.progress(MOST_PAIRS + 4, MOST_PAIRS + 4)
    outcomes = tuple(
        replace(each, standing=grounds_of(options.spec(each.rule, each.eta), problem).standing)
        for each in found.outcomes
    )
    return Preview(
        basis=_facts(log, problem, options, parts, found),
        notes=(*problem.notes, *_notes(options, problem, found, parts.called)),
        baseline=found.baseline,
        charges=found.charges,
        outcomes=outcomes,
        curves=found.curves,
        thresholds=found.thresholds,
        rules=tuple(_basis_of(rule, options, problem) for rule in options.rules),
        helpful=found.helpful,
        helpful_note=found.helpful_note,
        verdict=decide(problem, options, found, beside),
        step_bounds=_step_bounds(problem, options, parts, found if posterior else beside),
        credible=found.credible,
    )


def _step_bounds(
    problem: Problem, options: PreviewOptions, parts: Parts, worlds: Analysis | None
) -> tuple[StepBound, ...]:
    """Return what the log says about the bounds that rules capped and paper would assume."""
    if worlds is None or worlds.planned is None:
        return ()
    log, setting = problem.log, problem.setting
    tried = np.zeros(setting.n_pairs, dtype=bool)
    tried[setting.pair_index[log.state, log.action][parts.learnt]] = True
    bounds = {eta / 2 for eta in options.etas} | ({options.step_bound} if options.step_bound else set())
    positive = [each for each in bounds if each > 0]
    return check_step_bounds(worlds.planned, worlds.cells, tried, positive, options.risk)


def _facts(log: Log, problem: Problem, options: PreviewOptions, parts: Parts, found: Analysis) -> Basis:
    """Return what a preview is based on."""
    setting, learnt = problem.setting, parts.learnt
    said = {
        name: getattr(options, name)
        for name in ("support", "allowed", "bonus", "max_episodes", "charge", "unit")
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
        replayed_episodes=found.replayed[0],
        replayed_steps=found.replayed[1],
        states=setting.n_states,
        actions=setting.n_actions,
        pairs=setting.n_pairs,
        pairs_seen=found.pairs_seen,
        horizon=setting.horizon,
        discount=float(setting.discount),
        reward_low=setting.scale.low,
        reward_high=setting.scale.high,
        value_cap=None if options.value_cap is None else float(options.value_cap),
        prior=parts.called,
        bonus_scale=float(options.bonus_scale),
        delta=float(options.delta),
        reward="estimated" if options.rewards is None else "known",
        baseline=None if problem.own is None else problem.own.role,
        inferred=problem.inferred,
        first_step=options.first_step,
        state_labels=tuple((options.labels or {}).get("state", ())),
        action_labels=tuple((options.labels or {}).get("action", ())),
        **said,
        **of_worlds,
    )


def _basis_of(rule: str, options: PreviewOptions, problem: Problem) -> RuleBasis:
    """Return the standing of a rule with any budget."""
    used = grounds_of(options.spec(rule, next(iter(options.etas))), problem)
    bound = options.step_bound if rule == "capped" else None
    return RuleBasis(rule=rule, standing=replace(used, eta=None, step_bound=bound).standing)


def _notes(options: PreviewOptions, problem: Problem, found: Analysis, prior: str) -> list[str]:
    notes = []
    if found.sampled is not None:
        notes.append(
            f"To save time, {found.sampled:,} of the episodes were replayed, evenly spread over the log."
        )
    if options.holdout:
        notes.append(
            f"The last {100 * options.holdout:g} % of the episodes were replayed and not learnt from."
        )
    else:
        notes.append(
            "The replayed states are those that were learnt from: new episodes will meet less familiar "
            "ones. With --holdout 0.2 the last fifth is replayed without being learnt from."
        )
    if found.baseline.tied > 0 and prior == "none" and problem.own is None:
        notes.append(
            "Where the data do not decide, the lowest-numbered action is the baseline. With --prior logged "
            "it is the action logged most often."
        )
    if "capped" in (options.rules) and options.step_bound is None:
        notes.append("Rule capped was tried with a step bound of eta / 2, as rule paper assumes.")
    return notes
