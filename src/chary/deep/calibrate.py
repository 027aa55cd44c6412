"""The constants of the ensemble's prices from data that were held out: d, z and the margin.

`fit` takes residuals of gaps, and there are three ways to get these:

- `rollouts`, with a simulator: `chary.deep.simulation.gaps.rollout_residuals` plays random deviations along
  the baseline's way and rolls out what they cost.
- `trials`, without one: episodes of a frozen baseline, in some of which one random action is played within
  the budget. `Predictor` says what the baseline plays and what a deviation is expected to cost.
- `returns`, without any deviation: returns-to-go of the baseline compared with the values that were
  predicted. The difference of two values errs at most by both errors, so this is by far the widest.

What each leans on is part of the fit, and the standing of an agent with its options says how they were set.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, final

import numpy as np
from numpy.typing import ArrayLike

from chary.arrays import Floats, Ints, frozen
from chary.deep.ensemble.options import EnsembleOptions
from chary.errors import InvalidData, InvalidSetting, check_choice, check_integer, check_real
from chary.texts import shown

if TYPE_CHECKING:
    from chary.deep.agent import DeepAgent

ASSUMES = {
    "rollouts": (
        "the simulator is the environment",
        "deviations to come resemble random ones along the baseline's way",
    ),
    "trials": (
        "episodes with a trial start like those without, and differ from them by it and by chance alone",
        "deviations to come resemble random ones along the baseline's way",
        "the noise of returns counts as an error of the networks",
    ),
    "returns": (
        "values of actions that were not played err as much as those of the baseline's",
        "the errors of two values add up",
    ),
}


@dataclass(frozen=True, slots=True, eq=False)
class Residuals:
    """Deviations with their gaps as they turned out, and as the members predicted them; each (n,).

    Args:
        gap: V - Q of the deviation, observed.
        mean: The members' mean of it.
        deviation: The members' standard deviation of it.
        episode: The episode of each; deviations of one are pooled to fit z.
        how: `rollouts`, `trials` or `returns`.

    Raises:
        InvalidData: if lengths differ, or a number is not finite.
        UnknownName: if there is no such way.
    """

    gap: Floats
    mean: Floats
    deviation: Floats
    episode: Ints
    how: str

    def __post_init__(self) -> None:
        check_choice("how", self.how, ASSUMES)
        for name in ("gap", "mean", "deviation"):
            array = frozen(getattr(self, name), np.float64)
            if array.ndim != 1 or array.shape != np.shape(self.gap) or not np.isfinite(array).all():
                raise InvalidData(f"{name!r} must be as many finite numbers as 'gap', got {shown(array)}.")
            object.__setattr__(self, name, array)
        episode = frozen(self.episode, np.int64)
        if episode.shape != self.gap.shape:
            raise InvalidData(
                f"'episode' must have one number per deviation, got {episode.shape} of {self.gap.shape}."
            )
        object.__setattr__(self, "episode", episode)


class Fit(NamedTuple):
    """Options with fitted constants, and what they rest on.

    Args:
        options: The options of the ensemble with the constants.
        steps: Deviations that d was fitted on.
        ledgers: Episodes that z was fitted on.
        assumes: What the fit leans on.
    """

    options: EnsembleOptions
    steps: int
    ledgers: int
    assumes: tuple[str, ...]


def fit(
    residuals: Residuals,
    options: EnsembleOptions | None = None,
    *,
    coverage: float = 0.95,
    risk: float = 0.01,
    repeats: ArrayLike | None = None,
) -> Fit:
    """Return the smallest constants that cover residuals, with the correction of split conformal prediction.

    d is the smallest number for which m + spread sd + d covers a share `coverage` of the gaps, and z the
    smallest for which the pooled ledger covers the deficits of a share 1 - `risk` of the episodes.

    Args:
        residuals: Of data that nothing was learnt from.
        options: Options whose other numbers are kept; None takes the usual ones.
        coverage: The share of steps, in (0, 1).
        risk: The share of ledgers that may be short, in (0, 1).
        repeats: Returns of episodes of one frozen baseline without deviations: the margin is the shortfall
            from their mean that a share `coverage` of them stays within. None keeps the margin.

    Raises:
        InvalidData: if there are too few deviations, episodes or repeats for these shares.

    Example:
        >>> gaps = np.arange(100.0)
        >>> found = fit(Residuals(gaps, np.zeros(100), np.zeros(100), np.arange(100), "trials"))
        >>> found.options.floor, round(found.options.z, 2), found.options.constants
        (95.0, 1.68, 'trials')
    """
    given = EnsembleOptions() if options is None else options
    check_real("coverage", coverage, low=0.0, high=1.0, open_low=True, open_high=True)
    check_real("risk", risk, low=0.0, high=1.0, open_low=True, open_high=True)
    beyond = residuals.gap - residuals.mean - given.spread * residuals.deviation
    floor = max(_quantile("deviations", beyond, coverage), 0.0)
    widths = (given.spread * residuals.deviation + floor) / given.half_width
    _, groups = np.unique(residuals.episode, return_inverse=True)
    booked, true = (
        np.bincount(groups, np.maximum(each, 0.0)) for each in (residuals.mean + given.offset, residuals.gap)
    )
    spread = np.sqrt(np.bincount(groups, widths * widths))
    short = np.divide(true - booked, spread, out=np.where(true > booked, np.inf, 0.0), where=spread > 0)
    z = max(_quantile("episodes", short, 1.0 - risk), 0.0)
    if not math.isfinite(z):
        raise InvalidData("'residuals' must vary for z to be fitted, got deviations that cost the same.")
    margin = given.margin
    if repeats is not None:
        returns = frozen(repeats, np.float64)
        margin = max(_quantile("repeats", returns.mean() - returns, coverage), 0.0)
    fitted = replace(given, floor=floor, z=z, margin=margin, constants=residuals.how)
    return Fit(fitted, len(beyond), len(spread), ASSUMES[residuals.how])


def trial_residuals(
    plain: ArrayLike,
    trials: ArrayLike,
    steps: ArrayLike,
    means: ArrayLike,
    deviations: ArrayLike,
    discount: float,
) -> Residuals:
    """Return the residuals of trials: a deviation at step t costs (mean plain return - return) / gamma^t.

    Args:
        plain: Discounted returns of episodes in which the frozen baseline played every step.
        trials: Those of episodes with one random deviation each, (n,).
        steps: The step t of each deviation, (n,).
        means: The members' mean gap of it, from `Predictor.gap`, (n,).
        deviations: Their standard deviation, (n,).
        discount: gamma, in (0, 1].

    Raises:
        InvalidData: if there is no plain episode, lengths differ, or a number is not finite.
    """
    check_real("discount", discount, low=0.0, high=1.0, open_low=True)
    reference, returned = np.asarray(plain, np.float64), np.asarray(trials, np.float64)
    if not reference.size:
        raise InvalidData("'plain' must contain the return of one episode at least, got none.")
    gaps = (reference.mean() - returned) / discount ** np.asarray(steps, np.float64)
    return Residuals(gaps, _floats(means), _floats(deviations), np.arange(len(gaps)), "trials")


def return_residuals(observed: ArrayLike, predicted: ArrayLike, episode: ArrayLike) -> Residuals:
    """Return the residuals of returns-to-go of the baseline, as if every gap erred by two of them.

    Args:
        observed: Discounted returns-to-go after which the frozen baseline played on, (n,).
        predicted: `Predictor.value` of the same step, (n,).
        episode: The episode of each, (n,). Steps of one episode are dependent: take one step of each.

    Raises:
        InvalidData: if lengths differ, or a number is not finite.
    """
    errors = 2.0 * np.abs(_floats(observed) - _floats(predicted))
    none = np.zeros(errors.shape)
    return Residuals(errors, none, none, np.asarray(episode, np.int64), "returns")


@final
class Predictor:
    """The frozen baseline of a `DeepAgent` with an ensemble, and what its members predict; nothing is learnt.

    Args:
        agent: The agent; later learning does not change the predictor.

    Raises:
        InvalidSetting: if the agent learns by something else.
    """

    def __init__(self, agent: DeepAgent) -> None:
        import jax

        from chary.deep.ensemble.learner import frozen_gaps, incumbent

        if agent.options.learns_by != "ensemble":
            raise InvalidSetting(
                f"'agent' must learn by 'ensemble', got {shown(agent.options.learns_by)}. "
                "Only the prices of an ensemble have constants that are fitted."
            )
        self._given = agent.options.ensemble
        self._form, self._gaps = agent._form, frozen_gaps(agent.options, agent.horizon)
        with jax.enable_x64(True):
            self._plan = jax.tree.map(np.array, incumbent(agent.options, agent._turns.state))

    def baseline(self, t: int, observation: ArrayLike) -> int:
        """Return the baseline's action at step `t`."""
        return int(self._at(t, observation)[1])

    def gap(self, t: int, observation: ArrayLike, action: int) -> tuple[float, float]:
        """Return mean and standard deviation over the members of what an action costs."""
        _, _, mean, deviation = self._at(t, observation)
        return float(mean[action]), float(deviation[action])

    def price(self, t: int, observation: ArrayLike, action: int) -> float:
        """Return the charge of a first deviation of an episode, by the agent's present constants.

        A trial within a budget plays an action whose price does not exceed that.
        """
        if action == self.baseline(t, observation):
            return 0.0
        mean, deviation = self.gap(t, observation, action)
        width = (self._given.spread * deviation + self._given.floor) / self._given.half_width
        return max(mean + self._given.offset, 0.0) + self._given.z * width

    def value(self, t: int, observation: ArrayLike, action: int) -> float:
        """Return the members' mean value of an action."""
        return float(self._at(t, observation)[0][action])

    def _at(self, t: int, observation: ArrayLike) -> tuple[Floats, int, Floats, Floats]:
        import jax

        step = check_integer("t", t, minimum=0, largest=self._form.horizon - 1)
        seen = self._form.observation("observation", observation)
        with jax.enable_x64(True):
            found: tuple[Floats, int, Floats, Floats] = jax.tree.map(
                np.asarray, self._gaps(self._plan, seen, np.int32(step))
            )
        return found


def _floats(values: ArrayLike) -> Floats:
    return np.asarray(values, np.float64)


def _quantile(name: str, values: Floats, share: float) -> float:
    """Return the smallest value that covers a share of those to come: the ceil((n + 1) share)-th of n."""
    rank = math.ceil((len(values) + 1) * share - 1e-9)
    if rank > len(values):
        needed = math.ceil(share / (1.0 - share) - 1e-9)
        raise InvalidData(
            f"{name!r} must be at least {needed} to cover {100 * share:g} %, got {len(values)}. Collect more."
        )
    return float(np.sort(values)[rank - 1])
