"""The preview itself: from a log and a budget to what the budget would buy."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from chary.agents.chary_ucbvi import CharyUCBVI
from chary.arrays import Bools
from chary.data import Log
from chary.errors import InvalidSetting, check_choice, check_integer, check_real
from chary.planner.plan import TabularPlan
from chary.preview.helpful import MOST_PAIRS, rank_pairs
from chary.preview.measure import (
    Cells,
    Lanes,
    Played,
    Steps,
    charges_of,
    classify,
    grid_of,
    know_baseline,
    lanes_of,
    play,
    price,
    smallest_eta,
)
from chary.preview.problem import Problem, learn_log, make_prior, make_problem
from chary.preview.result import Basis, Curve, Outcome, Preview, RuleBasis, Threshold
from chary.shield import RULES

__all__ = ["PREVIEW_RULES", "preview"]


# The rules with a budget, from the one that assumes least.
PREVIEW_RULES = ("strict", "capped", "paper")
SHARES = (0.05, 0.25, 0.5)
MOST_ETAS = 100
MOST_VISITS = 10**6
# Pricing a proposal takes about as long as sorting the states; beyond this much, a sample of episodes is
# replayed.
MOST_PRICING = 40_000_000
PRICING_ANYWAY = 100

LEANS_ON = {
    "strict": "the bounds alone: every charge fits into the budget before the step is taken",
    "capped": "the bounds, and that no true gap of a baseline exceeds the step bound, {bound}",
    "paper": "the bounds, and Assumption 2.3: no true gap of any policy exceeds eta / 2, since the ledger "
    "itself may end above eta",
    "unlimited": "nothing: it keeps no budget",
    "closed": "nothing: it never explores",
}


def preview(
    log: Log,
    *,
    etas: Iterable[float],
    horizon: int | None = None,
    discount: float = 1.0,
    reward_low: float | None = None,
    reward_high: float | None = None,
    n_states: int | None = None,
    n_actions: int | None = None,
    value_cap: float | None = None,
    support: int | None = None,
    allowed: str = "all",
    prior: ArrayLike | str | None = None,
    bonus: str = "kl",
    bonus_scale: float = 1.0,
    delta: float = 0.1,
    max_episodes: int | None = None,
    charge: str = "coupled",
    rules: Iterable[str] = PREVIEW_RULES,
    step_bound: float | None = None,
    after_refusal: str | None = None,
    holdout: float = 0.0,
    more_visits: int = 100,
    progress: Callable[[int, int], None] | None = None,
) -> Preview:
    """Return what an exploration budget would buy, from logged decisions alone.

    The log becomes what an agent would know before its first episode: counts with bounds, the baseline, an
    optimistic explorer, and the charges of its proposals. Then the logged episodes' states are replayed: at
    every step the explorer's proposal is put to `authorise` with the ledger of its episode. No truth and no
    simulation enter; had the explorer acted, other states would have followed. Chains are left out: at every
    step there is something to propose.

    Args:
        log: The logged decisions.
        etas: Budgets of an episode, in the user's reward units, finite and >= 0.
        horizon: The number H of steps of an episode; the longest logged one by default.
        discount: gamma, in (0, 1].
        reward_low: The lowest reward there can be; the lowest seen by default.
        reward_high: The highest reward there can be; the highest seen by default.
        n_states: The number of states; those seen by default.
        n_actions: The number of actions; those seen by default.
        value_cap: The most an episode can be expected to return, where rewards start at 0.
        support: How many different states can follow a state and an action; any by default.
        allowed: `all` allows every action everywhere, `seen` those that the log has seen in a state.
        prior: What decides the baseline's ties: None for the lowest number, `logged` for the action logged
            most often in a state, or a policy, (S,) actions or (S, A) probabilities.
        bonus: The family of bounds: kl, l1, hoeffding or bernstein.
        bonus_scale: A factor on the bonus.
        delta: The probability with which the bounds may fail.
        max_episodes: How many episodes are to come; all families but kl need it.
        charge: What a step is charged: paper, coupled or difference.
        rules: Which rules to try.
        step_bound: The largest true gap that rule `capped` assumes, in the user's units; eta / 2 by default.
        after_refusal: `pause` or `close`; the agent's own default if None.
        holdout: The share of episodes, the last ones, that is replayed without being learnt from; 0 replays
            all and learns from all.
        more_visits: How many further visits to a pair are supposed when asking which data would help.
        progress: Called with what is done and what there is to do.

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
    if not isinstance(log, Log):
        raise InvalidSetting(
            f"'log' must be a Log, got {type(log).__name__}. Use read_log or Log.from_arrays."
        )
    budgets = _budgets(etas)
    names, largest_gap = _rules(rules, step_bound)
    share = check_real("holdout", holdout, low=0.0, high=1.0, open_high=True)
    added = check_integer("more_visits", more_visits, minimum=1)
    if added > MOST_VISITS:
        raise InvalidSetting(f"'more_visits' must not exceed {MOST_VISITS}, got {added}.")
    scale_of_bonus = check_real("bonus_scale", bonus_scale, low=0.0, open_low=True, open_high=True)
    failing = check_real("delta", delta, low=0.0, high=1.0, open_low=True, open_high=True)
    options: dict[str, Any] = {
        "bonus": bonus,
        "bonus_scale": scale_of_bonus,
        "delta": failing,
        "charge": charge,
    }

    def spec_of(rule: str, eta: float) -> CharyUCBVI:
        return CharyUCBVI(
            eta=eta, rule=rule, step_bound=bound_of(rule, eta), after_refusal=after_refusal, **options
        )

    def bound_of(rule: str, eta: float) -> float | None:
        # With no budget at all a step is afforded if it is free, whatever the bound.
        return None if rule != "capped" else largest_gap if largest_gap is not None else (eta / 2 or 1.0)

    specs = {(rule, eta): spec_of(rule, eta) for rule in names for eta in budgets}
    any_spec = specs[names[0], budgets[0]]
    if max_episodes is not None:
        check_integer("max_episodes", max_episodes, minimum=1)
    elif any_spec.bounds.needs_episodes:
        raise InvalidSetting(
            f"'max_episodes' must be declared with bonus {bonus!r}, got None. Bonus 'kl' needs none."
        )
    done = 0

    def report() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(min(done, MOST_PAIRS + 4), MOST_PAIRS + 4)

    problem = make_problem(
        log,
        horizon=horizon,
        discount=discount,
        reward_low=reward_low,
        reward_high=reward_high,
        n_states=n_states,
        n_actions=n_actions,
        value_cap=value_cap,
        support=support,
        allowed=allowed,
    )
    setting, span = problem.setting, problem.setting.scale.span
    any_spec.check_problem(setting)
    learnt, held = _split(problem, share)
    ties, ties_called = make_prior(prior, problem.log, learnt & problem.real, setting)
    report()
    read = np.flatnonzero(learnt)
    knowledge = learn_log(problem.log, read, setting, any_spec.bounds, max_episodes=max_episodes)
    report()
    plan = TabularPlan(setting, knowledge, ties, charge=charge)
    kind, worth, explorer = classify(setting, knowledge, ties)
    logged = _steps_of(problem, held)
    known = know_baseline(kind, worth, Cells.of(logged, setting.n_states))
    steps, sampled = _sampled(logged, explorer != plan.arrays.baseline)
    cells = Cells.of(steps, setting.n_states)
    proposals = explorer[cells.t, cells.state]
    differs = proposals != plan.arrays.baseline[cells.t, cells.state]
    cost = price(plan, cells, proposals)
    report()
    twice = learn_log(problem.log, np.tile(read, 2), setting, any_spec.bounds, max_episodes=max_episodes)
    doubled = price(TabularPlan(setting, twice, ties, charge=charge), cells, proposals)
    lanes = lanes_of(steps, cost[cells.of_step], differs[cells.of_step])
    outcomes = [
        _outcome(spec, play(lanes, spec.resolved_rule(span), eta / span), span)
        for (_, eta), spec in specs.items()
    ]
    curves, thresholds = [], []
    for rule in names:
        curve, some = _against_eta(rule, budgets, spec_of, lanes, span)
        curves.append(curve)
        thresholds += some
    report()
    helpful, helpful_note = rank_pairs(
        setting, knowledge, plan, ties, cells, proposals, cost, kind=charge, added=added, progress=report
    )
    if progress is not None:
        progress(MOST_PAIRS + 4, MOST_PAIRS + 4)
    notes = [*problem.notes, *_notes(sampled, share, known.tied, ties_called, names, largest_gap)]
    return Preview(
        basis=Basis(
            episodes=log.n_episodes,
            steps=log.n_transitions,
            learnt_episodes=int((learnt & (problem.log.t == 0)).sum()),
            learnt_steps=int((learnt & problem.real).sum()),
            replayed_episodes=lanes.episodes,
            replayed_steps=lanes.steps,
            states=setting.n_states,
            actions=setting.n_actions,
            pairs=setting.n_pairs,
            pairs_seen=int((knowledge.rows.total > 0).sum()),
            horizon=setting.horizon,
            discount=float(setting.discount),
            reward_low=setting.scale.low,
            reward_high=setting.scale.high,
            value_cap=None if value_cap is None else float(value_cap),
            support=support,
            allowed=allowed,
            prior=ties_called,
            bonus=bonus,
            bonus_scale=scale_of_bonus,
            delta=failing,
            max_episodes=max_episodes,
            charge=charge,
        ),
        notes=tuple(notes),
        baseline=known,
        charges=charges_of(cost, doubled, differs, cells, span),
        outcomes=tuple(outcomes),
        curves=tuple(curves),
        thresholds=tuple(thresholds),
        rules=tuple(_basis_of(rule, specs[rule, budgets[0]].standing, largest_gap) for rule in names),
        helpful=helpful,
        helpful_note=helpful_note,
    )


