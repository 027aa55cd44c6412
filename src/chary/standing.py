"""The standing of a promise: its level, what it holds for, and everything that it leans on.

Every result has one, derived by `Grounds` from what was really used: this is the only place that does so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from chary.errors import InvalidData, check_choice, check_real
from chary.texts import shown

if TYPE_CHECKING:
    from chary.mdp.setting import Setting
    from chary.model.bounds import Bounds

__all__ = ["LEVELS", "PER", "Grounds", "Standing"]

# From the strongest to the weakest.
LEVELS = ("certified", "credible", "calibrated", "uncertified")
PER = ("run", "episode", "evaluation")

MARKOV = "states are Markov"
MARKOV_CELLS = (
    "states are Markov although observations were discretised: two observations of one cell have the same "
    "future"
)
STATIONARY = "outcomes are stationary: a state and an action lead to the same distribution at any time"
UNCONFOUNDED = "logs are unconfounded: logged actions were chosen by what the state shows and by chance"
DROPPED = "episodes with faulty rows, which were left out of the log, went like the others"
OVERRIDES = "overrides are unconfounded: they were decided by what the state shows and by chance"
UNTAKEN = "actions that were not taken were left out by what the state shows and by chance"
LOSSES = "no outcome could get lost before the first one that was reported as lost"
NETWORKS = "networks, which estimate values and do not bound them"
CRITICS = {
    "certified": "the critics bound the baseline's values everywhere, as declared",
    "calibrated": "the critics were calibrated on returns of held-out episodes, which must resemble those to "
    "come; bounds on returns are not bounds on values",
    "uncertified": "critics that were declared uncertified",
}
# The roles of a user's policy that make it the baseline.
OWN = {
    "only": "the baseline is your own policy",
    "floor": "the baseline is your own policy, except where another was found to be better",
}
# Rules that keep no budget; `none` stands for agents without a rule.
UNLIMITED = ("none", "unlimited")

# The canary promises less about an episode, and leans on less: neither on states nor on how it learns.
INDEPENDENT = (
    "episodes are independent and stationary: they start from the same distribution, and a policy has the "
    "same expected return at any time"
)
NO_OWN_BUDGET = "an episode that draws the candidate has no budget of its own, the coin was tossed before"

_COIN = (
    "no episode has an expected loss above the budget before its coin is tossed, compared with the incumbent"
)
_BUDGET = "no episode has an expected loss above its budget, compared with its own baseline"
_INTERVAL = "the interval contains the policy's value"
PROMISES = {"budget": _BUDGET, "coin": _COIN}


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The standing of a promise, docs/algorithm.md section 1: three parts, never one word.

    Args:
        level: The kind of bounds behind it: `certified` (proved), `credible` (under a prior), `calibrated`
            (measured on similar problems) or `uncertified`.
        per: The unit that it holds for: a whole `run`, a single `episode`, or an `evaluation` from a log.
            None where nothing is promised.
        probability: The probability with which it holds per run or episode; None where there is none.
        given: Everything that it leans on besides; the cells of a discretiser are named first.
        about: What is promised of an episode: that it keeps a `budget`, or that its `coin` does.

    Raises:
        UnknownName: if there is no such level, unit or promise.
        InvalidSetting: if the probability is not in [0, 1].

    Example:
        >>> Standing(level="certified", per="run", probability=0.9, given=(MARKOV,)).label
        'certified per run (0.9)'
    """

    level: str
    per: str | None
    probability: float | None
    given: tuple[str, ...]
    about: str = "budget"

    def __post_init__(self) -> None:
        check_choice("level", self.level, LEVELS)
        check_choice("about", self.about, PROMISES)
        if self.per is not None:
            check_choice("per", self.per, PER)
        if self.probability is not None:
            check_real("probability", self.probability, low=0.0, high=1.0)

    @property
    def label(self) -> str:
        """The first two parts in a few words, for a cell of a table."""
        if self.per is None:
            return "no promise"
        chance = "" if self.probability is None else f" ({self.probability:.6g})"
        return f"{self.level} per {self.per}{chance}{', before the coin' if self.about == 'coin' else ''}"

    def describe(self) -> str:
        """Return the promise in a sentence, and all that it leans on in another."""
        leans_on = f" It leans on this: {'; '.join(self.given)}." if self.given else ""
        return f"{self.promise}{leans_on}"

    def to_json(self) -> dict[str, Any]:
        """Return the three parts, and the whole in words."""
        parts = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "about"}
        if self.about != "budget":
            parts["about"] = self.about
        return parts | {"given": list(self.given), "in_words": self.describe()}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Standing:
        """Return the standing that `to_json` described.

        Raises:
            InvalidData: if it is something else.
        """
        try:
            given = tuple(str(each) for each in values["given"])
            about = values.get("about", "budget")
            parts = {name: values[name] for name in ("level", "per", "probability")}
            return cls(**parts, given=given, about=about)
        except (KeyError, TypeError, ValueError) as problem:
            raise InvalidData(
                f"'standing' must have level, per, probability and given, got {shown(values)}."
            ) from problem

    @property
    def promise(self) -> str:
        """The promise in a sentence, without what it leans on."""
        if self.per is None:
            return "No budget is promised."
        title = f"{self.level.capitalize()} per {self.per}:"
        what = _INTERVAL if self.per == "evaluation" else PROMISES[self.about]
        if self.level == "uncertified":
            known = "the interval was computed" if self.per == "evaluation" else "the ledger keeps the budget"
            return f"{title} {known}, but nothing shows with which probability {what}."
        if self.probability is None:
            return f"{title} measured on other data; nothing shows with which probability {what}."
        surely = (
            "in every case" if self.probability == 1 else f"with probability at least {self.probability:.6g}"
        )
        if self.level == "calibrated":
            return f"{title} measured on sibling problems and not proved, {surely} {what}."
        under = "under the prior and given the data, " if self.level == "credible" else ""
        return f"{title} {under}{surely} {what}."


