"""The options of linear worlds: the model, and the budget and chains around it, checked once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from chary.errors import MOST_WORLDS, InvalidSetting, check_choice, check_integer, check_real, check_truth
from chary.linear.algebra import Attitude
from chary.shield.rule import Rule
from chary.shield.shield import CLOCKS
from chary.shield.worlds import Panel
from chary.standing import Grounds
from chary.texts import shown

EXPLORERS = ("sample", "optimistic")
MOST_FEATURES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearModel:
    """The model: features, worlds and prior, in the units of the rewards given.

    Memory is 16 * A * (worlds + explorers) * features^2 bytes for the sums, however long it learns, and
    8 * H * A * (worlds + explorers) * features bytes for a plan.

    Args:
        low: The least reward of a step.
        high: The largest reward of a step, > `low`.
        features: Random Fourier features of an observation, F >= 2, one of them a constant; own features and
            one-hot ones bring their number with them.
        length_scale: Distance over which features vary, > 0; None takes the median distance of the
            observations learnt first.
        worlds: K, the worlds that judge, >= 2.
        explorers: The worlds that explore, apart from those that judge, >= 1.
        risk: The probability with which an episode may exceed its budget, in (0, 1).
        prior: The weight of a pseudo-observation of every coefficient, > 0. One observation has weight 1.
        pessimism: The baseline is the argmax of mean - `pessimism` * sd over the worlds, >= 0.
        explorer: `sample` plays the best action of one exploring world per chain or episode;
            `optimistic` that of their mean plus one standard deviation.
        growth: Plan again when the data has grown by this share, >= 0; 0 plans after every episode.
        margin: Added to the charge of every deviation in every world, >= 0: for what the features cannot
            express, of which worlds know nothing.
        nodes: Observations at which values are computed and projected on the features, >= 1; None takes four
            per feature.
        held_out: Share of the transitions that are not learnt from and test the model, in [0, 1).
        held_most: The most transitions held out at a time, >= 1.

    Raises:
        InvalidSetting: if a number lies outside its range.
        UnknownName: if there is no such explorer.

    Example:
        >>> LinearModel(low=0.0, high=1.0, features=64).nodes_for(64)
        256
    """

    low: float
    high: float
    features: int = 128
    length_scale: float | None = None
    worlds: int = 24
    explorers: int = 8
    risk: float = 0.01
    prior: float = 0.001
    pessimism: float = 0.0
    explorer: str = "sample"
    growth: float = 0.1
    margin: float = 0.0
    nodes: int | None = None
    held_out: float = 0.05
    held_most: int = 2000

    def __post_init__(self) -> None:
        low = check_real("low", self.low, low=-math.inf, open_low=True, open_high=True)
        high = check_real("high", self.high, low=-math.inf, open_low=True, open_high=True)
        if not high > low:
            raise InvalidSetting(
                f"'high' must be above 'low', the least reward of a step, {low:g}, got {shown(self.high)}."
            )
        check_integer("features", self.features, minimum=2, largest=MOST_FEATURES)
        if self.length_scale is not None:
            check_real("length_scale", self.length_scale, low=0.0, open_low=True, open_high=True)
        check_integer("worlds", self.worlds, minimum=2, largest=MOST_WORLDS)
        check_integer("explorers", self.explorers, minimum=1, largest=MOST_WORLDS)
        check_real("risk", self.risk, low=0.0, high=1.0, open_low=True, open_high=True)
        check_real("prior", self.prior, low=0.0, open_low=True, open_high=True)
        for name in ("pessimism", "growth", "margin"):
            check_real(name, getattr(self, name), low=0.0, open_high=True)
        check_choice("explorer", self.explorer, EXPLORERS)
        if self.nodes is not None:
            check_integer("nodes", self.nodes, minimum=1)
        check_real("held_out", self.held_out, low=0.0, high=1.0, open_high=True)
        check_integer("held_most", self.held_most, minimum=1)

    @property
    def lanes(self) -> int:
        """L, the number of all worlds."""
        return self.worlds + self.explorers

    @property
    def attitude(self) -> Attitude:
        """The attitude of plans to doubt."""
        return Attitude(self.worlds, self.pessimism, 1.0 if self.explorer == "optimistic" else None)

    @property
    def panel(self) -> Panel:
        """The part of the judging worlds that must agree."""
        return Panel.of(self.risk, worlds=self.worlds)

    def describe(
        self, features: str | None = None, ahead: str | None = None, prior: str | None = None
    ) -> str:
        """Return the model and its prior in words, for the standing."""
        told = features or f"{self.features} random Fourier features"
        return (
            f"the reward and the value features behind an action are linear in {told}, and values in "
            f"{ahead or 'the same features'}; "
            f"{prior or f'pseudo-observations of weight {self.prior:g} of every coefficient'}"
        )

    def nodes_for(self, features: int) -> int:
        """Return the number of nodes for that many features."""
        return 4 * features if self.nodes is None else self.nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearOptions:
    """The options of `LinearAgent`; budgets are in the units of the rewards given.

    Args:
        model: The model, as `LinearModel` or a table of its options.
        discount: gamma, in [0, 1].
        eta: The budget of one episode, >= 0.
        rule: Which steps the budget affords, as in `Rule.named`.
        step_bound: Of the rule `capped` alone, > 0.
        after_refusal: `pause` or `close`.
        chains: False explores from the start of each episode until refused.
        pool: Chains that may be open at once, >= 1.
        radius: Distance in observations at which a state is a chain's target, >= 0.
        patience: Abandon a chain once this many episodes have ended since it last advanced; None never does.
        clock: The explorer's time: that of the `episode`, or `meta`, its chain's length.

    Raises:
        InvalidSetting: if a number lies outside its range.
        InvalidBudget: if `eta` or `step_bound` does.
        UnknownName: if there is no rule or clock of that name.

    Example:
        >>> LinearOptions(model=LinearModel(low=0.0, high=1.0), eta=0.5).budget_rule.limit
        0.5
    """

    model: LinearModel = field()
    discount: float = 1.0
    eta: float = 0.1
    rule: str = "strict"
    step_bound: float | None = None
    after_refusal: str = "pause"
    chains: bool = True
    pool: int = 30
    radius: float = 0.5
    patience: int | None = 5
    clock: str = "episode"

    def __post_init__(self) -> None:
        object.__setattr__(self, "model", linear_model(self.model))
        check_real("discount", self.discount, low=0.0, high=1.0)
        check_truth("chains", self.chains)
        check_integer("pool", self.pool, minimum=1)
        check_real("radius", self.radius, low=0.0, open_high=True)
        if self.patience is not None:
            check_integer("patience", self.patience, minimum=0, way_out="Use None to wait for ever.")
        check_choice("clock", self.clock, CLOCKS)
        Rule.named(self.rule, eta=self.eta, step_bound=self.step_bound, after_refusal=self.after_refusal)

    @property
    def budget_rule(self) -> Rule:
        """The rule of the budget."""
        return Rule.named(
            self.rule, eta=self.eta, step_bound=self.step_bound, after_refusal=self.after_refusal
        )

    @property
    def grounds(self) -> Grounds:
        """Everything that the promise of a budget leans on as far as options tell."""
        return Grounds(rule=self.rule, eta=self.eta, step_bound=self.step_bound, delta=self.model.risk)


def linear_model(given: object) -> LinearModel:
    """Return the model that a value or a table describes.

    Raises:
        InvalidSetting: if it is neither, or an option does not exist, is missing or is out of range.

    Example:
        >>> linear_model({"low": 0, "high": 1}).high
        1.0
    """
    if isinstance(given, LinearModel):
        return given
    if not isinstance(given, Mapping):
        raise InvalidSetting(f"'linear' must be a LinearModel or a table of its options, got {shown(given)}.")
    known = LinearModel.__dataclass_fields__
    for name in given:
        check_choice("option of 'linear'", name, known)
    for name in ("low", "high"):
        if name not in given:
            raise InvalidSetting(
                f"'linear' must have 'low' and 'high', the least and the largest reward, got no {name!r}."
            )
    # 5 and 5.0 are one number and must give one run.
    options: dict[str, Any] = {
        name: float(value)
        if "float" in str(known[name].type) and isinstance(value, int) and not isinstance(value, bool)
        else value
        for name, value in given.items()
    }
    return LinearModel(**options)
