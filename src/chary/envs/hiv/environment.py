"""The HIV simulator as a Gymnasium environment, `chary/HIV-v0`; needs Gymnasium."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray

from chary.arrays import Floats
from chary.envs.hiv import parameters as hiv
from chary.envs.hiv.simulator import N_ACTIONS, N_CONCENTRATIONS, check_states, seen_of, step
from chary.errors import InvalidSetting, OutOfOrder, check_truth
from chary.texts import shown

Observation = NDArray[np.float32]


class HIVEnv(gymnasium.Env[Observation, np.int64]):
    """Treat a patient for 200 times five days.

    An observation is log10 of the six concentrations T1, T2, T1*, T2*, V, E, as float32 within fixed bounds;
    an action is 0 nothing, 1 reverse transcriptase inhibitor, 2 protease inhibitor, 3 both. Nothing is random
    but, with `spread`, the start, and nothing ends early: the 200th step truncates. `info["state"]` contains
    the concentrations, and after a step `info["raw_reward"]` the reward in its own units.

    Args:
        patient: `base`, or a number in 0..5.
        standardise: Whether observations and rewards have their mean subtracted and are divided by their
            deviation.
        spread: An episode starts from the untreated state with each concentration times its own factor; log10
            of the factors is uniform within -spread..spread, in [0, 1].
        render_mode: Must be None; there is nothing to draw.

    Raises:
        UnknownName: if there is no such patient.
        InvalidSetting: if `standardise` is not a bool, or `spread` lies outside its range.

    Example:
        >>> env = HIVEnv(patient=5)
        >>> observation, info = env.reset()
        >>> float(info["state"][0])
        163573.0
    """

    # gymnasium.Env declares metadata as an instance attribute, though every environment sets it on the class.
    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012

    def __init__(
        self,
        patient: str | int = "base",
        *,
        standardise: bool = True,
        spread: float = 0.0,
        render_mode: None = None,
    ) -> None:
        self._standardise = check_truth("standardise", standardise)
        self.spread = hiv.check_spread(spread)
        self.patient = hiv.patient(patient)
        self.render_mode = render_mode
        low, high = (np.full(N_CONCENTRATIONS, bound) for bound in (hiv.LOG_LOW, hiv.LOG_HIGH))
        if standardise:
            low, high = ((bound - hiv.OBSERVATION_MEAN) / hiv.OBSERVATION_STD for bound in (low, high))
        self._low, self._high = low.astype(np.float32), high.astype(np.float32)
        self.observation_space = Box(self._low, self._high, dtype=np.float32)
        self.action_space = Discrete(N_ACTIONS)
        self._state: Floats = hiv.START.copy()
        self._t = 0
        self._playing = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode with an untreated patient, or with the six concentrations `options["state"]`.

        Raises:
            InvalidData: if a concentration is negative or not finite, or there are not six.
            InvalidSetting: if there is another option.
        """
        given = {} if options is None else options
        unknown = [key for key in given if key != "state"] if isinstance(given, dict) else [given]
        if unknown:
            raise InvalidSetting(f"'options' must contain nothing but 'state', got {shown(unknown[0])}.")
        state = check_states(given.get("state", hiv.START), dimensions=1)
        super().reset(seed=seed)
        if self.spread and "state" not in given:
            state = hiv.start_of(self.np_random.random(N_CONCENTRATIONS), self.spread)
        self._state, self._t, self._playing = state, 0, True
        return self._observation(), {"state": state.copy()}

    def step(self, action: np.int64) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Treat the patient by `action` for five days.

        Raises:
            OutOfOrder: if no episode has begun, or the last one is over.
            InvalidAction: if there is no such action; then nothing has changed.
            InvalidData: if the equations cannot be integrated from here; then nothing has changed.
        """
        if not self._playing:
            raise OutOfOrder(
                "'step' must follow 'reset' and come before the end of the episode. Call reset() first."
            )
        self._state, raw = step(self._state, action, patient=self.patient.name)
        self._t += 1
        truncated = self._t == hiv.HORIZON
        self._playing = not truncated
        reward = self.patient.standardised(raw) if self._standardise else raw
        info = {"state": self._state.copy(), "raw_reward": raw}
        return self._observation(), reward, False, truncated, info

    def _observation(self) -> Observation:
        seen = seen_of(self._state, standardise=self._standardise).astype(np.float32)
        # Rounding to float32 must not leave the space.
        return np.minimum(np.maximum(seen, self._low), self._high)
