"""The result of a preview: plain values, and sentences for readers who do not know the theory."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from chary.standing import Standing


@dataclass(frozen=True, slots=True, kw_only=True)
class Basis:
    """The basis of a preview: the log, and what was declared or read off it.

    Rewards, budgets and charges are in the user's units everywhere, which `unit` names. `learnt_*` are the
    episodes and steps that bounds come from, `replayed_*` those whose states were replayed; `pairs` are
    allowed state-action pairs and `pairs_seen` those learnt from. `baseline` is the role of the user's own
    policy, if one was given. `inferred` is what was read off the log and not declared, in words;
    `state_labels` and `action_labels` are the texts of states and actions, where there are any, and
    `first_step` is the number that the user gives the first step of an episode.
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
    reward: str = "estimated"
    baseline: str | None = None
    unit: str = ""
    inferred: tuple[str, ...] = ()
    state_labels: tuple[str, ...] = ()
    action_labels: tuple[str, ...] = ()
    first_step: int = 0


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
class Gap:
    """What one step loses compared with the baseline, as posterior worlds estimate it; 0 where it is better.

    `gap` has its mean and the interval with 95 % of the worlds; `surely` is exceeded in all worlds but a
    share of them, the risk.
    """

    t: int
    state: int
    action: int
    gap: CredibleValue
    surely: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBound:
    """A step bound compared with the log: the largest gap that rule `capped` or `paper` assumes.

    Args:
        bound: The step bound.
        refuted: Whether some action that was tried loses more, in all worlds but a share `risk`.
        refuting: The number of steps, states and actions of which this is so.
        compared: The number of those that were compared: states as logged, actions that were tried there.
        above: The share of them whose mean gap is above the bound.
        worst: The one whose gap is most surely the largest; None where nothing could be compared.
    """

    bound: float
    refuted: bool
    refuting: int
    compared: int
    above: float
    worst: Gap | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What to do: one sentence, and one configuration.

    Args:
        sentence: The verdict.
        explores: Whether the configuration would try another action at the logged states.
        agent: The options of `CharyUCBVI` that are recommended.
        standing: The standing of its promise, once the setting in `python` is declared as it stands there.
        outcome: What it would buy on the replayed states.
        gain: With posterior worlds, the value of the baseline less that of today's policy.
        python: The configuration as a program.
        toml: The configuration as an algorithm of an experiment.
        cli: The command to call next: calibrate on siblings of the log or, with proved bounds, plan again on
            held-out episodes.
    """

    sentence: str
    explores: bool
    agent: dict[str, Any]
    standing: Standing
    outcome: BudgetOutcome
    gain: CredibleValue | None
    python: str
    toml: str
    cli: str


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
        verdict: One recommended configuration.
        step_bounds: The step bounds of rules capped and paper, compared with the log.
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
    verdict: Verdict
    step_bounds: tuple[StepBound, ...] = ()
    credible: Credible | None = None

    def summary(self) -> dict[str, Any]:
        """Return everything as plain values for JSON, the sentences first."""
        values = {"sentences": list(self.sentences()), **asdict(self)}
        told = [each.standing for each in self.outcomes] + [each.standing for each in self.rules]
        told += [self.verdict.standing, self.verdict.outcome.standing]
        verdict = values["verdict"]
        places = [*values["outcomes"], *values["rules"], verdict, verdict["outcome"]]
        for value, standing in zip(places, told, strict=True):
            value["standing"] = standing.to_json()
        return values

    def sentences(self) -> tuple[str, ...]:
        """Return the findings in plain words, the verdict first."""
        from chary.preview.sentences import sentences_of

        return sentences_of(self)

    def refuted(self, outcome: BudgetOutcome) -> StepBound | None:
        """Return the step bound that the rule of an outcome assumes, if the log refutes it."""
        bound = outcome.eta / 2 if outcome.rule == "paper" else outcome.step_bound
        return next((each for each in self.step_bounds if each.bound == bound and each.refuted), None)
