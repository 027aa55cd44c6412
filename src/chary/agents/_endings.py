"""Early endings as a setting with `early_endings=True` has them, from what an agent is told of an episode."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from chary.agents.protocol import Transition
from chary.errors import InvalidData, check_truth
from chary.mdp.setting import Setting


def goes_on(setting: Setting) -> bool:
    """Return whether episodes go on in the separate state of endings, with action 0 and reward 0."""
    return setting.ending is not None and not setting.terminal[setting.ending]


def led(setting: Setting, step: Any) -> Any:
    """Return a step that may have ended its episode early as one to the separate state of endings.

    Anything else is returned as it is, for the checks that follow.
    """
    if setting.ending is None or not isinstance(step, Transition):
        return step
    reached = step.next_state
    whole = isinstance(reached, (int, np.integer)) and not isinstance(reached, bool)
    if not whole or not 0 <= reached < setting.n_states or setting.terminal[reached]:
        return step
    if not check_truth("terminated", step.terminated, error=InvalidData):
        return step
    return step._replace(next_state=setting.ending, terminated=not goes_on(setting))


def over(setting: Setting) -> Transition:
    """Return a step of an episode that has ended early."""
    assert setting.ending is not None
    return Transition(setting.ending, 0, 0.0, setting.ending, terminated=False)


def with_endings(
    setting: Setting, episodes: Iterable[Sequence[Transition]]
) -> Iterable[Sequence[Transition]]:
    """Return logged episodes with their early endings led to the separate state, and filled up there."""
    if setting.ending is None:
        return episodes
    return (_filled(setting, episode) for episode in episodes)


def _filled(setting: Setting, episode: Sequence[Transition]) -> Sequence[Transition]:
    if not isinstance(episode, Sequence) or not episode:
        return episode
    *before, last = episode
    reached = led(setting, last)
    if reached is last:
        return episode
    missing = setting.horizon - len(episode) if goes_on(setting) else 0
    return [*before, reached, *[over(setting)] * missing]
