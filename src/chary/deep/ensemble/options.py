"""The options of the paired ensemble, checked once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from chary.errors import InvalidSetting, check_choice, check_integer, check_real
from chary.texts import shown

EXPLORERS = ("upper", "paired", "thompson")
# How the constants of prices were set: `chary.deep.calibrate` measures them.
CONSTANTS = {
    "given": "the constants of its prices, which were given and not measured for this problem",
    "rollouts": "the constants of its prices, measured by rollouts of a simulator",
    "trials": "the constants of its prices, measured by single random deviations in episodes set aside",
    "returns": "the constants of its prices, measured by returns of episodes without deviations",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EnsembleOptions:
    """The options of the learner `ensemble`, docs/algorithm.md section 13; prices are in units of reward.

    Args:
        members: Networks of the ensemble, E >= 2; one shared batch teaches all of them.
        learning_rate: Of the members, > 0; `DeepOptions.learning_rate` is that of other networks.
        observed_share: Share of the observed return-to-go in a target, in [0, 1], for steps after which
            nothing deviated.
        observed_for: Episodes for which an observed return counts, >= 0.
        explorer: `upper` plays the largest mean + `optimism` standard deviations of the values, `paired` the
            same of differences to the baseline's action; `thompson` plays by one member per episode.
        optimism: Of the explorers `upper` and `paired`, in standard deviations over the members, >= 0.
        spread: The half-width of a step's price: this multiple of the standard deviation over the members,
            >= 0, ...
        floor: ... plus this, d >= 0, for what members do not disagree about.
        offset: Added to every mean gap before it is booked, >= 0.
        z: Weight of the pooled half-widths in the ledger, >= 0: `z` standard deviations.
        margin: By how much an episode may return less than the best one, minus what it booked, before the
            best networks play again, >= 0.
        window: Episodes whose mean return is compared, >= 1. 1 compares single returns, which is right where
            start and environment are deterministic; more compare means with an interval.
        retreat: Episodes that the best networks play then, >= 1, doubling with each time ...
        longest_retreat: ... up to this, >= `retreat`.
        constants: How `floor`, `z` and `margin` were set: `given`, or by `rollouts`, `trials` or `returns`,
            as `chary.deep.calibrate.fit` says.

    Raises:
        InvalidSetting: if a number lies outside its range.
        UnknownName: if there is no such explorer.

    Example:
        >>> EnsembleOptions(members=5).half_width
        1.6448536269514722
    """

    members: int = 10
    learning_rate: float = 1.5e-3
    observed_share: float = 0.5
    observed_for: int = 5
    explorer: str = "upper"
    optimism: float = 1.0
    spread: float = 3.3
    floor: float = 16.5
    offset: float = 2.0
    z: float = 3.0
    margin: float = 5.0
    window: int = 1
    retreat: int = 2
    longest_retreat: int = 32
    constants: str = "given"

    def __post_init__(self) -> None:
        check_integer("members", self.members, minimum=2)
        check_choice("explorer", self.explorer, EXPLORERS)
        check_choice("constants", self.constants, CONSTANTS)
        check_real("learning_rate", self.learning_rate, low=0.0, open_low=True, open_high=True)
        check_real("observed_share", self.observed_share, low=0.0, high=1.0)
        check_integer("observed_for", self.observed_for, minimum=0)
        for name in ("optimism", "spread", "floor", "offset", "z", "margin"):
            check_real(name, getattr(self, name), low=0.0, open_high=True)
        check_integer("window", self.window, minimum=1)
        check_integer("retreat", self.retreat, minimum=1)
        check_integer("longest_retreat", self.longest_retreat, minimum=1)
        if self.longest_retreat < self.retreat:
            raise InvalidSetting(
                f"'longest_retreat' must be at least 'retreat', {self.retreat}, got {self.longest_retreat}."
            )

    @property
    def half_width(self) -> float:
        """The standard deviations of a half-width: it covers 95 % of the steps, one-sided."""
        return 1.6448536269514722


def ensemble_options(given: object) -> EnsembleOptions:
    """Return the options that a value or a table describes.

    Raises:
        InvalidSetting: if it is neither, or an option does not exist or is out of range.

    Example:
        >>> ensemble_options({"explorer": "thompson"}).explorer
        'thompson'
    """
    if isinstance(given, EnsembleOptions):
        return given
    if not isinstance(given, Mapping):
        raise InvalidSetting(f"'ensemble' must be EnsembleOptions or a table of them, got {shown(given)}.")
    known = EnsembleOptions.__dataclass_fields__
    for name in given:
        check_choice("option of 'ensemble'", name, known)
    # 5 and 5.0 are one number and must give one run.
    options: dict[str, Any] = {
        name: float(value)
        if known[name].type == "float" and isinstance(value, int) and not isinstance(value, bool)
        else value
        for name, value in given.items()
    }
    return EnsembleOptions(**options)
