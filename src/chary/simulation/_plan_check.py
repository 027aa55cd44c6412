"""The comparison of the incremental planner with the full pass, bit for bit: option `check_every`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from chary._compile import inner
from chary.arrays import Floats, Ints
from chary.planner._backup import Scratch
from chary.planner._batch_arrays import Now
from chary.planner._current import all_values_into, baseline_from_into, lane_action, upper_from_into
from chary.planner._full import (
    START,
    Explorer,
    PlanArrays,
    explore_kernel,
    new_explorer,
    new_plan_arrays,
    plan_into,
)
from chary.simulation._judge import Judge, evaluate_truly_into, mean_at_start_kernel
from chary.simulation._player import Player
from chary.simulation._record import EpisodeColumns

QUANTITIES = ("lower value", "baseline", "upper value", "value difference", "explorer", "true value")


class Check(NamedTuple):
    """Room for the full pass, and what was found: (episode, quantity, stage, state), or -1 for nothing.

    Every `every`-th episode is checked, none where that is 0. Runs without a check have one without room: of
    another type, None for example, it would make numba compile the whole loop twice.
    """

    every: int
    plan: PlanArrays
    explorer: Explorer
    v_true: Floats
    found: Ints


def new_check(n_states: int, n_pairs: int, horizon: int, *, every: int, differences: bool) -> Check:
    """Return a check that has found nothing; it takes no room where nothing is to be checked."""
    if every == 0:
        n_states = n_pairs = horizon = 0
    return Check(
        every,
        new_plan_arrays(n_states, horizon, differences=differences),
        new_explorer(n_states, n_pairs, horizon, falling=False),
        np.zeros((horizon + 1, n_states)),
        np.full(4, -1, dtype=np.int64),
    )


@inner
def check_plan_into(check: Check, k: int, player: Player, explores: bool, upper: bool) -> None:
    """Compare the plan of episode k with the full pass; after the episode, so as to disturb no shortcut.

    `explores` is whether the lanes have an explorer, `upper` whether the agent has a use for upper values.
    """
    rows, radii, plan, batch, scratch = (
        player.rows,
        player.radii,
        player.plan,
        player.batch,
        player.scratch,
    )
    plan_into(check.plan, rows, radii, player.prior, player.charge, upper, scratch)
    if batch.on:
        baseline_from_into(plan, batch, START)
        all_values_into(plan, batch)
    _compare_into(check, k, 0, plan.v_lower, check.plan.v_lower)
    for t in range(len(plan.baseline)):
        for s in range(plan.baseline.shape[1]):
            if plan.baseline[t, s] != check.plan.baseline[t, s]:
                _note(check, k, 1, t, s)
    if upper:
        upper_from_into(plan, batch, rows, radii, player.charge, START, scratch)
        _compare_into(check, k, 2, plan.v_upper, check.plan.v_upper)
        for t in range(len(plan.difference)):
            for s in range(plan.difference.shape[1]):
                for x in range(plan.difference.shape[2]):
                    if plan.difference[t, s, x] != check.plan.difference[t, s, x]:
                        _note(check, k, 3, t, s)
    if explores:
        explore_kernel(check.explorer, rows, radii, scratch)
        lane = batch.now[Now.LANE]
        for t in range(len(plan.baseline)):
            for s in range(plan.baseline.shape[1]):
                if lane_action(batch.optimistic, t, s, lane) != check.explorer.policy[t, s]:
                    _note(check, k, 4, t, s)


@inner
def check_truth_into(
    check: Check,
    k: int,
    judge: Judge,
    columns: EpisodeColumns,
    baseline: Ints,
    since: int,
    states: Ints,
    steps: int,
    scratch: Scratch,
) -> None:
    """Compare the true values that episode k was judged by with a whole evaluation of its baseline."""
    evaluate_truly_into(check.v_true, np.zeros((0, 0)), judge, baseline, START, scratch)
    for t in range(since, steps):
        if judge.v_true[t, states[t]] != check.v_true[t, states[t]]:
            _note(check, k, 5, t, states[t])
    if columns.baseline_value[k] != mean_at_start_kernel(judge, check.v_true):
        _note(check, k, 5, 0, states[0])


@inner
def _compare_into(check: Check, k: int, quantity: int, found: Floats, expected: Floats) -> None:
    for t in range(len(expected)):
        for s in range(expected.shape[1]):
            if found[t, s] != expected[t, s]:
                _note(check, k, quantity, t, s)


@inner
def _note(check: Check, k: int, quantity: int, t: int, s: int) -> None:
    """Keep the first difference."""
    if check.found[0] < 0:
        check.found[0] = k
        check.found[1] = quantity
        check.found[2] = t
        check.found[3] = s
