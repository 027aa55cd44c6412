"""Several critics of one problem as a lower and an upper one, apart by their disagreement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import final

import numpy as np
from numpy.typing import ArrayLike

from chary.arrays import Floats
from chary.critics.protocol import Array, Critic, check_critic_type, checked_q_values
from chary.errors import InvalidSetting, check_choice, check_real
from chary.texts import shown

HOW = ("minmax", "mean-sd")


@final
class EnsembleCritics:
    """At least two separately trained models, turned into a lower and an upper critic.

    With `how="minmax"` these are the smallest and the largest value of any member; with `how="mean-sd"` the
    mean minus and plus `width` sample standard deviations. Agreement proves nothing, so bounds of an
    ensemble are uncertified until they are calibrated.

    Args:
        critics: The members, at least two different ones.
        how: `minmax` or `mean-sd`.
        width: The number of standard deviations, > 0, for `mean-sd` only.

    Raises:
        InvalidSetting: if there are too few members, one is not a critic, or `width` does not fit `how`.
        UnknownName: if there is no such `how`.

    Example:
        >>> from chary.critics import FunctionCritic
        >>> members = [FunctionCritic(lambda x, k=k: x * [1, k], n_actions=2) for k in (1, 3)]
        >>> lower, upper = EnsembleCritics(members).q_bounds([[2.0]])
        >>> lower, upper
        (array([[2., 2.]]), array([[2., 6.]]))
    """

    def __init__(self, critics: Sequence[Critic], *, how: str = "minmax", width: float | None = None) -> None:
        if not isinstance(critics, Sequence) or isinstance(critics, str):
            raise InvalidSetting(f"'critics' must be a list of critics, got {type(critics).__name__}.")
        for i, critic in enumerate(critics):
            check_critic_type(f"critics[{i}]", critic)
        if len({id(critic) for critic in critics}) < max(len(critics), 2):
            raise InvalidSetting(
                f"'critics' must be at least two different models, got {len(critics)} of which "
                f"{len({id(critic) for critic in critics})} differ. Train one more from another seed."
            )
        self.how = check_choice("how", how, HOW)
        if how == "mean-sd":
            way_out = "It is a number of standard deviations, for example 2.0."
            width = check_real("width", width, low=0.0, open_low=True, open_high=True, way_out=way_out)
        elif width is not None:
            raise InvalidSetting(
                f"'width' belongs to how='mean-sd' only, got {shown(width)} with 'minmax'. Leave it out."
            )
        self.width = width
        self.critics = tuple(critics)
        self.lower: Critic = EnsembleSide(self, "lower")
        self.upper: Critic = EnsembleSide(self, "upper")

    def __repr__(self) -> str:
        return f"EnsembleCritics(of {len(self.critics)}, how={self.how!r})"

    def q_bounds(self, observations: ArrayLike, n_actions: int | None = None) -> tuple[Floats, Floats]:
        """Return the lower and the upper values, (B, A) each; every member is called once.

        Raises:
            InvalidData: naming the member whose values have another shape or are not finite.
        """
        first = checked_q_values(self.critics[0], observations, n_actions)
        rest = [checked_q_values(critic, observations, first.shape[1]) for critic in self.critics[1:]]
        values = np.stack([first, *rest])
        if self.width is None:
            return values.min(axis=0), values.max(axis=0)
        mean, spread = values.mean(axis=0), self.width * values.std(axis=0, ddof=1)
        return mean - spread, mean + spread


@final
@dataclass(frozen=True, slots=True)
class EnsembleSide:
    """The lower or the upper critic of an ensemble."""

    ensemble: EnsembleCritics = field(repr=False)
    side: str

    def q_values(self, observations: Array, /) -> Floats:
        """Return this side's values, (B, A)."""
        lower, upper = self.ensemble.q_bounds(observations)
        return lower if self.side == "lower" else upper
