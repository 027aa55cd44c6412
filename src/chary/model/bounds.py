"""The families of confidence bounds of docs/algorithm.md section 5, by name."""

from __future__ import annotations

import math
from dataclasses import dataclass

from chary.errors import InvalidSetting, check_choice, check_real
from chary.mdp import Setting
from chary.texts import shown

FAMILIES = ("hoeffding", "l1", "kl", "bernstein")
UCBVI_FAMILIES = ("ch", "bf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """A family of bounds with its scale and failure probability.

    `family` is one of `hoeffding`, `l1`, `kl`, `bernstein`, or UCBVI's own `ch` and `bf`; `scale`
    multiplies the bonus (`hoeffding`, `bernstein`, `ch`, `bf` only); `delta` is the probability with which
    any bound of the run may fail.
    """

    family: str = "kl"
    scale: float = 1.0
    delta: float = 0.1

    def __post_init__(self) -> None:
        check_choice("bonus", self.family, FAMILIES + UCBVI_FAMILIES)
        check_real("bonus_scale", self.scale, low=0.0, open_low=True, open_high=True)
        check_real("delta", self.delta, low=0.0, high=1.0, open_low=True, open_high=True)
        if self.family in ("l1", "kl") and self.scale != 1.0:
            raise InvalidSetting(
                f"'bonus_scale' must be 1 with bonus {self.family!r}, which is solved exactly, "
                f"got {shown(self.scale)}."
            )

    @property
    def certified(self) -> bool:
        """Whether the bounds are proved at this scale; others can at most be calibrated."""
        return self.family in ("l1", "kl") or (self.family == "hoeffding" and self.scale >= 1.0)

    @property
    def needs_episodes(self) -> bool:
        """Whether the bounds need the number of episodes; only `kl` holds for any number."""
        return self.family != "kl"

    def log_term(self, setting: Setting, episodes: int) -> float:
        """L = ln(5 S A H N_episodes / delta), with N_episodes the online ones."""
        size = setting.n_states * setting.n_actions * setting.horizon * episodes
        return math.log(5 * size / self.delta)
