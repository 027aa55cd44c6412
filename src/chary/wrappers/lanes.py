"""The sub-environments of a vector environment as lanes of episodes, whatever its autoreset mode."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from types import NoneType
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.vector import VectorEnv
from gymnasium.vector.utils import iterate
from numpy.typing import NDArray

from chary.agents.protocol import Transition
from chary.errors import InvalidData, InvalidSetting, OutOfOrder, check_type
from chary.texts import shown
from chary.wrappers.spaces import Mask, action_mask, as_seed, discrete_size, state_of

# The values of gymnasium.vector.AutoresetMode, which Gymnasium 1.0 does not have.
NEXT_STEP, SAME_STEP, DISABLED = "NextStep", "SameStep", "Disabled"
OLD = gymnasium.__version__.startswith("1.0.")


class Move(NamedTuple):
    """One step of one lane; `truncated` is True if its episode was cut off there."""

    lane: int
    transition: Transition
    truncated: bool

    @property
    def ended(self) -> bool:
        """Whether this step was the episode's last."""
        return self.transition.terminated or self.truncated


class Answer(NamedTuple):
    """The result of a step of a vector environment, raw and lane by lane.

    `moves` are the steps played; `begun` are the lanes in which an episode has begun since.
    """

    raw: tuple[Any, Any, Any, Any, dict[str, Any]]
    moves: list[Move]
    begun: list[int]


