"""Calibration of critics: shifts with which the returns of held-out episodes are within the bounds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from chary.arrays import Floats, frozen
from chary.critics.bounds import CriticBounds
from chary.critics.protocol import as_masks, as_numbers, as_observations
from chary.errors import (
    InvalidAction,
    InvalidData,
    check_choice,
    check_integer,
    check_real,
    check_truth,
    check_type,
)

CUT_OFF = ("refuse", "end", "leave out")
# Ranks are whole numbers: (n + 1)(1 - level) may miss one by rounding.
SLACK = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class HeldOutEpisode:
    """One episode of T steps that the critics were not trained on; arrays are copied and read-only.

    Args:
        observations: (T + 1, ...) observations, the last one after the last step.
        actions: (T,) actions played, whole numbers >= 0.
        rewards: (T,) rewards in the user's units, which are those of the critics.
        terminated: Whether the process ended there; False if it was only cut off.
        masks: (T, A) which actions were allowed; all by default.

    Raises:
        InvalidData: if a shape or a number is invalid.
        InvalidAction: if an action is not a whole number >= 0.
    """

    observations: NDArray[Any]
    actions: NDArray[np.int64]
    rewards: Floats
    terminated: bool
    masks: NDArray[np.bool_] | None = None

    def __post_init__(self) -> None:
        seen = as_observations("observations", self.observations)
        actions = as_numbers("actions", self.actions)
        rewards = as_numbers("rewards", self.rewards)
        T = len(seen) - 1
        if T < 1 or actions.shape != (T,) or rewards.shape != (T,):
            raise InvalidData(
                f"'observations' must be one more than 'actions' and 'rewards', which are at least one, got "
                f"{len(seen)} observations, actions of shape {actions.shape} and rewards of shape "
                f"{rewards.shape}. Append the observation after the last step."
            )
        if actions.dtype.kind not in "iu" or (actions < 0).any():
            raise InvalidAction(
                f"'actions' must be whole numbers >= 0, got {actions.dtype} from {actions.min()}."
            )
        check_truth("terminated", self.terminated, error=InvalidData)
        if self.masks is not None:
            width = as_numbers("masks", self.masks).shape[-1:]
            object.__setattr__(self, "masks", frozen(as_masks("masks", self.masks, (T, *width))))
        object.__setattr__(self, "observations", frozen(seen))
        object.__setattr__(self, "actions", frozen(actions, np.int64))
        object.__setattr__(self, "rewards", frozen(rewards, np.float64))
        object.__setattr__(self, "terminated", bool(self.terminated))


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """The result of a calibration.

    `bounds` are the critics shifted by `lower_shift` and `upper_shift`. The shifts are computed from
    `lower_episodes` and `upper_episodes` episodes, with `steps` counted steps. `before` and `after` are the
    shares of the `tested` further episodes in which every counted step is within the bounds, None if none
    were given.
    """

    bounds: CriticBounds
    lower_shift: float
    upper_shift: float
    alpha: float
    discount: float
    lower_episodes: int
    upper_episodes: int
    steps: int
    tested: int = 0
    before: float | None = None
    after: float | None = None

    def describe(self) -> str:
        """Return the result as a few sentences."""
        text = (
            f"Lower critic moved down by {self.lower_shift:g} ({self.lower_episodes} episodes), upper critic "
            f"up by {self.upper_shift:g} ({self.upper_episodes} episodes), from {self.steps} counted steps: "
            f"a new episode is within the bounds with probability at least {1 - self.alpha:g}."
        )
        if self.before is None or self.after is None:
            return text
        shares = f"{self.before:.1%} were within before, {self.after:.1%} after"
        return f"{text} Of {self.tested} test episodes {shares}."


def calibrate_critics(
    bounds: CriticBounds,
    episodes: Sequence[HeldOutEpisode],
    *,
    n_actions: int,
    discount: float,
    alpha: float = 0.1,
    tighten: bool = False,
    cut_off: str = "refuse",
    test: Sequence[HeldOutEpisode] = (),
) -> Calibration:
    """Move critics apart until returns of held-out episodes are within: split conformal, by episode.

    The baseline is pi(s) = argmax_a q_lower(s, a). A step (s_t, a_t) *counts* if every later action of its
    episode is the baseline's own, so that its discounted return-to-go G_t is a sample of Q(s_t, a_t) of the
    baseline, and of V(s_t) where a_t is the baseline's too. The score of an episode is the largest
    q_lower(s_t, a_t) - G_t over its counted steps; for the upper critic the largest G_t - q_upper(s_t,
    pi(s_t)) over those at which the baseline's action was played. Of n scores the ceil((n + 1)(1 - alpha /
    2))-th smallest is the shift. Episodes without such a step do not enter n.

    **Promised**: for a new episode, independent of and drawn like the held-out ones, with probability at
    least 1 - alpha over these and it, and up to rounding, every counted step has q_lower(s_t, a_t) <= G_t,
    and G_t <= v_upper(s_t) where the baseline's action was played. The shifts are the same for all actions,
    so the baseline stays the same. With cut_off="leave out" this holds for episodes that terminate.

    **Not promised**: anything about steps that do not count, states and actions that the held-out policy does
    not lead to, another policy or a process that changed. G_t is the return of one episode and Q its mean:
    bounds on the former are usually wider, but prove nothing about the latter. The promise is for one new
    episode; a shield that uses the bounds in many episodes reaches other states, and choosing critics or
    alpha by looking at the result voids the promise.

    Args:
        bounds: The critics, of any level.
        episodes: Held-out episodes: not trained on, and not selected by their return.
        n_actions: The number A of actions.
        discount: The discount that the critics were trained with, in (0, 1].
        alpha: The probability, in (0, 1), with which a new episode may be outside; half for each critic.
        tighten: Whether bounds may also move towards each other if the scores allow it.
        cut_off: What to do with an episode that was cut off, so that its returns are too small: `refuse` it;
            `end`, if the horizon is part of the problem and returns end with it; or `leave out`.
        test: Further held-out episodes, to report the coverage before and after.

    Returns:
        The shifts, the numbers of episodes behind them, and the bounds with level `calibrated`.

    Raises:
        InvalidData: if an episode is invalid, or there are too few, with the number needed.
        InvalidSetting: if an option is out of range.
    """
    check_type("bounds", bounds, CriticBounds, "CriticBounds")
    A = check_integer("n_actions", n_actions, minimum=1)
    gamma = check_real("discount", discount, low=0.0, high=1.0, open_low=True)
    level = check_real("alpha", alpha, low=0.0, high=1.0, open_low=True, open_high=True) / 2
    check_truth("tighten", tighten)
    check_choice("cut_off", cut_off, CUT_OFF)
    held_out = _usable("episodes", episodes, A, cut_off)
    tested = _usable("test", test, A, cut_off)

    scores = [_score(bounds, episode, A, gamma) for episode in held_out]
    lower = [score.lower for score in scores]
    upper = [score.upper for score in scores if score.upper is not None]
    lower_shift = _shift("the lower critic", lower, level, tighten)
    upper_shift = _shift("the upper critic, ending with the baseline's own action,", upper, level, tighten)
    before = [_score(bounds, episode, A, gamma) for episode in tested]
    return Calibration(
        bounds=bounds.shifted(lower_shift, upper_shift, level="calibrated"),
        lower_shift=lower_shift,
        upper_shift=upper_shift,
        alpha=2 * level,
        discount=gamma,
        lower_episodes=len(lower),
        upper_episodes=len(upper),
        steps=sum(score.steps for score in scores),
        tested=len(tested),
        before=_coverage(before, 0.0, 0.0),
        after=_coverage(before, lower_shift, upper_shift),
    )


def episodes_needed(alpha: float) -> int:
    """Return the smallest number of held-out episodes that `calibrate_critics` needs for each critic.

    Raises:
        InvalidSetting: if `alpha` is not in (0, 1).

    Example:
        >>> episodes_needed(0.1), episodes_needed(0.01)
        (19, 199)
    """
    level = check_real("alpha", alpha, low=0.0, high=1.0, open_low=True, open_high=True) / 2
    return max(math.ceil(1 / level - 1 - SLACK), 1)


class _Score(NamedTuple):
    """The largest distance of one episode from the bounds; `upper` is None if no step counts for it."""

    lower: float
    upper: float | None
    steps: int


def _score(bounds: CriticBounds, episode: HeldOutEpisode, A: int, discount: float) -> _Score:
    values = bounds.evaluate(episode.observations[:-1], A, episode.masks)
    own = values.baseline == episode.actions
    T = len(own)
    strays = np.flatnonzero(~own)
    # The last deviation counts itself: all later actions are the baseline's.
    first = int(strays[-1]) if strays.size else 0
    returns = np.zeros(T + 1)
    for t in reversed(range(T)):
        returns[t] = episode.rewards[t] + discount * returns[t + 1]
    counted = np.arange(first, T)
    q_lower = values.q_lower[counted, episode.actions[counted]]
    by_baseline = counted[own[counted]]
    above = returns[by_baseline] - values.v_upper[by_baseline]
    return _Score(
        lower=float((q_lower - returns[counted]).max()),
        upper=float(above.max()) if above.size else None,
        steps=len(counted),
    )


def _shift(whose: str, scores: list[float], level: float, tighten: bool) -> float:
    n = len(scores)
    rank = math.ceil((n + 1) * (1 - level) - SLACK)
    needed = episodes_needed(2 * level)
    if n < needed:
        raise InvalidData(
            f"'episodes' must be at least {needed} for {whose} at alpha = {2 * level:g}, got {n}. Hold out "
            "more episodes in which the baseline (the lower critic's best action) is followed to the end, or "
            "take a larger alpha."
        )
    shift = sorted(scores)[rank - 1]
    return shift if tighten else max(shift, 0.0)


def _coverage(scores: list[_Score], lower: float, upper: float) -> float | None:
    within = [score.lower <= lower and (score.upper is None or score.upper <= upper) for score in scores]
    return sum(within) / len(within) if within else None


def _usable(name: str, episodes: Sequence[HeldOutEpisode], A: int, cut_off: str) -> list[HeldOutEpisode]:
    """Return the episodes with complete returns, after checking that all fit together."""
    if not isinstance(episodes, Sequence) or isinstance(episodes, str):
        raise InvalidData(f"{name!r} must be a list of HeldOutEpisode, got {type(episodes).__name__}.")
    for k, episode in enumerate(episodes):
        if not isinstance(episode, HeldOutEpisode):
            raise InvalidData(f"'{name}[{k}]' must be a HeldOutEpisode, got {type(episode).__name__}.")
        if episode.observations.shape[1:] != episodes[0].observations.shape[1:]:
            raise InvalidData(
                f"'{name}[{k}]' must have observations of shape {episodes[0].observations.shape[1:]}, as the "
                f"first has, got {episode.observations.shape[1:]}."
            )
        _check_actions(f"{name}[{k}]", episode, A)
        if cut_off == "refuse" and not episode.terminated:
            raise InvalidData(
                f"'{name}[{k}]' must have terminated, got one that was cut off, whose returns are too small. "
                "Use cut_off='end' if the horizon is part of the problem, or cut_off='leave out'."
            )
    return [episode for episode in episodes if episode.terminated or cut_off == "end"]


def _check_actions(name: str, episode: HeldOutEpisode, A: int) -> None:
    if (episode.actions >= A).any():
        raise InvalidAction(f"'actions' of {name} must lie in 0..{A - 1}, got {int(episode.actions.max())}.")
    if episode.masks is None:
        return
    if episode.masks.shape[1] != A:
        raise InvalidData(f"'masks' of {name} must have {A} columns, got {episode.masks.shape[1]}.")
    forbidden = ~episode.masks[np.arange(len(episode.actions)), episode.actions]
    if forbidden.any():
        t = int(forbidden.argmax())
        raise InvalidAction(
            f"'actions' of {name} must be allowed by its masks, got {int(episode.actions[t])} at step {t}."
        )
