"""The options of a preview: declarations about the log, the bounds, and the budgets and rules to try."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from numpy.typing import ArrayLike

from chary.agents.chary_ucbvi import CharyUCBVI
from chary.agents.protocol import POSTERIOR
from chary.data._columns import check_first_step
from chary.data._tables import checked_labels, checked_names
from chary.errors import InvalidSetting, check_choice, check_integer, check_real, check_seed, check_type
from chary.mdp.setting import Reward
from chary.model.beliefs import PRIORS
from chary.model.bounds import FAMILIES
from chary.planner._full import CHARGES
from chary.policies import ROLES, Policy
from chary.shield import AFTER_REFUSAL, RULES
from chary.texts import shown

# The rules with a budget, from the one that assumes least.
PREVIEW_RULES = ("strict", "capped", "paper")
ALLOWED = ("all", "seen")
# The options of the agents that explore, whatever their rule and budget.
SHARED = ("after_refusal", "bonus", "bonus_scale", "delta", "charge")
WORLDS = ("worlds", "world_prior", "kappa", "pessimism", "risk")
RISK: float = inspect.signature(CharyUCBVI).parameters["risk"].default
MOST_ETAS = 100
MOST_VISITS = 10**6
LONGEST_UNIT = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a log was read from, and how: the options of `read_log`.

    Args:
        name: The file.
        reading: The options of `read_log`, those at their defaults left out.
        discretiser: The file of a discretiser.
        cut: Whether endings by the clock were read as cuts.
        arguments: The same as arguments of a command.
    """

    name: str = "log.csv"
    reading: Mapping[str, Any] | None = None
    discretiser: str | Path | None = None
    cut: bool = False
    arguments: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PreviewOptions:
    """The options of `preview` and of `chary plan`.

    Args:
        etas: Budget per episode, in the log's reward units; repeat the option for several.
        horizon: Number of steps per episode, by default that of the longest logged one.
        discount: Discount gamma, in (0, 1].
        reward_low: Lowest possible reward, by default the lowest seen.
        reward_high: Highest possible reward, by default the highest seen.
        rewards: Known rewards, a file with the columns state, action, reward and perhaps next_state. In
            Python also a table or a function, as for `Setting.declare`.
        unit: Name of the unit of rewards, such as euros, for the sentences.
        n_states: Number of states, by default those seen.
        n_actions: Number of actions, by default those seen.
        value_cap: Upper bound on the expected return of an episode, where rewards start at 0.
        support: Number of states that can follow a state and an action, by default any.
        allowed: Whether all actions are allowed in a state, or those seen there.
        baseline: Today's policy, a file with the columns state, action and perhaps t. In Python anything that
            `OwnBaseline.declare` takes.
        role: Role of that policy, by default a floor: the baseline is today's policy, except where another
            action is better for all that is known.
        prior: Policy that decides ties of the baseline: none takes the lowest action, logged the most
            frequent one. In Python also (S,) actions or (S, A) probabilities.
        bonus: Posterior worlds or a family of confidence bounds, by default posterior, and kl with an option
            of bounds alone (rule capped or paper, a charge, a scale, the number of episodes).
        bonus_scale: Factor on the bonus.
        delta: Probability with which the bounds may fail.
        max_episodes: Number of episodes to come, which all families of bounds but kl need.
        charge: Formula for the charge of an exploring step, by default coupled; with posterior worlds.
        worlds: Number of posterior worlds that judge, >= 2.
        world_prior: Prior of posterior worlds: shrunk pools the actions of a state, flat pools nothing, and
            under auto the evidence of each pair decides.
        kappa: Weight, in observations, of the whole log in the prior shrunk, > 0.
        pessimism: Standard deviations over worlds by which the baseline discounts an action, >= 0.
        risk: Probability, in (0, 1), of exceeding the budget in an episode, given the prior of the worlds.
        seed: Random seed of the posterior worlds.
        rules: Rule to try, by default strict, capped and paper, with posterior strict alone; repeat the
            option for several.
        step_bound: Largest true gap assumed by rule capped, by default eta / 2; the log may refute it.
        after_refusal: Whether an episode may explore again after a refusal.
        holdout: Share of the episodes, the last ones, that is replayed but not learnt from.
        more_visits: Number of further visits assumed when comparing which data would help.
        columns: The names of columns that are called otherwise in the files of `baseline` and `rewards`.
        labels: The texts of states and actions in the files of `baseline` and `rewards`.
        first_step: The number of the first step in the file of `baseline`, 0 or 1.
        source: Where the log was read from, for what is ready to paste.
        progress: Called with the number of finished steps and of all steps.

    Raises:
        CharyError: if an option is out of range.
    """

    etas: Iterable[float]
    horizon: int | None = None
    discount: float = 1.0
    reward_low: float | None = None
    reward_high: float | None = None
    rewards: Annotated[Reward | str | Path | None, "FILE"] = None
    unit: str = ""
    n_states: int | None = None
    n_actions: int | None = None
    value_cap: float | None = None
    support: int | None = None
    allowed: Annotated[str, ALLOWED] = "all"
    baseline: Annotated[Policy | None, "FILE"] = None
    role: Annotated[str, ROLES] = "floor"
    prior: Annotated[ArrayLike | str | None, "none|logged"] = None
    bonus: Annotated[str | None, (POSTERIOR, *FAMILIES)] = None
    bonus_scale: float = 1.0
    delta: float = 0.1
    max_episodes: int | None = None
    charge: Annotated[str | None, (*CHARGES, "worlds")] = None
    worlds: int = 64
    world_prior: Annotated[str, PRIORS] = "auto"
    kappa: float = 100.0
    pessimism: float = 0.0
    risk: float = RISK
    seed: int = 0
    rules: Annotated[Iterable[str], RULES] = PREVIEW_RULES
    step_bound: float | None = None
    after_refusal: Annotated[str | None, AFTER_REFUSAL] = None
    holdout: float = 0.0
    more_visits: int = 100
    columns: Mapping[str, str] | None = None
    labels: Mapping[str, Sequence[str]] | None = None
    first_step: int = 0
    source: Source | None = None
    progress: Callable[[int, int], None] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "etas", _budgets(self.etas))
        if self.bonus is None:
            of_bounds = self.charge in CHARGES or self.bonus_scale != 1.0 or self.max_episodes is not None
            given = [self.rules] if isinstance(self.rules, str) else self.rules
            if given is not PREVIEW_RULES and isinstance(given, Iterable):
                object.__setattr__(self, "rules", given := list(given))
                of_bounds |= any(rule in ("capped", "paper") for rule in given)
            object.__setattr__(self, "bonus", "kl" if of_bounds else POSTERIOR)
        check_choice("bonus", str(self.bonus), (POSTERIOR, *FAMILIES))
        posterior = self.bonus == POSTERIOR
        if self.charge is None:
            object.__setattr__(self, "charge", "worlds" if posterior else "coupled")
        rules = _rules(self.rules, None if posterior else self.step_bound)
        if posterior and self.step_bound is not None:
            # Nothing is capped, but the log may refute it.
            check_real("step_bound", self.step_bound, low=0.0, open_low=True, open_high=True)
        # Worlds keep whole charges: of the usual rules they take the first.
        object.__setattr__(self, "rules", rules[:1] if posterior and rules == PREVIEW_RULES else rules)
        check_choice("charge", str(self.charge), ("worlds",) if posterior else CHARGES)
        check_seed(self.seed)
        check_choice("role", self.role, ROLES)
        object.__setattr__(self, "columns", checked_names(self.columns))
        object.__setattr__(self, "labels", checked_labels(self.labels))
        check_first_step(self.first_step)
        check_type("unit", self.unit, str, "a text")
        if len(self.unit) > LONGEST_UNIT:
            raise InvalidSetting(
                f"'unit' must have at most {LONGEST_UNIT} characters, got {len(self.unit)}. Use a short name."
            )
        if self.baseline is not None and not (self.prior is None or self._prior_is("none")):
            raise InvalidSetting("'prior' must be left out with a baseline, which decides ties, got both.")
        check_real("holdout", self.holdout, low=0.0, high=1.0, open_high=True)
        check_integer("more_visits", self.more_visits, minimum=1)
        if self.more_visits > MOST_VISITS:
            raise InvalidSetting(f"'more_visits' must not exceed {MOST_VISITS}, got {self.more_visits}.")
        check_real("bonus_scale", self.bonus_scale, low=0.0, open_low=True, open_high=True)
        check_real("delta", self.delta, low=0.0, high=1.0, open_low=True, open_high=True)
        specs = self.specs()
        if self.max_episodes is not None:
            check_integer("max_episodes", self.max_episodes, minimum=1)
        elif not posterior and specs[0].bounds.needs_episodes:
            raise InvalidSetting(
                f"'max_episodes' must be declared with bonus {self.bonus!r}, got None. Bonus 'kl' needs none."
            )

    def spec(self, rule: str, eta: float) -> CharyUCBVI:
        """Return the agent that explores by a rule with a budget."""
        # With a budget of 0 only free steps are affordable, whatever the bound.
        bound = self.step_bound if self.step_bound is not None else (eta / 2 or 1.0)
        shared = {name: getattr(self, name) for name in (*SHARED, *WORLDS)}
        shared["reward"] = "estimated" if self.rewards is None else "known"
        return CharyUCBVI(eta=eta, rule=rule, step_bound=bound if rule == "capped" else None, **shared)

    def _prior_is(self, name: str) -> bool:
        return isinstance(self.prior, str) and self.prior == name

    def by(self, bonus: str) -> PreviewOptions:
        """Return these options for another family, rule strict and its own charge."""
        changed = {"charge": None, "rules": ("strict",), "step_bound": None, "max_episodes": None}
        return replace(self, bonus=bonus, bonus_scale=1.0, **changed)  # type: ignore[arg-type]

    def specs(self) -> list[CharyUCBVI]:
        """Return the agents of all rules and budgets, rule by rule."""
        return [self.spec(rule, eta) for rule in self.rules for eta in self.etas]