class VectorLanes:
    """The episodes of the lanes of a vector environment; no transition crosses a reset.

    A lane is `playing` from the reset that begins an episode to the step that ends it. `state[i]` and
    `mask[i]` are its present state and mask.

    Raises:
        InvalidSetting: if `envs` is not a vector environment, or does not declare its autoreset mode.
    """

    def __init__(self, envs: VectorEnv[Any, Any, Any]) -> None:
        way_out = "Use SyncVectorEnv for a list of environments."
        check_type("envs", envs, VectorEnv, "a gymnasium.vector.VectorEnv", way_out=way_out)
        self._envs = envs
        self._mode = _autoreset_mode(envs)
        self.n_actions = discrete_size("action_space", envs.single_action_space)
        self.n = int(envs.num_envs)
        self.playing: NDArray[np.bool_] = np.zeros(self.n, dtype=np.bool_)
        self.state: list[Any] = [None] * self.n
        self.mask: list[Mask | None] = [None] * self.n
        self._reset = False

    def reset(
        self, seed: int | list[int | None] | None, options: dict[str, Any] | None
    ) -> tuple[Any, dict[str, Any], list[int]]:
        """Reset all lanes, or those of `options["reset_mask"]`, and return them with the result.

        Raises:
            InvalidSetting: if the mask is not one boolean per lane.
        """
        which = self.which(options)
        # Gymnasium removes the mask from the dictionary it receives.
        observations, infos = self._envs.reset(
            seed=seed,  # type: ignore[arg-type]  # its environments take a list, too
            options=None if options is None else dict(options),
        )
        begun = [int(i) for i in np.flatnonzero(which)]
        self.playing[which] = True
        self._reset = True
        self._look(observations, infos, begun)
        return observations, infos, begun

    def seeds(self, seed: object) -> int | list[int | None] | None:
        """Return one seed for all lanes or one for each, as Gymnasium takes them.

        Raises:
            InvalidSetting: if one is neither None nor a whole number >= 0.
        """
        if not isinstance(seed, (list, tuple)):
            return as_seed(seed)
        if len(seed) != self.n:
            raise InvalidSetting(
                f"'seed' must contain one number for each of {self.n} lanes, got {len(seed)}."
            )
        return [as_seed(each) for each in seed]

    def reset_ended(self) -> list[int]:
        """Reset the lanes that wait for it, with autoreset DISABLED, and return them."""
        if self._mode != DISABLED or self.playing.all():
            return []
        return self.reset(None, {"reset_mask": ~self.playing})[2]

    def any_actions(self) -> list[int]:
        """Return the lowest action allowed in each lane."""
        return [0 if mask is None else int(mask.argmax()) for mask in self.mask]

    def which(self, options: dict[str, Any] | None) -> NDArray[np.bool_]:
        """Return which lanes a reset with these options concerns."""
        check_type("options", options, (dict, NoneType), "a dictionary")
        if options is None or "reset_mask" not in options:
            return np.ones(self.n, dtype=np.bool_)
        if OLD:
            raise InvalidSetting(
                "'reset_mask' must be left out with Gymnasium 1.0, which resets all lanes. Remove it."
            )
        which = options["reset_mask"]
        fits = isinstance(which, np.ndarray) and which.dtype == np.bool_ and which.shape == (self.n,)
        if not fits or not which.any():
            raise InvalidSetting(
                f"'reset_mask' must be booleans of shape ({self.n},), true for some lane, got {shown(which)}."
            )
        if not (self._reset or which.all()):
            raise OutOfOrder("'reset_mask' must name every lane in the first reset. Leave it out.")
        return np.array(which)

    def check_ready(self, horizon: int | None, steps: Sequence[int]) -> None:
        """Raise unless a step can be taken: every lane reset, and none beyond the horizon.

        Raises:
            OutOfOrder: if lanes wait for a reset.
            InvalidSetting: if an episode continues after `horizon` steps.
        """
        if not self._reset:
            raise OutOfOrder("'step' must follow 'reset'. Call reset() first.")
        if self._mode == DISABLED and not self.playing.all():
            waiting = ", ".join(str(i) for i in np.flatnonzero(~self.playing))
            raise OutOfOrder(
                f"'step' must find every lane in an episode, got lanes {waiting} at their end. "
                'Call reset(options={"reset_mask": terminated | truncated}) first.'
            )
        for i, t in enumerate(steps):
            if horizon is not None and self.playing[i] and t >= horizon:
                raise InvalidSetting(
                    f"'envs' must end every episode within the guard's {horizon} steps, got lane {i} still "
                    "going. Wrap each environment in gymnasium.wrappers.TimeLimit(env, "
                    f"max_episode_steps={horizon})."
                )

    def step(self, actions: Sequence[int]) -> Answer:
        """Play an action in every lane; a lane between episodes is reset instead."""
        envs = self._envs
        raw = envs.step(np.array(actions, dtype=envs.action_space.dtype))
        observations, rewards, terminated, truncated, infos = raw
        before = [int(i) for i in np.flatnonzero(self.playing)]
        begun = [int(i) for i in np.flatnonzero(~self.playing)]
        left = list(self.state)
        self._look(observations, infos, range(self.n))
        moves = []
        for i in before:
            over = bool(terminated[i]) or bool(truncated[i])
            reached = self.state[i]
            if over and self._mode == SAME_STEP:
                reached = self._final(infos, i)
                begun.append(i)
            step = Transition(left[i], int(actions[i]), float(rewards[i]), reached, bool(terminated[i]))
            moves.append(Move(i, step, over and not step.terminated))
            self.playing[i] = not over
        self.playing[begun] = True
        return Answer(raw, moves, sorted(begun))

    def halt(self) -> None:
        """Drop all episodes: afterwards all lanes must be reset."""
        self.playing[:] = False
        self._reset = False

    def _look(self, observations: Any, infos: dict[str, Any], lanes: Sequence[int] | range) -> None:
        """Store the present states and masks of the lanes."""
        space = self._envs.single_observation_space
        seen = list(iterate(self._envs.observation_space, observations))
        masks, have = infos.get("action_mask"), infos.get("_action_mask")
        for i in lanes:
            self.state[i] = state_of(space, seen[i])
            here = masks is not None and (have is None or bool(have[i]))
            self.mask[i] = action_mask(masks[i], self.n_actions) if here and masks is not None else None

    def _final(self, infos: dict[str, Any], lane: int) -> Any:
        final = infos.get("final_obs")
        if final is None or final[lane] is None:
            raise InvalidData(
                f"info['final_obs'] must contain the last observation of lane {lane}, whose episode ended. "
                "Use another autoreset mode."
            )
        return state_of(self._envs.single_observation_space, final[lane])


def _autoreset_mode(envs: VectorEnv[Any, Any, Any]) -> str:
    mode = envs.metadata.get("autoreset_mode")
    if mode is None and OLD:
        # It had one mode only, and no name for it.
        return NEXT_STEP
    name = mode.value if isinstance(mode, Enum) else mode
    if name not in (NEXT_STEP, SAME_STEP, DISABLED):
        raise InvalidSetting(
            f"'envs' must declare its autoreset mode, got metadata['autoreset_mode'] = {mode!r}. "
            "Set it to a gymnasium.vector.AutoresetMode."
        )
    return str(name)
