"""The per-episode columns of a run, and what the judge writes into them."""

from __future__ import annotations

from collections import namedtuple
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from chary._compile import jit, kernel_of
from chary.arrays import Ints
from chary.model.radii import Radii
from chary.model.rows import Rows
from chary.planner._backup import Scratch
from chary.planner._full import PlanArrays
from chary.simulation._episode import Playing
from chary.simulation._judge import EVERYWHERE, Judge, judge_coverage, judge_deficit, judge_regret
from chary.simulation.run import EPISODE_COLUMNS, STEP_COLUMNS, EpisodeArrays, Steps

if TYPE_CHECKING:
    EpisodeColumns = EpisodeArrays
    StepColumns = Steps
else:
    # Kernels read named tuples and not dataclasses: the same columns as such.
    EpisodeColumns = namedtuple("EpisodeColumns", EPISODE_COLUMNS)
    StepColumns = namedtuple("StepColumns", STEP_COLUMNS)


class Record(NamedTuple):
    """The columns of a run: `episodes` (K,) in scaled units, and `steps` (K, H), or (0, 0) for none."""

    episodes: EpisodeColumns
    steps: StepColumns

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return all columns by name, those of steps with `step_` before it."""
        steps = {f"step_{name}": getattr(self.steps, name) for name in STEP_COLUMNS}
        return {name: getattr(self.episodes, name) for name in EPISODE_COLUMNS} | steps


def new_record(episodes: int, horizon: int, *, steps: bool) -> Record:
    """Return an empty record of `episodes` episodes; whole numbers of steps are -1 until they are filled."""

    def step_column(name: str, dtype: type[np.generic]) -> NDArray[Any]:
        shape = (episodes, horizon + (name == "state")) if steps else (0, 0)
        return np.full(shape, -1 if dtype == np.int64 else 0, dtype=dtype)

    return Record(
        EpisodeColumns(**{name: np.zeros(episodes, dtype) for name, dtype in EPISODE_COLUMNS.items()}),
        StepColumns(**{name: step_column(name, dtype) for name, dtype in STEP_COLUMNS.items()}),
    )


@jit
def first_deviation_into(
    columns: EpisodeColumns, k: int, baseline: Ints, playing: Playing, steps: int, everywhere: bool
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
    columns.exploring_steps[k] = exploring
    columns.deviating_steps[k] = deviating
    return 0 if everywhere else since


first_deviation_kernel = kernel_of(first_deviation_into)


@jit
def judge_into(
    columns: EpisodeColumns,
    judge: Judge,
    k: int,
    kind: int,
    rows: Rows,
    radii: Radii,
    plan: PlanArrays,
    playing: Playing,
    steps: int,
    priced: bool,
    scratch: Scratch,
) -> None:
    """Write what episode k really cost; reads the plan it was played under, changes nothing an agent sees."""
    everywhere = judge.coverage == EVERYWHERE
    columns.regret[k] = judge_regret(judge, playing, steps)
    if columns.deviating_steps[k] > 0 or everywhere:
        columns.true_deficit[k], columns.signed_deficit[k], columns.largest_gap[k] = judge_deficit(
            judge, judge.v_true, plan.baseline, playing, steps
        )
        if priced or everywhere:
            value, bonus, charge, gap = judge_coverage(
                judge, kind, rows, radii, plan, playing, steps, scratch
            )
            columns.value_failed[k], columns.bonus_failed[k], columns.charge_failed[k] = value, bonus, charge
            columns.largest_gap[k] = gap
    columns.incumbent_deficit[k], _, _ = judge_deficit(
        judge, judge.v_incumbent, judge.incumbent, playing, steps
    )


judge_kernel = kernel_of(judge_into)


@jit
def keep_steps_into(kept: StepColumns, k: int, playing: Playing, steps: int) -> None:
    """Keep the steps of episode k where there is room for them."""
    if len(kept.action) == 0:
        return
    for t in range(steps):
        kept.state[k, t] = playing.states[t]
        kept.action[k, t] = playing.actions[t]
        kept.explored[k, t] = playing.explored[t]
        kept.booked[k, t] = playing.booked[t]
        kept.chain[k, t] = playing.chains[t]
    kept.state[k, steps] = playing.states[steps]


keep_steps_kernel = kernel_of(keep_steps_into)