def _budgets(etas: Iterable[float]) -> list[float]:
    rule = "'etas' must be a list of budgets"
    if isinstance(etas, (str, bytes)):
        raise InvalidSetting(f"{rule}, got {etas!r}.")
    try:
        given = list(etas)
    except TypeError as problem:
        raise InvalidSetting(f"{rule}, got {etas!r}. Put it into brackets: [{etas!r}].") from problem
    if not 1 <= len(given) <= MOST_ETAS:
        raise InvalidSetting(f"{rule}, 1 to {MOST_ETAS} of them, got {len(given)}.")
    way_out = "Rule 'unlimited' has no budget."
    checked = {
        check_real("eta", eta, low=0.0, high=math.inf, open_high=True, way_out=way_out) for eta in given
    }
    return sorted(checked)


def _rules(rules: Iterable[str], step_bound: float | None) -> tuple[list[str], float | None]:
    """Return the rules' names and the step bound of `capped`, checked."""
    try:
        given = [rules] if isinstance(rules, str) else list(rules)
        names = list(dict.fromkeys(check_choice("rule", rule, RULES) for rule in given))
    except TypeError as problem:
        raise InvalidSetting(f"'rules' must be a list of names, got {rules!r}.") from problem
    if not names:
        raise InvalidSetting(
            f"'rules' must name one rule at least, got none. Choose from {', '.join(RULES)}."
        )
    if step_bound is None:
        return names, None
    if "capped" not in names:
        raise InvalidSetting(
            f"'step_bound' belongs to rule 'capped' alone, got {step_bound!r} with {', '.join(names)}. Leave "
            "it out."
        )
    return names, check_real("step_bound", step_bound, low=0.0, open_low=True, open_high=True)


