"""The paired ensemble in plain NumPy: prices, pooled ledger, targets, returns-to-go and rollback.

One function per formula of docs/algorithm.md section 13; the compiled ones are in `chary.deep.ensemble`.
Values of the members have shape (E, A) at one observation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from chary.arrays import Bools, Floats

# Standard deviations of a one-sided half-width of 95 %.
HALF_WIDTH = 1.6448536269514722
# Standard errors of an interval about a mean return.
WIDE = 2.0


def paired_gap(values: Floats, action: int) -> tuple[int, float, float]:
    """Return the baseline's action, and mean and standard deviation over members of the gap of an action.

    Example:
        >>> paired_gap(np.array([[3.0, 1.0], [5.0, 4.0]]), 1)
        (0, 1.5, 0.7071067811865476)
    """
    baseline = int(np.argmax(values.mean(axis=0)))
    gaps = values[:, baseline] - values[:, action]
    return baseline, float(gaps.mean()), float(gaps.std(ddof=1))


def half_width(spread: float, floor: float, deviation: float) -> float:
    """Return u = (spread sd + d) / 1.645."""
    return (spread * deviation + floor) / HALF_WIDTH


def pooled_bound(gaps: list[tuple[float, float]], *, offset: float, z: float) -> float:
    """Return U = sum of max(m + offset, 0) + z sqrt(sum of u^2) over deviations (m, u).

    Example:
        >>> pooled_bound([(1.0, 3.0), (-5.0, 4.0)], offset=2.0, z=3.0)
        18.0
    """
    means = sum(max(mean + offset, 0.0) for mean, _ in gaps)
    return means + z * math.sqrt(sum(width * width for _, width in gaps))


def member_target(
    reward: float,
    ended: bool,
    next_values: Floats,
    discount: float,
    *,
    observed: float | None = None,
    share: float = 0.0,
) -> Floats:
    """Return the targets (E,) of the members for one transition: r + gamma Q_e(s', pi(s')).

    Args:
        reward: The reward.
        ended: Whether nothing follows.
        next_values: Q_e at the next observation, (E, A), by target networks; pi is greedy in their mean.
        discount: gamma.
        observed: The return-to-go observed, where it counts.
        share: Its share.
    """
    baseline = int(np.argmax(next_values.mean(axis=0)))
    estimated = reward + discount * (0.0 if ended else 1.0) * next_values[:, baseline]
    return estimated if observed is None else (1.0 - share) * estimated + share * observed


def steps_left(t: int, horizon: int, discount: float) -> float:
    """Return G(t), the discounted number of the steps that are left at step `t`."""
    return float(sum(discount**i for i in range(horizon - t)))


def returns_to_go(rewards: Floats, deviated: Bools, discount: float) -> tuple[Floats, Bools]:
    """Return what was earned from each step on, and after which steps nothing deviated.

    Example:
        >>> returns_to_go(np.array([1.0, 1.0]), np.array([False, True]), 0.5)
        (array([1.5, 1. ]), array([False,  True]))
    """
    steps = range(len(rewards))
    to_go = [sum(discount ** (i - t) * rewards[i] for i in steps[t:]) for t in steps]
    return np.array(to_go, dtype=np.float64), np.array([not deviated[t + 1 :].any() for t in steps], bool)


@dataclass(slots=True)
class Rollback:
    """Whether the candidate or the best networks so far play; networks are named by numbers here."""

    margin: float
    window: int = 1
    retreat: int = 2
    longest: int = 32
    best: int = -1
    mean: float = -math.inf
    error: float = 0.0
    left: int = 0
    retreats: int = 0
    probation: bool = True
    length: int = field(init=False)
    _seen: list[tuple[float, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.length = self.retreat

    def plays(self, candidate: int) -> int:
        """Return the networks that play the next episode."""
        return self.best if self.left else candidate

    def judge(self, played: int, returned: float, booked: float) -> None:
        """Take in the return of an episode and the deficit that it booked."""
        if self.left:
            self.left -= 1
            return
        self._seen.append((returned, booked))
        if len(self._seen) < self.window:
            return
        self.probation = False
        returns, paid = np.array(self._seen).T
        mean = float(returns.mean())
        error = float(returns.std(ddof=1)) / math.sqrt(self.window) if self.window > 1 else 0.0
        self._seen = []
        if mean - WIDE * error > self.mean - WIDE * self.error:
            self.best, self.mean, self.error, self.length = played, mean, error, self.retreat
        elif mean + WIDE * math.hypot(error, self.error) < self.mean - paid.mean() - self.margin:
            self.left, self.retreats, self.probation = self.length, self.retreats + 1, True
            self.length = min(2 * self.length, self.longest)
