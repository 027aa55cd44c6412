"""Any FiniteMDP as a Gymnasium environment; the only module of `chary.envs` that imports Gymnasium."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Discrete
from numpy.typing import NDArray

from chary.envs import make
from chary.errors import InvalidAction, InvalidMDP, OutOfOrder, as_whole, check_seed, check_type
from chary.mdp import FiniteMDP
from chary.texts import shown


class AllowedActions(Discrete):
    """The A actions of an MDP; `sample()` draws only those allowed in the present state.

    Every action belongs to the space, whatever the state; `TabularEnv.step` refuses one that is not allowed.
    """

    def __init__(self, n: int) -> None:
        super().__init__(n)
        self._present = np.ones(n, dtype=np.int8)

    def attend(self, mask: NDArray[np.int8]) -> None:
        """Draw from the actions of `mask`, (A,), from now on."""
        self._present = mask.copy()

    def sample(self, mask: NDArray[np.int8] | None = None, probability: Any = None) -> np.int64:
        """Draw one action: from `mask` or `probability` if given, otherwise among those allowed now."""
        if mask is None and probability is None and self._present.any():
            mask = self._present
        return np.int64(super().sample(mask=mask, probability=probability))


class TabularEnv(gymnasium.Env[np.int64, np.int64]):
    """A FiniteMDP that is played step by step.

    Observations are states, rewards are in the problem's units. `info` contains `action_mask`, an int8 array
    of shape (A,) with 1 for every action allowed in the present state (all 0 in a terminal state, which
    Gymnasium's `sample(mask)` accepts), and after a step `scaled_reward`, the same reward in [0, 1]. A
    terminal state ends an episode by `terminated`; the horizon by `truncated`, unless the last state is
    terminal.

    All randomness of an episode is one row of uniforms, `u = np_random.random(H + 1)`, drawn by `reset`: u[0]
    selects the first state and u[t + 1] the successor of step t, each by the inverse of the cumulative
    probabilities. The compiled driver draws the same row, so both play the same episode from the same
    seed.

    Raises:
        InvalidMDP: if `mdp` is not a FiniteMDP.

    Example:
        >>> from chary.envs import riverswim
        >>> env = TabularEnv(riverswim())
        >>> env.reset(seed=0)[0]
        np.int64(0)
    """

    # gymnasium.Env declares metadata as an instance attribute, though every environment sets it on the class.
    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012

    def __init__(self, mdp: FiniteMDP, render_mode: None = None) -> None:
        way_out = "Use gymnasium.make for a name."
        check_type("mdp", mdp, FiniteMDP, "a FiniteMDP", error=InvalidMDP, way_out=way_out)
        self.render_mode = render_mode
        self.mdp = mdp
        self._actions = AllowedActions(mdp.n_actions)
        self.action_space = self._actions
        self.observation_space = Discrete(mdp.n_states)
        self._masks = mdp.setting.allowed.astype(np.int8)
        self._start_cumulative = np.cumsum(mdp.start)
        self._last_start = int(np.flatnonzero(mdp.start)[-1])
        self._uniforms = np.zeros(0)
        self._state = 0
        self._t = 0
        self._playing = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.int64, dict[str, Any]]:
        """Begin an episode; with `seed`, one that depends only on it.

        Raises:
            InvalidSetting: if the seed is not a whole number >= 0.
        """
        super().reset(seed=None if seed is None else check_seed(seed))
        self._uniforms = self.np_random.random(self.mdp.horizon + 1)
        # side="right": a uniform equal to a cumulative step belongs to the next state, as in the compiled
        # driver.
        first = int(np.searchsorted(self._start_cumulative, self._uniforms[0], side="right"))
        self._state = min(first, self._last_start)
        self._t = 0
        self._playing = True
        return np.int64(self._state), self._info()

    def step(self, action: np.int64) -> tuple[np.int64, float, bool, bool, dict[str, Any]]:
        """Play `action` in the present state.

        Raises:
            OutOfOrder: if no episode has begun, or the last one is over.
            InvalidAction: if the action does not exist or is not allowed here; nothing has happened then.
        """
        if not self._playing:
            raise OutOfOrder(
                "'step' must follow 'reset' and come before the end of the episode. Call reset() first."
            )
        mdp = self.mdp
        a = self._checked(action)
        pair = mdp.setting.pair_index[self._state, a]
        begin, end = int(mdp.row_start[pair]), int(mdp.row_start[pair + 1])
        u = self._uniforms[self._t + 1]
        i = begin + min(int(np.searchsorted(mdp.cumulative[begin:end], u, side="right")), end - begin - 1)
        self._state = int(mdp.successor[i])
        self._t += 1
        scaled = float(mdp.reward[i])
        terminated = bool(mdp.setting.terminal[self._state])
        truncated = self._t == mdp.horizon and not terminated
        self._playing = not (terminated or truncated)
        raw = mdp.scale.low + mdp.scale.span * scaled
        return np.int64(self._state), raw, terminated, truncated, {**self._info(), "scaled_reward": scaled}

    def _checked(self, action: object) -> int:
        A = self.mdp.n_actions
        a = as_whole(action)
        if a is None or not 0 <= a < A:
            got = action if a is None else a
            raise InvalidAction(f"'action' must be a whole number in 0..{A - 1}, got {shown(got)}.")
        if not self._masks[self._state, a]:
            allowed = ", ".join(str(b) for b in np.flatnonzero(self._masks[self._state]))
            raise InvalidAction(f"'action' must be allowed in state {self._state} ({allowed}), got {a}.")
        return a

    def _info(self) -> dict[str, Any]:
        mask = self._masks[self._state]
        self._actions.attend(mask)
        return {"action_mask": mask.copy()}


def make_env(problem: str, render_mode: None = None, **options: Any) -> TabularEnv:
    """Return the environment of a problem by name, with the options of `chary.envs.make`."""
    return TabularEnv(make(problem, **options), render_mode=render_mode)
