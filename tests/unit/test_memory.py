"""Memory in live use: it grows with the episodes that are open, not with those that are past."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from chary import CharyUCBVI, Setting, TabularAgent, Transition

OPEN, LOST = 200, 0.05


@pytest.mark.parametrize(
    "episodes", [pytest.param(1_500), pytest.param(50_000, marks=pytest.mark.slow)], ids=["short", "long"]
)
def test_memory_is_flat_with_many_open_episodes_and_lost_outcomes(episodes: int) -> None:
    setting = Setting.declare(n_states=3, n_actions=2, horizon=2)
    agent = TabularAgent(CharyUCBVI(eta=0.5), setting, losses=True)
    rng, begun = np.random.default_rng(4), 0
    waiting: dict[int, Transition] = {}
    sizes: list[int] = []
    tracemalloc.start()
    while begun < episodes:
        agent.begin(begun, int(rng.integers(3)))
        now = agent._episodes.named("test", begun)
        for t in range(2):
            s = now.state if t == 0 else waiting[begun].next_state
            action = agent.act(begun, t, s).action
            if t == 1:
                # The first outcome comes at once, the second much later or never.
                agent.observe(begun, waiting[begun], t=0)
            waiting[begun] = Transition(
                s, action, float(rng.random()), int(rng.integers(3)), terminated=False
            )
        agent.finish(begun)
        begun += 1
        if len(waiting) == OPEN:
            # In no order, but nobody waits for ever: what is open the longest holds the most back.
            late = min(waiting) if begun % 2 else int(rng.choice(list(waiting)))
            outcome = waiting.pop(late)
            if rng.random() < LOST:
                agent.abandon(late)
            else:
                agent.observe(late, outcome, t=1)
        if begun in (episodes // 2, episodes):
            sizes.append(tracemalloc.get_traced_memory()[0])
            assert len(agent.open_episodes) == OPEN - 1
    tracemalloc.stop()
    half, whole = sizes
    assert whole < 1.3 * half
