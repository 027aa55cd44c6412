"""Lower and upper critics with their level, from which charges are computed."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from chary.arrays import Floats
from chary.critics import protocol
from chary.critics.ensemble import EnsembleCritics, EnsembleSide
from chary.errors import InvalidData, InvalidSetting, check_choice, check_integer, check_real, check_type
from chary.texts import shown

CRITIC_LEVELS = ("certified", "calibrated", "uncertified")
# The largest crossing of certified bounds, relative to their size, that is not a contradiction: networks
# compute in single precision.
ROUNDING = 1e-5


class CriticValues(NamedTuple):
    """Bounds at B observations, all for the baseline pi(s) = argmax_a of the lower critic."""

    baseline: NDArray[np.int64]  # (B,)
    q_lower: Floats  # (B, A)
    v_upper: Floats  # (B,): the upper critic's value of the baseline's action


@dataclass(frozen=True, slots=True)
class CriticBounds:
    """A lower and an upper critic of the baseline's action values, and their level.

    The baseline is pi(s) = argmax_a q_lower(s, a), the lowest index among equals, over allowed actions. The
    shifts are the same for all actions, `q_lower - lower_shift` and `q_upper + upper_shift`, so they never
    change it.

    Args:
        lower: A critic whose values are at most the baseline's, or should be.
        upper: A critic whose values are at least the baseline's, or should be.
        level: `certified` declares that both always hold; `calibrated` declares that `calibrate_critics`
            computed the shifts for these critics; `uncertified` promises nothing.
        lower_shift: The amount subtracted from the lower critic.
        upper_shift: The amount added to the upper critic.

    Raises:
        InvalidSetting: if a part is not a critic, a shift is not finite, or a single point estimate is
            declared certified.
        UnknownName: if there is no such level.

    Example:
        >>> from chary.critics import FunctionCritic
        >>> low = FunctionCritic(lambda x: x * [1.0, 2.0], n_actions=2)
        >>> high = FunctionCritic(lambda x: x * [1.5, 2.5], n_actions=2)
        >>> CriticBounds(low, high, level="certified").evaluate([[1.0]], n_actions=2)
        CriticValues(baseline=array([1]), q_lower=array([[1., 2.]]), v_upper=array([2.5]))
    """

    lower: protocol.Critic
    upper: protocol.Critic
    _: KW_ONLY
    level: str
    lower_shift: float = 0.0
    upper_shift: float = 0.0

    def __post_init__(self) -> None:
        protocol.check_critic_type("lower", self.lower)
        protocol.check_critic_type("upper", self.upper)
        check_choice("level", self.level, CRITIC_LEVELS)
        for name, shift in (("lower_shift", self.lower_shift), ("upper_shift", self.upper_shift)):
            check_real(name, shift, low=-np.inf, open_low=True, open_high=True)
        if self.lower is self.upper and self.level == "certified":
            raise InvalidSetting(
                "'level' must not be 'certified' if one critic is both bounds, got a point estimate, "
                f"{protocol.name_of(self.lower)}. Calibrate it, or give two critics."
            )

    @classmethod
    def from_point(cls, critic: protocol.Critic, *, accept: str | None = None) -> CriticBounds:
        """Use a point estimate as both bounds; its level must be accepted explicitly.

        A point estimate charges v(s) - q(s, a) as if it were exact, so a budget kept by the ledger may be
        exceeded in truth by the error of the estimate. Such bounds should be calibrated.

        Args:
            critic: The point estimate.
            accept: `uncertified`, to accept this.

        Raises:
            InvalidSetting: unless `accept="uncertified"`.
        """
        protocol.check_critic_type("critic", critic)
        if not (isinstance(accept, str) and accept == "uncertified"):
            raise InvalidSetting(
                f"'accept' must be 'uncertified' for a point estimate, which bounds nothing, got "
                f"{shown(accept)}. "
                "Give lower and upper critics or an ensemble, or pass accept='uncertified' and calibrate."
            )
        return cls(critic, critic, level="uncertified")

    @classmethod
    def from_ensemble(cls, ensemble: EnsembleCritics) -> CriticBounds:
        """Use the lower and the upper critic of an ensemble: uncertified until calibrated.

        Raises:
            InvalidSetting: if `ensemble` is not an ensemble.
        """
        check_type("ensemble", ensemble, EnsembleCritics, "an EnsembleCritics")
        return cls(ensemble.lower, ensemble.upper, level="uncertified")

    def shifted(self, lower: float, upper: float, *, level: str) -> CriticBounds:
        """Return the same critics with `lower` more subtracted and `upper` more added.

        Raises:
            InvalidSetting: if a shift is not finite.
            UnknownName: if there is no such level.
        """
        less = check_real("lower", lower, low=-np.inf, open_low=True, open_high=True)
        more = check_real("upper", upper, low=-np.inf, open_low=True, open_high=True)
        return replace(
            self, level=level, lower_shift=self.lower_shift + less, upper_shift=self.upper_shift + more
        )

    def evaluate(
        self, observations: ArrayLike, n_actions: int, masks: ArrayLike | None = None
    ) -> CriticValues:
        """Return the baseline and the bounds at (B, ...) observations; each model is called once.

        Args:
            observations: One row per observation.
            n_actions: The number A of actions.
            masks: Which actions are allowed, (B, A); all by default.

        Raises:
            InvalidData: if an observation, a mask or a critic's result is invalid, or certified bounds
                contradict each other.
        """
        asked = protocol.as_observations("observations", observations)
        A = check_integer("n_actions", n_actions, minimum=1)
        allowed = None if masks is None else protocol.as_masks("masks", masks, (len(asked), A))
        lower, upper = self._asked(asked, A)
        # Before the shift, which could round two values to one.
        baseline = (lower if allowed is None else np.where(allowed, lower, -np.inf)).argmax(axis=1)
        rows = np.arange(len(asked))
        with np.errstate(over="ignore"):
            q_lower = lower - self.lower_shift
            v_upper = upper[rows, baseline] + self.upper_shift
        if self.level == "certified":
            self._check_order(q_lower[rows, baseline], v_upper)
        return CriticValues(baseline, q_lower, v_upper)

    def _asked(self, observations: NDArray[np.generic], A: int) -> tuple[Floats, Floats]:
        low, high = self.lower, self.upper
        if isinstance(low, EnsembleSide) and isinstance(high, EnsembleSide) and low.ensemble is high.ensemble:
            sides = dict(zip(("lower", "upper"), low.ensemble.q_bounds(observations, A), strict=True))
            return sides[low.side], sides[high.side]
        lower = protocol.checked_q_values(low, observations, A)
        return lower, lower if low is high else protocol.checked_q_values(high, observations, A)

    def _check_order(self, lower: Floats, upper: Floats) -> None:
        crossed = lower - upper > ROUNDING * np.maximum(np.abs(upper), 1.0)
        if crossed.any():
            row = int(crossed.argmax())
            raise InvalidData(
                f"'level' cannot be 'certified' if the lower critic exceeds the upper one, got "
                f"{lower[row]:g} above {upper[row]:g} for observation {row}. Declare them 'uncertified', and "
                "calibrate."
            )
