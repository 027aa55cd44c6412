"""The result of a preview: plain values, and sentences for readers who do not know the theory."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from chary.standing import Standing

# A share below this is not shown as a number.
NEXT_TO_NOTHING = 5e-4
# The largest number of sentences about budgets.
MOST_TOLD = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Basis:
    """The basis of a preview: the log, and what was declared or read off it.

    Rewards, budgets and charges are in the user's units everywhere. `learnt_*` are the episodes and steps
    that bounds come from, `replayed_*` those whose states were replayed; `pairs` are allowed state-action
    pairs and `pairs_seen` those learnt from.
    """

    episodes: int
    steps: int
    learnt_episodes: int
    learnt_steps: int
    replayed_episodes: int
    replayed_steps: int
    states: int
    actions: int
    pairs: int
    pairs_seen: int
    horizon: int
    discount: float
    reward_low: float
    reward_high: float
    value_cap: float | None
    support: int | None
    allowed: str
    prior: str
    bonus: str
    bonus_scale: float
    delta: float
    max_episodes: int | None
    charge: str
    worlds: int | None = None
    world_prior: str | None = None
    kappa: float | None = None
    pessimism: float | None = None
    risk: float | None = None
    seed: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StageKnowledge:
    """Knowledge about the baseline at step `t`: shares of the `steps` logged there."""

    t: int
    steps: int
    best: float
    chosen: float
    tied: float
    only: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineKnowledge:
    """Knowledge about the baseline's actions at the logged steps, as shares of them that sum to 1.

    With a holdout, those are the steps held out; if a sample is replayed, still all of them.

    Args:
        best: Known to be best: the lower bound of the baseline's action is above the upper bound of every
            other allowed one, so that none can be better if the bounds hold.
        chosen: Preferred by the data: its lower bound is above every other lower bound, but not above every
            upper one.
        tied: No information: another action has the same lower bound, and the prior or the lowest number
            decides.
        only: No choice: one action is allowed.
        worth_something: The share of steps at which the lower bound exceeds the lowest reward at every
            remaining step.
        states: The number of states in which these steps start.
        states_best: The number of those in which the baseline is known to be best at every logged step.
        by_stage: The same shares for each step of an episode.
    """

    best: float
    chosen: float
    tied: float
    only: float
    worth_something: float
    states: int
    states_best: int
    by_stage: tuple[StageKnowledge, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Charges:
    """The charges of the explorer's proposals at the replayed steps, whether allowed or not.

    Args:
        differing: The share of steps at which the explorer's action differs from the baseline's.
        mean: The mean charge per step; where both agree it is 0 (except with charge `paper`).
        mean_differing: The mean over the differing proposals; None if there are none.
        mean_doubled: The same with twice the data: every logged step seen once more.
        levels: Quantile levels from 0 to 1.
        overall: The quantiles of the differing proposals' charges at these levels; empty if there are none.
        at_start: The same for t = 0 alone.
    """

    differing: float
    mean: float
    mean_differing: float | None
    mean_doubled: float | None
    levels: tuple[float, ...]
    overall: tuple[float, ...]
    at_start: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetOutcome:
    """The steps that one rule allows on the replayed states with one budget.

    Args:
        rule: The rule's name.
        eta: The budget of every episode.
        step_bound: The largest true gap that rule `capped` assumes.
        standing: The standing of the guarantee.
        explored: The share of steps at which exploring is allowed, including those where it changes nothing.
        deviating: The share of steps at which it is allowed and differs from the baseline.
        episodes_deviating: The share of episodes with at least one such step.
        charge_per_step: The mean charge booked per step.
        charge_per_episode: The mean charge booked per episode.
        episodes_over_eta: The share of episodes in which more than eta was booked: there the guarantee
            depends on the rule's assumption alone.
        expected_loss: With posterior worlds, the mean over worlds of the deficit of an episode.
        exceeding: With posterior worlds, the mean share of worlds in which an episode exceeds eta.
    """

    rule: str
    eta: float
    step_bound: float | None
    standing: Standing
    explored: float
    deviating: float
    episodes_deviating: float
    charge_per_step: float
    charge_per_episode: float
    episodes_over_eta: float
    expected_loss: float | None = None
    exceeding: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CredibleValue:
    """A number that differs between worlds: its mean, and the interval with 95 % of the worlds."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """An action that explorers propose in a state and the largest budget allows.

    Args:
        state: The state.
        action: The explorer's action.
        baseline: The baseline's action, at the step where it was proposed most often.
        steps: The number of replayed steps at which it was allowed.
        gap: The mean over worlds of the loss of one such step, at most; 0 in worlds where it is better.
        better: The share of worlds in which it is at least as good as the baseline's action.
    """

    state: int
    action: int
    baseline: int
    steps: int
    gap: float
    better: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Credible:
    """What posterior worlds think of today's policy and of the learnt baseline, per episode.

    Args:
        today: Today's policy: `logged`, the action logged most often in each state, or the one `given`.
        worlds: The number of worlds.
        observed: The mean return of the logged episodes that were learnt from.
        today_value: The value of today's policy, mean over the logged first states.
        baseline_value: The value of the learnt baseline.
        gain: The value of the baseline less that of today's policy, world by world.
        better: The share of worlds in which the baseline is better.
        proposals: What the largest budget allows, by the first rule; the most frequent first.
    """

    today: str
    worlds: int
    observed: float
    today_value: CredibleValue
    baseline_value: CredibleValue
    gain: CredibleValue
    better: float
    proposals: tuple[Proposal, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Shares of steps explored and deviating against the budget, for one rule."""

    rule: str
    eta: tuple[float, ...]
    explored: tuple[float, ...]
    deviating: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """The smallest budget found that allows a share, to within 1 %; 0 if any budget does.

    `eta_explored` is for that share of all steps; `eta_deviating` for that share of the steps at which the
    explorer differs from the baseline. None if no budget tried does.
    """

    rule: str
    share: float
    eta_explored: float | None
    eta_deviating: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleBasis:
    """The standing of a rule, and with it all that the guarantee leans on."""

    rule: str
    standing: Standing