def _budgets(etas: Iterable[float]) -> tuple[float, ...]:
    rule = "'etas' must be a list of budgets"
    if isinstance(etas, (str, bytes)):
        raise InvalidSetting(f"{rule}, got {shown(etas)}.")
    try:
        given = list(etas)
    except TypeError as problem:
        raise InvalidSetting(
            f"{rule}, got {shown(etas)}. Put it into brackets: [{shown(etas)}]."
        ) from problem
    if not 1 <= len(given) <= MOST_ETAS:
        raise InvalidSetting(f"{rule}, 1 to {MOST_ETAS} of them, got {len(given)}.")
    way_out = "Rule 'unlimited' has no budget."
    checked = (
        check_real("eta", eta, low=0.0, high=math.inf, open_high=True, way_out=way_out) for eta in given
    )
    return tuple(sorted(set(checked)))


def _rules(rules: Iterable[str], step_bound: float | None) -> tuple[str, ...]:
    """Return the names of the rules, once the step bound fits them."""
    try:
        given = [rules] if isinstance(rules, str) else list(rules)
        names = tuple(dict.fromkeys(check_choice("rule", rule, RULES) for rule in given))
    except TypeError as problem:
        raise InvalidSetting(f"'rules' must be a list of names, got {shown(rules)}.") from problem
    if not names:
        raise InvalidSetting(
            f"'rules' must contain at least one rule, got 0. Choose from {', '.join(RULES)}."
        )
    if step_bound is not None:
        if "capped" not in names:
            raise InvalidSetting(
                f"'step_bound' belongs to rule 'capped' alone, got {shown(step_bound)} with "
                f"{', '.join(names)}. "
                "Leave it out."
            )
        check_real("step_bound", step_bound, low=0.0, open_low=True, open_high=True)
    return names
