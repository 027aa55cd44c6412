"""Kernels let other threads go on: a plan can be made while decisions are."""

from __future__ import annotations

import threading
import time

import numpy as np

from chary.mdp import Setting
from chary.model.bounds import Bounds
from chary.model.knowledge import Knowledge
from chary.planner.plan import TabularPlan


def knowledge(setting: Setting, transitions: int) -> Knowledge:
    """Counts of random transitions, which kl bounds are slow to plan by."""
    known = Knowledge.empty(setting, Bounds(family="kl"), episodes=None, total_episodes=None)
    random = np.random.default_rng(0)
    states, actions, nexts = (
        random.integers(0, n, transitions) for n in (setting.n_states, setting.n_actions, setting.n_states)
    )
    known.learn(states, setting.pair_index[states, actions], nexts, random.random(transitions))
    return known


def test_a_thread_goes_on_while_another_plans() -> None:
    setting = Setting.declare(n_states=60, n_actions=4, horizon=300)
    known, nobody = knowledge(setting, 10_000), np.full(60, -1)
    small = Setting.declare(n_states=60, n_actions=4, horizon=1)
    TabularPlan(small, knowledge(small, 10), nobody)  # compiles, or loads what was compiled
    spans: list[tuple[float, float]] = []

    def plan() -> None:
        start = time.perf_counter()
        TabularPlan(setting, known, nobody)
        spans.append((start, time.perf_counter()))

    planner = threading.Thread(target=plan)
    ticks: list[float] = []
    planner.start()
    while planner.is_alive():
        ticks.append(time.perf_counter())
        time.sleep(0.001)
    ((start, end),) = spans
    # With the interpreter's lock held by the kernel there would be none but at its ends.
    inside = [tick for tick in ticks if start + 0.1 * (end - start) < tick < end - 0.1 * (end - start)]
    assert end - start > 0.02
    assert len(inside) >= 5
