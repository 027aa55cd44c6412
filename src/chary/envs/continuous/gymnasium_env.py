"""Any problem with continuous states as a Gymnasium environment; needs Gymnasium."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray

from chary.arrays import Floats
from chary.envs.continuous.arithmetic import FLOATS
from chary.envs.continuous.equations import Equations, State
from chary.errors import InvalidAction, InvalidData, InvalidSetting, OutOfOrder, as_whole, check_type
from chary.texts import shown

Observation = NDArray[np.float32]


class ContinuousEnv(gymnasium.Env[Observation, np.int64]):
    """A problem of `chary.envs.continuous`, played step by step.

    Observations are float32 vectors of size about 1, rewards lie in [0, 1]. `info["state"]` contains the
    state in its own units. All randomness of an episode is one row of uniforms drawn by `reset`. A fall ends
    an episode by `terminated`, the horizon by `truncated`.

    Args:
        equations: The problem, such as `CartPole()`.
        render_mode: Must be None; there is nothing to draw.

    Raises:
        InvalidSetting: if `equations` is not such a problem.

    Example:
        >>> from chary.envs.continuous import Glucose
        >>> env = ContinuousEnv(Glucose())
        >>> observation, info = env.reset(seed=0)
        >>> round(float(info["state"][0]))
        110
    """

    # gymnasium.Env declares metadata as an instance attribute, though every environment sets it on the class.
    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012

    def __init__(self, equations: Equations, *, render_mode: None = None) -> None:
        check_type("equations", equations, Equations, "a problem of chary.envs.continuous")
        self.equations = equations
        self.render_mode = render_mode
        self._low, self._high = (np.array(each, np.float32) for each in (equations.low, equations.high))
        self.observation_space = Box(self._low, self._high, dtype=np.float32)
        self.action_space = Discrete(len(equations.actions))
        self._state: State = equations.start(np.full(equations.draws, 0.5))
        self._t = 0
        self._playing = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode at a drawn state, or at `options["state"]`.

        Raises:
            InvalidData: if the state given is not as many finite numbers as the problem has.
            InvalidSetting: if there is another option.
        """
        given = {} if options is None else options
        unknown = [key for key in given if key != "state"] if isinstance(given, dict) else [given]
        if unknown:
            raise InvalidSetting(f"'options' must contain nothing but 'state', got {shown(unknown[0])}.")
        chosen = self._checked_state(given["state"]) if "state" in given else None
        super().reset(seed=seed)
        drawn = self.equations.start(self.np_random.random(self.equations.draws))
        self._state = tuple(map(float, drawn)) if chosen is None else chosen
        self._t, self._playing = 0, True
        return self._observation(), {"state": np.array(self._state)}

    def step(self, action: np.int64) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Play `action`.

        Raises:
            OutOfOrder: if no episode has begun, or the last one is over.
            InvalidAction: if there is no such action; then nothing has changed.
        """
        if not self._playing:
            raise OutOfOrder(
                "'step' must follow 'reset' and come before the end of the episode. Call reset() first."
            )
        actions = len(self.equations.actions)
        a = as_whole(action)
        if a is None or not 0 <= a < actions:
            raise InvalidAction(f"'action' must be a whole number in 0..{actions - 1}, got {shown(action)}.")
        self._state, reward, ended = self.equations.step(FLOATS, self._state, a)
        self._t += 1
        terminated = bool(ended)
        truncated = self._t == self.equations.horizon and not terminated
        self._playing = not (terminated or truncated)
        return self._observation(), float(reward), terminated, truncated, {"state": np.array(self._state)}

    def _checked_state(self, given: object) -> State:
        names = self.equations.quantities
        try:
            state: Floats = np.array(given, np.float64)
        except (TypeError, ValueError, OverflowError):
            raise InvalidData(f"'state' must contain {len(names)} numbers, got {shown(given)}.") from None
        if state.shape != (len(names),) or not np.isfinite(state).all():
            raise InvalidData(
                f"'state' must contain {len(names)} finite numbers ({'; '.join(names)}), got {shown(given)}."
            )
        return tuple(state.tolist())

    def _observation(self) -> Observation:
        seen = np.array(self.equations.observe(FLOATS, self._state), np.float32)
        # Rounding to float32 must not leave the space.
        return np.minimum(np.maximum(seen, self._low), self._high)


def make_env(problem: str, render_mode: None = None, **options: Any) -> ContinuousEnv:
    """Return the environment of a problem by name, with its options.

    Raises:
        UnknownName: if there is no such problem, or it has no such option.
        InvalidSetting: if an option is out of range.
    """
    from chary.envs.continuous import equations_of

    return ContinuousEnv(equations_of(problem, **options), render_mode=render_mode)