def _split(problem: Problem, share: float) -> tuple[Bools, Bools]:
    """Return which rows are learnt from and which replayed, (N,): all, or the last episodes held out."""
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


def _steps_of(problem: Problem, held: Bools) -> Steps:
    """Return the steps that may be replayed, episodes numbered 0, 1, 2, ..."""
    t, state = problem.log.t[held], problem.log.state[held]
    return Steps(t, state, np.cumsum(t == 0) - 1)


def _sampled(steps: Steps, differs: Bools) -> tuple[Steps, int | None]:
    """Return the steps to replay, and of how many episodes where those are a sample.

    A sample is spread evenly over the log, never drawn: the same log gives the same one. `differs`, (H, S),
    says where the explorer differs from the baseline, which is what takes time.
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
    some = Steps(steps.t[keep], steps.state[keep], steps.episode[keep] // every)
    return some, None if every == 1 else -(-episodes // every)


def _outcome(spec: CharyUCBVI, played: Played, span: float) -> Outcome:
    assert spec.eta is not None
    return Outcome(
        rule=spec.rule,
        eta=spec.eta,
        step_bound=spec.step_bound,
        standing=spec.standing,
        explored=played.explored,
        deviating=played.deviating,
        episodes_deviating=played.episodes_deviating,
        charge_per_step=played.per_step * span,
        charge_per_episode=played.per_episode * span,
        episodes_over_eta=played.over,
    )


def _against_eta(
    rule: str,
    budgets: Sequence[float],
    spec_of: Callable[[str, float], CharyUCBVI],
    lanes: Lanes,
    span: float,
) -> tuple[Curve, list[Threshold]]:
    """Return the shares explored against the budget, and the budgets that buy some of them."""
    seen: dict[float, Played] = {}

    def at(eta: float) -> Played:
        if eta not in seen:
            seen[eta] = play(lanes, spec_of(rule, eta).resolved_rule(span), eta / span)
        return seen[eta]

    # Rule paper affords while the ledger is at most eta / 2.
    grid = [eta * span for eta in grid_of(lanes, 2.0 if rule == "paper" else 1.0)]
    drawn = sorted({*grid, *budgets})
    curve = Curve(
        rule=rule,
        eta=tuple(drawn),
        explored=tuple(at(eta).explored for eta in drawn),
        deviating=tuple(at(eta).deviating for eta in drawn),
    )
    apart = sum(int(differs.sum()) for differs in lanes.differs) / lanes.steps
    thresholds = [
        Threshold(
            rule=rule,
            share=share,
            eta_explored=smallest_eta(grid, lambda eta: at(eta).explored, share),
            eta_deviating=smallest_eta(grid, lambda eta: at(eta).deviating, share * apart) if apart else None,
        )
        for share in SHARES
    ]
    return curve, thresholds


def _basis_of(rule: str, standing: str, step_bound: float | None) -> RuleBasis:
    bound = "eta / 2 here" if step_bound is None else f"{step_bound:g}"
    return RuleBasis(rule=rule, standing=standing, leans_on=LEANS_ON[rule].format(bound=bound))


def _notes(
    sampled: int | None, share: float, tied: float, prior: str, rules: Sequence[str], step_bound: float | None
) -> list[str]:
    notes = []
    if sampled is not None:
        notes.append(f"To save time, {sampled:,} of the episodes were replayed, evenly spread over the log.")
    if share:
        notes.append(f"The last {100 * share:g} % of the episodes were replayed and not learnt from.")
    else:
        notes.append(
            "The states replayed are those that were learnt from: new episodes will meet less familiar "
            "ones. With --holdout 0.2 the last fifth is replayed without being learnt from."
        )
    if tied > 0 and prior == "none":
        notes.append(
            "Where data cannot tell, the lowest-numbered action is the baseline. With --prior logged it is "
            "the one logged most often."
        )
    if "capped" in rules and step_bound is None:
        notes.append("Rule capped was tried with a step bound of eta / 2, what rule paper assumes.")
    return notes
