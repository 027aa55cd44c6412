"""A preview in plain words, for readers who do not know the theory."""

from __future__ import annotations

from collections.abc import Sequence

from chary.preview.result import BudgetOutcome, Preview, StepBound
from chary.preview.words import amount, budget, interval, listed, pair_name, percent, step_name

# The largest number of sentences about budgets.
MOST_TOLD = 4


def sentences_of(found: Preview) -> tuple[str, ...]:
    """Return the findings as sentences, the verdict first."""
    basis, known = found.basis, found.baseline
    part = basis.replayed_episodes < basis.episodes
    whose = f"Of {basis.replayed_episodes:,} episodes the" if part else "Their"
    first = [outcome for outcome in found.outcomes if outcome.rule == found.rules[0].rule]
    if len(first) > MOST_TOLD:
        # The smallest, the middle and the largest budget.
        first = [first[0], first[len(first) // 2], first[-1]]
    best = "known to be the best" if found.credible is None else f"the best in {_sure(found)} of the worlds"
    return (
        found.verdict.sentence,
        f"The log contains {basis.episodes:,} episodes with {basis.steps:,} decisions. {whose} states "
        "were replayed; nothing was simulated, and the true values are unknown.",
        f"The baseline is the policy without exploring. At {percent(known.best)} of the logged decisions "
        f"its action is {best}, at {percent(known.chosen)} the data prefer it without "
        "excluding the others"
        + ("" if found.credible else f", at {percent(known.tied)} the data do not decide")
        + (f", and at {percent(known.only)} there is no choice" if known.only else "")
        + f". In {known.states_best:,} of {known.states:,} states it is {best} at every "
        "logged step.",
        *_about_today(found),
        _about_charges(found),
        *(_about(found, each) for each in first),
        *_about_thresholds(found),
        *_about_bounds(found, found.step_bounds),
        *_about_data(found),
    )


def _sure(found: Preview) -> str:
    """Return the share of worlds that makes a fact known, in words."""
    return percent(1.0 - (found.basis.risk or 0.0))


def _about_today(found: Preview) -> list[str]:
    told, unit = found.credible, found.basis.unit
    if told is None:
        return []
    policy = "the action logged most often in each state" if told.today == "logged" else "the one given"
    return [
        f"Today's policy, {policy}, is worth {interval(told.today_value, unit)} per episode; the logged "
        f"episodes returned {amount(told.observed, unit)} on average. The baseline that the worlds learnt is "
        f"worth {interval(told.baseline_value, unit)}: a gain of {interval(told.gain, unit)}, above 0 in "
        f"{percent(told.better)} of {told.worlds} worlds. Intervals contain 95 % of the worlds."
    ]


def _about_charges(found: Preview) -> str:
    charges, unit = found.charges, found.basis.unit
    if charges.mean_differing is None:
        return (
            "The explorer never differs from the baseline at these states: either everything is known, "
            "or so little that both take the lowest-numbered action."
        )
    if charges.overall[-1] == 0:
        return (
            f"At {percent(charges.differing)} of the decisions the explorer would try another action "
            "than the baseline, always without a charge."
        )
    return (
        f"At {percent(charges.differing)} of the decisions the explorer would try another action than "
        f"the baseline. Such a step is charged {amount(charges.mean_differing, unit, digits=3)} on average, "
        f"from {amount(charges.overall[0], digits=3)} to {amount(charges.overall[-1], digits=3)}: an upper "
        "bound on its expected cost"
        + (", given the data." if found.credible is None else f" in {_sure(found)} of the worlds.")
    )


def _about(found: Preview, outcome: BudgetOutcome) -> str:
    unit = found.basis.unit
    eta = budget(outcome.eta, unit)
    if found.charges.differing == 0:
        return f"With a budget of {eta} per episode there is nothing to try."
    if outcome.deviating == 0:
        dear = found.charges.overall[0] if found.charges.overall else 0.0
        return (
            f"With a budget of {eta} per episode, rule {outcome.rule} would allow no such "
            f"step: the cheapest is charged {amount(dear, unit, digits=3)}."
        )
    return (
        f"With a budget of {eta} per episode, rule {outcome.rule} would allow another action "
        f"at {percent(outcome.deviating)} of the decisions, in {percent(outcome.episodes_deviating)} of "
        f"the episodes, and book {amount(outcome.charge_per_episode, unit, digits=3)} per episode on average"
        + (
            "."
            if outcome.expected_loss is None
            else f", with an expected loss of {amount(outcome.expected_loss, unit, digits=3)}."
        )
    )


def _about_thresholds(found: Preview) -> list[str]:
    if not found.charges.differing:
        return []
    rule, unit = found.rules[0].rule, found.basis.unit
    told = [each for each in found.thresholds if each.rule == rule and each.eta_deviating is not None]
    if not told:
        return []
    parts = [
        f"{amount(each.eta_deviating or 0.0, unit, digits=3)} for {percent(each.share)}" for each in told
    ]
    return [
        f"To allow the explorer's action where it differs, rule {rule} needs a budget of "
        f"{listed(parts)} of those decisions."
    ]


def warnings_of(found: Preview) -> tuple[str, ...]:
    """Return a sentence on refuted step bounds that were declared or that a rule relies on."""
    usual = {each.eta / 2 for each in found.outcomes}
    relied = [found.refuted(each) for each in found.outcomes]
    return _about_bounds(
        found, [each for each in found.step_bounds if each.bound not in usual or each in relied]
    )


def _about_bounds(found: Preview, bounds: Sequence[StepBound]) -> tuple[str, ...]:
    """Return a sentence on all bounds that the log refutes, with what the largest one does not cover."""
    refuted = sorted((each for each in bounds if each.refuted), key=lambda each: each.bound)
    if not refuted:
        return ()
    basis, unit, largest = found.basis, found.basis.unit, refuted[-1]
    worst = largest.worst
    assert worst is not None
    named = listed([budget(each.bound) for each in refuted[:-1]] + [budget(largest.bound, unit)])
    what = "a step bound" if len(refuted) == 1 else "step bounds"
    beyond = "more than it" if len(refuted) == 1 else f"more than {budget(largest.bound, unit)}"
    return (
        f"The log refutes {what} of {named}, as rule capped or paper would assume: "
        f"{pair_name(basis, worst.state, worst.action)} at step {step_name(basis, worst.t)} loses "
        f"{interval(worst.gap, unit)} compared with the baseline, and {largest.refuting:,} of "
        f"{largest.compared:,} steps, states and actions that were compared lose {beyond}. These rules would "
        "keep their ledgers, and not the budget.",
    )


def _about_data(found: Preview) -> list[str]:
    told, charges, unit = [], found.charges, found.basis.unit
    if charges.mean_differing and charges.mean_doubled is not None:
        told.append(
            "Twice as much data of the same kind would change the mean charge of a differing step from "
            f"{amount(charges.mean_differing, unit, digits=3)} to {amount(charges.mean_doubled, digits=3)}."
        )
    if found.helpful:
        best = found.helpful[0]
        pair = pair_name(found.basis, best.state, best.action)
        told.append(
            f"Of single actions, {best.added:,} more tries of {pair} would help most: the mean of the "
            f"compared charges would fall from {amount(best.charge_before, unit, digits=3)} to "
            f"{amount(best.charge_after, digits=3)}."
        )
    elif charges.mean_differing and found.credible is None:
        told.append("More tries of a single action in a single state would not lower the charges noticeably.")
    return told
