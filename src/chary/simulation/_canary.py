"""The compiled loop of a canary: a stretch of episodes whose policies and coin stay the same."""

from __future__ import annotations

from chary._compile import jit, kernel_of
from chary.arrays import Bools, Ints
from chary.model.knowledge import learn_kernel
from chary.model.radii import Radii
from chary.model.rows import Rows
from chary.simulation._episode import Block, Playing, World, play_table
from chary.simulation._judge import Judge, judge_deficit, judge_regret, mean_at_start_kernel
from chary.simulation._loop import has_room
from chary.simulation._record import EpisodeColumns, Record, keep_steps_kernel

INCUMBENT, CANDIDATE = range(2)


@jit
def judge_played_into(
    columns: EpisodeColumns, judge: Judge, k: int, incumbent: Ints, playing: Playing, steps: int
) -> None:
    """Write what episode k really cost; `judge.v_true` is the true value of the incumbent (H, S)."""
    columns.regret[k] = judge_regret(judge, playing, steps)
    columns.true_deficit[k], columns.signed_deficit[k], columns.largest_gap[k] = judge_deficit(
        judge, judge.v_true, incumbent, playing, steps
    )
    columns.incumbent_deficit[k], _, _ = judge_deficit(
        judge, judge.v_incumbent, judge.incumbent, playing, steps
    )


judge_played_kernel = kernel_of(judge_played_into)


@jit
def play_stretch(
    block: Block,
    world: World,
    rows: Rows,
    radii: Radii,
    judge: Judge,
    playing: Playing,
    record: Record,
    starts: Bools,
    tables: Ints,
    until: Ints,
    p: float,
) -> int:
    """Play episodes with one coin until a policy has `until` (2,) more returns; return the next episode.

    `tables` (2, H, S) are the policies. `judge.v_true` is the true value of the incumbent.
    """
    columns, left = record.episodes, until.copy()
    worth = mean_at_start_kernel(judge, judge.v_true)
    for k in range(block.first, block.last):
        i = k - block.offset
        if not has_room(rows, radii.horizon):
            return k
        drawn = CANDIDATE if block.agent[i, 0] < p else INCUMBENT
        steps, total = play_table(block.world[i], world, rows, tables[drawn], radii.discount, playing)
        deviating = 0
        for t in range(steps):
            playing.explored[t] = drawn == CANDIDATE
            playing.chains[t] = -1
            deviating += playing.actions[t] != tables[INCUMBENT, t, playing.states[t]]
        starts[playing.states[0]] = True
        columns.returns[k], columns.length[k] = total, steps
        columns.exploring_steps[k] = steps if drawn == CANDIDATE else 0
        columns.deviating_steps[k] = deviating
        columns.baseline_value[k] = worth
        judge_played_kernel(columns, judge, k, tables[INCUMBENT], playing, steps)
        keep_steps_kernel(record.steps, k, playing, steps)
        learn_kernel(rows, radii, playing.states, playing.pairs, playing.states[1:], playing.rewards, steps)
        left[drawn] -= 1
        if left[drawn] == 0:
            return k + 1
    return block.last
