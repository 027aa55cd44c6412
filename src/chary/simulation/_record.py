"""What is kept of every episode, and what the judge has to say of it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from chary._compile import jit, kernel_of
from chary.arrays import Bools, Floats, Ints
from chary.model.radii import Radii
from chary.model.rows import Rows
from chary.planner._backup import Scratch
from chary.planner._full import PlanArrays
from chary.simulation._episode import Playing
from chary.simulation._judge import (
    EVERYWHERE,
    Judge,
    judge_coverage,
    judge_deficit,
    judge_regret,
)

__all__ = [
    "Log",
    "first_deviation_into",
    "first_deviation_kernel",
    "judge_into",
    "judge_kernel",
    "keep_steps_into",
    "keep_steps_kernel",
    "new_log",
]


class Log(NamedTuple):
    """One row an episode, shape (K,); the `step_*` arrays are (K, H), or (0, 0) where steps are not kept."""

    regret: Floats
    true_deficit: Floats
    signed_deficit: Floats
    frozen_deficit: Floats
    deficit: Floats
    returns: Floats
    exploring_steps: Ints
    deviating_steps: Ints
    length: Ints
    blocked: Bools
    value_failed: Bools
    bonus_failed: Bools
    charge_failed: Bools
    largest_gap: Floats
    step_state: Ints
    step_action: Ints
    step_explored: Bools
    step_booked: Floats
    step_chain: Ints


def new_log(episodes: int, horizon: int, *, steps: bool) -> Log:
    """Return an empty log for `episodes` episodes."""

    def floats() -> Floats:
        return np.zeros(episodes)

    def ints() -> Ints:
        return np.zeros(episodes, dtype=np.int64)

    def bools() -> Bools:
        return np.zeros(episodes, dtype=bool)

    rows, columns = (episodes, horizon) if steps else (0, 0)
    return Log(
        regret=floats(),
        true_deficit=floats(),
        signed_deficit=floats(),
        frozen_deficit=floats(),
        deficit=floats(),
        returns=floats(),
        exploring_steps=ints(),
        deviating_steps=ints(),
        length=ints(),
        blocked=bools(),
        value_failed=bools(),
        bonus_failed=bools(),
        charge_failed=bools(),
        largest_gap=floats(),
        step_state=np.full((rows, columns + 1 if steps else 0), -1, dtype=np.int64),
        step_action=np.full((rows, columns), -1, dtype=np.int64),
        step_explored=np.zeros((rows, columns), dtype=bool),
        step_booked=np.zeros((rows, columns)),
        step_chain=np.full((rows, columns), -1, dtype=np.int64),
    )


@jit
def first_deviation_into(
    log: Log, k: int, baseline: Ints, playing: Playing, steps: int, everywhere: bool
) -> int:
    """Count the steps of episode k that explored and that deviated; return the stage to judge from, else H.

    Where everything played was the baseline's own action there is nothing to judge.
    """
    exploring, deviating, since = 0, 0, len(baseline)
    for t in range(steps):
        exploring += playing.explored[t]
        if playing.actions[t] != baseline[t, playing.states[t]]:
            deviating += 1
            since = min(since, t)
    log.exploring_steps[k] = exploring
    log.deviating_steps[k] = deviating
    return 0 if everywhere else since


first_deviation_kernel = kernel_of(first_deviation_into)


@jit
def judge_into(
    log: Log,
    judge: Judge,
    k: int,
    kind: int,
    rows: Rows,
    radii: Radii,
    plan: PlanArrays,
    frozen: Ints,
    playing: Playing,
    steps: int,
    priced: bool,
    scratch: Scratch,
) -> None:
    """Write what episode k really cost; reads the plan it was played under, changes nothing an agent sees."""
    everywhere = judge.coverage == EVERYWHERE
    log.regret[k] = judge_regret(judge, playing.states, playing.pairs, steps)
    if log.deviating_steps[k] > 0 or everywhere:
        log.true_deficit[k], log.signed_deficit[k], log.largest_gap[k] = judge_deficit(
            judge, judge.v_true, plan.baseline, playing.states, playing.actions, playing.pairs, steps
        )
        if priced or everywhere:
            log.value_failed[k], log.bonus_failed[k], log.charge_failed[k], log.largest_gap[k] = (
                judge_coverage(
                    judge,
                    kind,
                    rows,
                    radii,
                    plan,
                    playing.states,
                    playing.actions,
                    playing.pairs,
                    playing.explored,
                    playing.charges,
                    steps,
                    scratch,
                )
            )
    log.frozen_deficit[k], _, _ = judge_deficit(
        judge, judge.v_frozen, frozen, playing.states, playing.actions, playing.pairs, steps
    )


judge_kernel = kernel_of(judge_into)


@jit
def keep_steps_into(log: Log, k: int, playing: Playing, steps: int) -> None:
    """Keep the steps of episode k where the log has room for them."""
    if len(log.step_action) == 0:
        return
    for t in range(steps):
        log.step_state[k, t] = playing.states[t]
        log.step_action[k, t] = playing.actions[t]
        log.step_explored[k, t] = playing.explored[t]
        log.step_booked[k, t] = playing.booked[t]
        log.step_chain[k, t] = playing.chains[t]
    log.step_state[k, steps] = playing.states[steps]


keep_steps_kernel = kernel_of(keep_steps_into)
