"""Critics as a plan: the lower critic's best action is the baseline; charges are differences of bounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from chary.arrays import Bools, Floats
from chary.critics.bounds import CriticBounds
from chary.critics.protocol import FAULTS, Array, as_masks, as_numbers, as_observations
from chary.errors import CharyError, InvalidAction, InvalidData, InvalidSetting, OutOfOrder, check_integer
from chary.texts import shown

Allowed = Callable[[Array], ArrayLike]


class Prices(NamedTuple):
    """The baseline and the charge of every action at B observations; inf if an action is not allowed."""

    baseline: NDArray[np.int64]  # (B,)
    charges: Floats  # (B, A)


@final
class CriticPlan:
    """A `chary.shield.Plan` over observations, made of critics.

    The baseline is pi(s) = argmax_a q_lower(s, a). The charge of `a` is max(v_upper(s) - q_lower(s, a), 0)
    with v_upper(s) = q_upper(s, pi(s)), and 0 for the baseline's own action, whose true gap is 0. If the
    critics cross at the baseline's action, v_upper is the larger value, which can only increase a charge.
    Results are cached by the bytes of the observation, so the critics are called once for each.

    Args:
        bounds: The lower and the upper critic.
        n_actions: The number A of actions.
        allowed: Which actions may be played at an observation, as (A,) booleans; all by default.
        explorer: The function behind `explore`; without it the plan is for proposals only.
        memory: The number of observations in the cache.

    Raises:
        InvalidSetting: if an option is out of range or of the wrong type.

    Example:
        >>> from chary.critics import CriticBounds, FunctionCritic
        >>> q = FunctionCritic(lambda x: x * [1.0, 4.0], n_actions=2)
        >>> plan = CriticPlan(CriticBounds.from_point(q, accept="uncertified"), n_actions=2)
        >>> s = np.array([0.5])
        >>> plan.baseline(0, s), plan.charge(0, s, 0), plan.charge(0, s, 1)
        (1, 1.5, 0.0)
    """

    def __init__(
        self,
        bounds: CriticBounds,
        *,
        n_actions: int,
        allowed: Allowed | None = None,
        explorer: Callable[[Array], int] | None = None,
        memory: int = 1024,
    ) -> None:
        if not isinstance(bounds, CriticBounds):
            raise InvalidSetting(
                f"'bounds' must be CriticBounds, got {type(bounds).__name__}. "
                "Use CriticBounds(lower, upper, level=...)."
            )
        for name, function in (("allowed", allowed), ("explorer", explorer)):
            if function is not None and not callable(function):
                raise InvalidSetting(f"{name!r} must be a function of an observation, got {shown(function)}.")
        self.bounds = bounds
        self.n_actions = check_integer("n_actions", n_actions, minimum=1)
        self._allowed = allowed
        self._explorer = explorer
        self._size = check_integer("memory", memory, minimum=1)
        self._memory: dict[tuple[object, ...], tuple[int, Floats]] = {}

    def explore(self, chain: int, clock: int, s: ArrayLike) -> int:
        """Return the explorer's action.

        Raises:
            OutOfOrder: if the plan has no explorer.
        """
        if self._explorer is None:
            raise OutOfOrder(
                "'explore' needs an explorer, got a plan for proposals only. Decide with proposal=..., or "
                "build the plan with explorer=..."
            )
        return self._explorer(as_numbers("s", s))

    def baseline(self, t: int, s: ArrayLike) -> int:
        """Return the lower critic's best allowed action; `t` has no effect."""
        return int(self.price(as_numbers("s", s)[np.newaxis]).baseline[0])

    def charge(self, t: int, s: ArrayLike, a: int) -> float:
        """Return max(v_upper(s) - q_lower(s, a), 0), 0 for the baseline's own action, inf if not allowed.

        Raises:
            InvalidAction: if there is no action `a`.
        """
        action = check_integer("a", a, minimum=0, error=InvalidAction)
        if action >= self.n_actions:
            raise InvalidAction(f"'a' must lie in 0..{self.n_actions - 1}, got {action}.")
        return float(self.price(as_numbers("s", s)[np.newaxis]).charges[0, action])

    def price(self, observations: ArrayLike, masks: ArrayLike | None = None) -> Prices:
        """Return baseline and charges at (B, ...) observations; critics are called once for all new ones.

        Args:
            observations: One row per observation.
            masks: Which actions are allowed, (B, A), instead of `allowed`.

        Raises:
            InvalidData: if an observation, a mask or a critic's result is invalid; then nothing is cached.
        """
        seen = as_observations("observations", observations)
        given = None if masks is None else as_masks("masks", masks, (len(seen), self.n_actions))
        keys = [_key(s, None if given is None else given[i]) for i, s in enumerate(seen)]
        known = {key: self._memory[key] for key in keys if key in self._memory}
        new = {key: i for i, key in enumerate(keys) if key not in known}
        if new:
            known |= self._asked(new, seen, given)
        rows = [known[key] for key in keys]
        for key in new:
            if len(self._memory) >= self._size:
                del self._memory[next(iter(self._memory))]
            self._memory[key] = known[key]
        return Prices(np.array([a for a, _ in rows]), np.stack([charges for _, charges in rows]))

    def _asked(
        self, new: dict[tuple[object, ...], int], seen: Array, given: Bools | None
    ) -> dict[tuple[object, ...], tuple[int, Floats]]:
        index = list(new.values())
        observations = seen[index]
        masks = self._masks(observations) if given is None else given[index]
        values = self.bounds.evaluate(observations, self.n_actions, masks)
        rows = np.arange(len(index))
        best = np.maximum(values.v_upper, values.q_lower[rows, values.baseline])
        with np.errstate(over="ignore"):
            charges = np.maximum(best[:, np.newaxis] - values.q_lower, 0.0)
        charges[rows, values.baseline] = 0.0
        if masks is not None:
            charges[~masks] = np.inf
        return {key: (int(values.baseline[i]), charges[i]) for i, key in enumerate(new)}

    def _masks(self, observations: Array) -> Bools | None:
        if self._allowed is None:
            return None
        try:
            masks = [self._allowed(s) for s in observations]
        except CharyError:
            raise
        except FAULTS as error:
            raise InvalidData(
                f"'allowed' must work for every observation, got {type(error).__name__}: {error}."
            ) from error
        return np.stack([as_masks("allowed", mask, (self.n_actions,)) for mask in masks])


def _key(s: Array, mask: Bools | None) -> tuple[object, ...]:
    return s.dtype.str, s.shape, s.tobytes(), None if mask is None else mask.tobytes()
