"""Interrupts at the lines of wrappers: nothing that did not happen is learnt, and no episode is left open.

After each interrupt the guard is poisoned, and says so; or the wrapper goes on, perhaps after a reset.
CHARY_TESTS=full interrupts every line; the short profile some of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Discrete
from gymnasium.vector import SyncVectorEnv
from tests.conftest import FULL
from tests.faults.interrupts import PACKAGE, interrupted, lines_of

from chary import CharyUCBVI, Setting, TabularAgent, rollout_many
from chary.agents.protocol import Transition
from chary.errors import OutOfOrder
from chary.wrappers import Shielded, ShieldedVector

HORIZON = 3
SETTING = Setting.declare(n_states=3, n_actions=2, horizon=HORIZON)
WITHIN = (PACKAGE, __file__)
Step = tuple[int, int, float, int]


class Numbered(gymnasium.Env[Any, Any]):
    """An environment in which no two steps have the same reward; it writes down all of them."""

    observation_space = Discrete(3)
    action_space = Discrete(2)

    def __init__(self, log: list[Step]) -> None:
        self.log = log

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        self.state, self.t = 0, 0
        return self.state, {}

    def step(self, action: Any) -> tuple[int, float, bool, bool, dict[str, Any]]:
        before, self.t = self.state, self.t + 1
        self.state = (before + 1 + int(action)) % 3
        reward = (len(self.log) + 1) / 1000
        self.log.append((before, int(action), reward, self.state))
        return self.state, reward, False, self.t == HORIZON, {}


class Scene:
    """A guard whose observations are written down beside those of its environments."""

    def __init__(self) -> None:
        self.happened: list[Step] = []
        self.learnt: list[Step] = []
        spec = CharyUCBVI(eta=10.0, bonus="hoeffding", bonus_scale=0.01)
        self.guard = TabularAgent(spec, SETTING, max_episodes=50, generator=np.random.default_rng(1))
        observe = self.guard.observe

        def written(episode: Any, step: Transition, **more: Any) -> None:
            observe(episode, step, **more)
            self.learnt.append((step.state, step.action, step.reward, step.next_state))

        self.guard.observe = written  # type: ignore[method-assign, assignment]


class Single(Scene):
    """One environment."""

    def __init__(self) -> None:
        super().__init__()
        self.env: Any = Shielded(Numbered(self.happened), self.guard)

    def reset(self) -> None:
        self.env.reset(seed=1)

    def step(self) -> None:
        self.env.step(1)


class Vector(Scene):
    """Two lanes."""

    def __init__(self) -> None:
        super().__init__()
        lanes = SyncVectorEnv([lambda: Numbered(self.happened)] * 2)
        self.env: Any = ShieldedVector(lanes, self.guard)

    def reset(self) -> None:
        self.env.reset(seed=1)

    def step(self) -> None:
        self.env.step([1, 0])


CALLS = ("reset", "step", "step", "step", "reset", "step", "reset")
SHARE = 1 if FULL else 29


def until(scene: Any, number: int) -> Callable[[], None]:
    """Make the calls before one of them, and return that one."""
    for name in CALLS[:number]:
        getattr(scene, name)()
    call: Callable[[], None] = getattr(scene, CALLS[number])
    return call


@pytest.mark.parametrize("kind", [Single, Vector])
def test_an_interrupted_wrapper_learns_what_happened_and_leaves_nothing_open(kind: type[Any]) -> None:
    counts: Counter[str] = Counter()
    for number in range(len(CALLS)):
        for line in range(1 + number, lines_of(until(kind(), number), WITHIN) + 1, SHARE):
            scene = kind()
            assert interrupted(until(scene, number), line, KeyboardInterrupt, WITHIN)
            where = f"{CALLS[number]} {number}, line {line}"
            if scene.guard.poisoned:
                counts["poisoned"] += 1
                with pytest.raises(OutOfOrder, match="Load the last save"):
                    scene.reset()
                continue
            # The episode under way goes on, or a reset begins the next one.
            before, played = len(scene.happened), 0
            while played < HORIZON:
                try:
                    scene.step()
                    played += 1
                except OutOfOrder:
                    counts["reset"] += 1
                    scene.reset()
            scene.env.close()
            counts["whole"] += 1
            assert scene.guard.open_episodes == (), where
            assert set(scene.learnt) <= set(scene.happened), where
            assert len(set(scene.learnt)) == len(scene.learnt), where
            assert len(scene.happened) > before
    print(kind.__name__, dict(counts))
    assert min(counts["poisoned"], counts["whole"], counts["reset"]) > 0


def test_an_interrupted_rollout_abandons_what_is_open() -> None:
    def rollout(scene: Scene) -> Callable[[], None]:
        lanes = SyncVectorEnv([lambda: Numbered(scene.happened)] * 2)
        return lambda: list(rollout_many(lanes, scene.guard, episodes=3, seed=1)).clear()

    counts: Counter[str] = Counter()
    for line in range(1, lines_of(rollout(Scene()), WITHIN) + 1, 1 if FULL else 97):
        scene = Scene()
        assert interrupted(rollout(scene), line, KeyboardInterrupt, WITHIN)
        if scene.guard.poisoned:
            counts["poisoned"] += 1
            continue
        counts["whole"] += 1
        assert scene.guard.open_episodes == (), line
        assert set(scene.learnt) <= set(scene.happened), line
    print("rollout_many", dict(counts))
    assert min(counts["poisoned"], counts["whole"]) > 0