@dataclass(frozen=True, slots=True, kw_only=True)
class HelpfulPair:
    """A state-action pair, and the effect of `added` more visits to it.

    Args:
        state: The state.
        action: The action.
        role: Whether it is the `explorer`'s action there, the `baseline`'s, or `both` at different steps.
        visits: The number of times it was seen.
        added: The number of visits assumed.
        supposed: The source of their outcomes: `its own` seen ones in the same proportions or, for a pair
            never seen, those of the `other actions` in that state.
        charge_before: The mean charge of the differing proposals compared, weighted by visits.
        charge_after: The same with these visits.
    """

    state: int
    action: int
    role: str
    visits: int
    added: int
    supposed: str
    charge_before: float
    charge_after: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """The result of a preview: what a budget allows, from logs alone; see `chary.preview.preview`.

    Args:
        basis: The log, and what was declared.
        notes: The assumptions behind the numbers, one sentence each.
        baseline: The knowledge about the baseline.
        charges: The charges of the explorer's proposals.
        outcomes: One for every rule and budget.
        curves: One for every rule.
        thresholds: Budgets that allow 5, 25 and 50 % of the steps.
        rules: The standing of each rule.
        helpful: Pairs whose visits would lower the charges most, the best first.
        helpful_note: The method by which those were found.
        credible: With posterior worlds, what they think of today's policy and of the baseline.
    """

    basis: Basis
    notes: tuple[str, ...]
    baseline: BaselineKnowledge
    charges: Charges
    outcomes: tuple[BudgetOutcome, ...]
    curves: tuple[Curve, ...]
    thresholds: tuple[Threshold, ...]
    rules: tuple[RuleBasis, ...]
    helpful: tuple[HelpfulPair, ...]
    helpful_note: str
    credible: Credible | None = None

    def summary(self) -> dict[str, Any]:
        """Return everything as plain values for JSON, the sentences first."""
        values = {"sentences": list(self.sentences()), **asdict(self)}
        promises = [*(each.standing for each in self.outcomes), *(each.standing for each in self.rules)]
        for value, standing in zip([*values["outcomes"], *values["rules"]], promises, strict=True):
            value["standing"] = standing.to_json()
        return values

    def sentences(self) -> tuple[str, ...]:
        """Return the findings in plain words."""
        basis, known = self.basis, self.baseline
        part = basis.replayed_episodes < basis.episodes
        whose = f"Of {basis.replayed_episodes:,} episodes the" if part else "Their"
        first = [outcome for outcome in self.outcomes if outcome.rule == self.rules[0].rule]
        if len(first) > MOST_TOLD:
            # The smallest, the middle and the largest budget.
            first = [first[0], first[len(first) // 2], first[-1]]
        best = (
            "known to be the best" if self.credible is None else f"the best in {self._sure()} of the worlds"
        )
        return (
            f"The log contains {basis.episodes:,} episodes with {basis.steps:,} decisions. {whose} states "
            "were replayed; nothing was simulated, and the true values are unknown.",
            f"The baseline is the policy without exploring. At {percent(known.best)} of the logged decisions "
            f"its action is {best}, at {percent(known.chosen)} the data prefer it without "
            "excluding the others"
            + ("" if self.credible else f", at {percent(known.tied)} the data do not decide")
            + (f", and at {percent(known.only)} there is no choice" if known.only else "")
            + f". In {known.states_best:,} of {known.states:,} states it is {best} at every "
            "logged step.",
            *self._about_today(),
            self._about_charges(),
            *map(self._about, first),
            *self._about_thresholds(),
            *self._about_data(),
        )

    def _sure(self) -> str:
        """Return the share of worlds that makes a fact known, in words."""
        return percent(1.0 - (self.basis.risk or 0.0))

    def _about_today(self) -> list[str]:
        told = self.credible
        if told is None:
            return []
        policy = "the action logged most often in each state" if told.today == "logged" else "the one given"
        return [
            f"Today's policy, {policy}, is worth {_credible(told.today_value)} per episode; the logged "
            f"episodes returned {told.observed:.4g} on average. The baseline that the worlds learnt is worth "
            f"{_credible(told.baseline_value)}: a gain of {_credible(told.gain)}, above 0 in "
            f"{percent(told.better)} of {told.worlds} worlds. Intervals contain 95 % of the worlds."
        ]

    def _about_charges(self) -> str:
        charges = self.charges
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
            f"the baseline. Such a step is charged {charges.mean_differing:.3g} on average, from "
            f"{charges.overall[0]:.3g} to {charges.overall[-1]:.3g}: an upper bound on its expected cost"
            + (", given the data." if self.credible is None else f" in {self._sure()} of the worlds.")
        )

    def _about(self, outcome: BudgetOutcome) -> str:
        if self.charges.differing == 0:
            return f"With a budget of {outcome.eta:g} per episode there is nothing to try."
        if outcome.deviating == 0:
            dear = self.charges.overall[0] if self.charges.overall else 0.0
            return (
                f"With a budget of {outcome.eta:g} per episode, rule {outcome.rule} would allow no such "
                f"step: the cheapest is charged {dear:.3g}."
            )
        return (
            f"With a budget of {outcome.eta:g} per episode, rule {outcome.rule} would allow another action "
            f"at {percent(outcome.deviating)} of the decisions, in {percent(outcome.episodes_deviating)} of "
            f"the episodes, and book {outcome.charge_per_episode:.3g} per episode on average"
            + (
                "."
                if outcome.expected_loss is None
                else f", with an expected loss of {outcome.expected_loss:.3g}."
            )
        )

    def _about_thresholds(self) -> list[str]:
        if not self.charges.differing:
            return []
        rule = self.rules[0].rule
        found = [each for each in self.thresholds if each.rule == rule and each.eta_deviating is not None]
        if not found:
            return []
        parts = [f"{each.eta_deviating:.3g} for {percent(each.share)}" for each in found]
        return [
            f"To allow the explorer's action where it differs, rule {rule} needs a budget of "
            f"{_listed(parts)} of those decisions."
        ]

    def _about_data(self) -> list[str]:
        told, charges = [], self.charges
        if charges.mean_differing and charges.mean_doubled is not None:
            told.append(
                "Twice as much data of the same kind would change the mean charge of a differing step from "
                f"{charges.mean_differing:.3g} to {charges.mean_doubled:.3g}."
            )
        if self.helpful:
            best = self.helpful[0]
            told.append(
                f"Of single actions, {best.added} more tries of action {best.action} in state {best.state} "
                "would help most: the mean of the compared charges would fall from "
                f"{best.charge_before:.3g} to {best.charge_after:.3g}."
            )
        elif charges.mean_differing and self.credible is None:
            told.append(
                "More tries of a single action in a single state would not lower the charges noticeably."
            )
        return told


def percent(share: float) -> str:
    """Return a share as a text for a sentence.

    Example:
        >>> percent(0.0), percent(0.00012), percent(0.034), percent(0.5), percent(0.9999), percent(1.0)
        ('0 %', 'under 0.1 %', '3.4 %', '50 %', 'over 99.9 %', '100 %')
    """
    if 0 < share < NEXT_TO_NOTHING:
        return "under 0.1 %"
    if 1 - NEXT_TO_NOTHING < share < 1:
        return "over 99.9 %"
    digits = 1 if share < 0.1 or share > 0.9 else 0
    text = f"{100 * share:.{digits}f}"
    return f"{text.removesuffix('.0')} %"


def _credible(value: CredibleValue) -> str:
    """Return a number with its interval.

    Example:
        >>> _credible(CredibleValue(mean=2.0, low=1.5, high=2.25))
        '2 (1.5 to 2.25)'
    """
    return f"{value.mean:.4g} ({value.low:.4g} to {value.high:.4g})"


def _listed(parts: list[str]) -> str:
    """Return parts joined as in a sentence.

    Example:
        >>> _listed(["a"]), _listed(["a", "b", "c"])
        ('a', 'a, b and c')
    """
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
