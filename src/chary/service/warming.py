"""Kernels are compiled before the first request: with an empty cache no client has to wait a minute."""

from __future__ import annotations

from contextlib import suppress

import numpy as np

from chary.agents.protocol import Transition
from chary.errors import CharyError
from chary.service.declaring import Declaration, Problem
from chary.service.live import new_agent

# So that plans rest on some data, and chains wait somewhere.
EPISODES = 3


def warm_up(problem: Problem, declaration: Declaration) -> None:
    """Play a few episodes with another agent of the same kind, so that all kernels are compiled and loaded.

    It takes milliseconds where they are in the cache.
    """
    agent = new_agent(problem._replace(log=None), declaration)
    setting = problem.setting
    s = int(np.flatnonzero(~setting.terminal)[0])
    for number in range(EPISODES):
        name = f"warm {number}"
        agent.begin(name, s)
        agent.recommend(name, 0, s)
        agent.explain(name, 0, s)
        decided = agent.act(name, 0, s, explore=number > 0)
        # A reward that is known may be another one.
        with suppress(CharyError):
            agent.observe(name, Transition(s, decided.action, setting.scale.low, s, terminated=False), t=0)
        if setting.horizon > 1:
            again = agent.act(name, 1, s)
            agent.taken(name, 1, again.action)
        agent.abandon(name)
        draft = agent.draft()
        draft.make()
        agent.adopt(draft)