@dataclass(frozen=True, slots=True, kw_only=True)
class Grounds:
    """Everything that a promise may lean on, as it was really used; `standing` is derived from it.

    Args:
        rule: The rule of the shield, `none` for agents without one.
        delta: The probability with which the bounds may fail; with a prior, in an episode.
        eta: The budget, in the user's units.
        step_bound: The largest gap that rule `capped` assumes, in the user's units.
        bounds: The confidence bounds of a tabular learner.
        outside: How a run differs from what its bonus scale was calibrated for; empty where nothing does,
            None where there is no calibration.
        calibrated_on: The calibration in words.
        prior: The prior in words, where values are posterior ones.
        critics: The level that critics were declared with.
        networks: Whether networks estimate the values.
        coverage: The measured coverage in words, where there is one.
        contradicted: The result of a test that contradicts the model behind the prior, in words: the promise
            is uncertified then.
        setting: The problem as declared to the learner.
        logs: Whether logged decisions were learnt from.
        dropped: Whether episodes with faulty rows were left out of the log.
        discretised: Whether observations were discretised.
        inferred: What was read off a log instead of declared, in words.
        also: Further conditions in words.
        own: The role of the user's policy, if there is one.
        losses_expected: Whether bounds allow for lost outcomes from the start; None where none can get lost.
        overrides: Whether outcomes of overruled decisions are `ignored` or `counted`.
        untaken: Whether decided actions were reported as not taken.
        return_cap: The largest return of an episode as a canary was told, in the user's units.
    """

    rule: str = "none"
    delta: float | None = None
    eta: float | None = None
    step_bound: float | None = None
    bounds: Bounds | None = None
    outside: tuple[str, ...] | None = None
    calibrated_on: str = ""
    prior: str | None = None
    critics: str | None = None
    networks: bool = False
    coverage: str | None = None
    contradicted: str | None = None
    setting: Setting | None = None
    logs: bool = False
    dropped: bool = False
    discretised: bool = False
    inferred: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    own: str | None = None
    losses_expected: bool | None = None
    overrides: str = "ignored"
    untaken: bool = False
    return_cap: float | None = None

    @property
    def standing(self) -> Standing:
        """The standing of the promise that every episode keeps its budget."""
        if self.rule in UNLIMITED or self.eta == math.inf:
            return Standing(level="uncertified", per=None, probability=None, given=())
        if self.rule == "closed":
            markov = MARKOV_CELLS if self.discretised else MARKOV
            # The baseline loses nothing compared with itself, whatever the bounds.
            return Standing(level="certified", per="run", probability=1.0, given=(markov, *self._compared()))
        if self.rule == "canary":
            return self._coin()
        return self._standing("episode" if self.prior is not None or self.critics == "calibrated" else "run")

    @property
    def evaluation(self) -> Standing:
        """The standing of an interval for the value of a policy."""
        return self._standing("evaluation")

    def _standing(self, per: str) -> Standing:
        level, why = self._level()
        chance = None if level == "uncertified" or self.critics == "calibrated" else self._probability()
        first = (MARKOV_CELLS,) if self.discretised else ()
        markov = () if self.discretised else (MARKOV,)
        given = (*first, *self.inferred, *why, *self._gaps(), *markov, *self._data(), *self.also)
        given = (*given, *self._declared(), *self._compared())
        return Standing(level=level, per=per, probability=chance, given=given)

    def _coin(self) -> Standing:
        """Return the standing of a canary: bounds on mean returns, whatever states and candidates are."""
        given = [INDEPENDENT, NO_OWN_BUDGET]
        if self.setting is not None:
            scale = self.setting.scale
            given.append(f"rewards lie in [{scale.low:.6g}, {scale.high:.6g}], as declared")
            unit = "" if scale.low == 0 else " above the least"
            given.append(f"no episode returns more than {self.return_cap:.6g}{unit}, as declared")
        chance = self._probability()
        return Standing(level="certified", per="run", probability=chance, given=tuple(given), about="coin")

    def _probability(self) -> float:
        # Critics declared certified hold always; bounds fail with probability delta.
        return 1.0 - (self.delta or 0.0)

    def _level(self) -> tuple[str, tuple[str, ...]]:
        """Return the level, and the conditions that belong to it."""
        level, why = self._level_of_bounds()
        if self.coverage is not None:
            why = (*why, self.coverage)
        # A declaration can be held to; what a log happens to contain cannot.
        return ("uncertified" if self.inferred else level), why

    def _level_of_bounds(self) -> tuple[str, tuple[str, ...]]:
        if self.contradicted is not None:
            return "uncertified", (self.contradicted, f"the prior: {self.prior}")
        if self.prior is not None:
            return "credible", (f"the prior: {self.prior}",)
        if self.networks:
            return "uncertified", (NETWORKS,)
        if self.critics is not None:
            return self.critics, (CRITICS[self.critics],)
        if self.bounds is None or self.bounds.certified:
            return "certified", ()
        if self.outside is None:
            return "uncertified", (f"{self._scale()}, which has no calibration",)
        if self.outside:
            return "uncertified", (f"{self._scale()}, outside its calibration: {', '.join(self.outside)}",)
        return "calibrated", (self.calibrated_on or "siblings of the problem resemble it",)

    def _scale(self) -> str:
        assert self.bounds is not None
        return f"scale {self.bounds.scale:.6g} of bonus {self.bounds.family}"

    def _gaps(self) -> tuple[str, ...]:
        """Return the assumption of rules that do not book whole charges."""
        if self.rule not in ("capped", "paper"):
            return ()
        bound = self.step_bound
        if bound is None and self.eta is not None:
            bound = self.eta / 2
        value = "eta / 2" if bound is None else f"{bound:.6g}"
        return (f"gaps <= step bound: no true gap of a baseline exceeds {value}",)

    def _data(self) -> tuple[str, ...]:
        told = [(UNCONFOUNDED, self.logs), (DROPPED, self.dropped), (OVERRIDES, self.overrides == "counted")]
        told += [(UNTAKEN, self.untaken), (LOSSES, self.losses_expected is False)]
        return tuple(text for text, holds in told if holds)

    def _declared(self) -> tuple[str, ...]:
        told = self.setting
        if told is None:
            return (STATIONARY,)
        given = [STATIONARY, f"rewards lie in [{told.scale.low:.6g}, {told.scale.high:.6g}], as declared"]
        if told.value_cap < sum(told.discount**t for t in range(told.horizon)):
            cap = told.value_cap * told.scale.span
            unit = "" if told.scale.low == 0 else " above the least"
            given.append(f"no policy is worth more than {cap:.6g}{unit} per episode, the declared value cap")
        if told.known is not None:
            given.append("rewards are known, as declared")
        counted = self.prior is not None or (self.bounds is not None and self.bounds.family in ("kl", "l1"))
        # The separate state of early endings leads to itself, which nobody has to declare.
        support = told.support if told.ending is None else told.support[: told.pair_start[told.ending]]
        fewest = int(support.min()) if counted and len(support) else told.n_states
        if fewest < told.n_states:
            most = int(support.max())
            number = f"{most}" if fewest == most else f"{fewest} to {most} (by state and action)"
            given.append(f"at most {number} states can follow a state and an action, as declared")
        return tuple(given)

    def _compared(self) -> tuple[str, ...]:
        """Return what losses are compared with, where it is not the learnt baseline."""
        return (OWN[self.own],) if self.own in OWN else ()
