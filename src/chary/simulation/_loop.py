"""The compiled episode loop: plan, play, judge, learn. Its step-by-step twin is `simulation._stepwise`."""

from __future__ import annotations

import numpy as np

from chary._compile import bare, jit, jit_bare
from chary.agents._mixtures import (
    FROZEN,
    candidates_lanes_into,
    may_explore,
    switch_kernel,
    switch_lane,
    worth_lanes_into,
)
from chary.model.knowledge import learn_kernel
from chary.model.radii import Radii
from chary.model.rows import Rows
from chary.planner._backup import LOWER, UPPER
from chary.planner._batch import plan_lanes_into
from chary.planner._batch_arrays import Now, pack_into
from chary.planner._batch_versions import forget_versions
from chary.planner._current import (
    all_values_into,
    baseline_from_into,
    explorer_into,
    open_lane,
    open_whole,
    upper_from_into,
    values_behind_into,
)
from chary.planner._full import START, additive_value_into, explore_kernel, lower_optimum_into, plan_into
from chary.planner._vectors import LANES
from chary.simulation._chains import Chains, begin_episode
from chary.simulation._episode import Block, Playing, World, first_state, play_episode, play_randomly
from chary.simulation._guess import Ahead, as_guessed, guess_into
from chary.simulation._judge import (
    EVERYWHERE,
    Judge,
    evaluate_truly_into,
    mean_at_start_kernel,
    true_values_into,
    value_lanes_truly_into,
)
from chary.simulation._plan_check import Check, check_plan_into, check_truth_into
from chary.simulation._player import FULL, MIXTURE, SHIELD, Player
from chary.simulation._record import Record, first_deviation_kernel, judge_kernel, keep_steps_kernel

# A NumPy scalar, since numba compiles a kernel again for each literal.
NO: bool = np.bool_(False)  # type: ignore[assignment]


@jit_bare
def play_block(
    block: Block,
    world: World,
    player: Player,
    chains: Chains,
    judge: Judge,
    ahead: Ahead,
    playing: Playing,
    record: Record,
    check: Check,
) -> int:
    """Play a block of episodes and return the next one to play.

    Stops early, before an episode, where counting it might run out of room: the caller repacks the rows and
    calls again. Stops for good where `check` has found a difference.
    """
    rows, radii, meta_rows, plan = player.rows, player.radii, player.meta_rows, player.plan
    batch, prior, scratch, charge = player.batch, player.prior, player.scratch, player.charge
    horizon, shielded, columns = radii.horizon, player.agent == SHIELD, record.episodes
    separate = len(meta_rows.total) > 0
    everywhere = judge.coverage == EVERYWHERE
    # The lanes planned together, the lane of the next episode, and what was planned for them.
    n, lane, upper, optimistic, truth = 0, 0, False, False, False
    for k in range(block.first, block.last):
        i = k - block.offset
        if not has_room(rows, horizon) or (separate and not has_room(meta_rows, most_chain_steps(horizon))):
            return k
        u_world, u_agent = block.world[i], block.agent[i]
        s = first_state(world, u_world[0])
        if player.planner == FULL:
            plan_into(plan, rows, radii, prior, charge, shielded or everywhere, scratch)
            open_whole(batch)
        elif not batch.on:
            lower_optimum_into(plan, rows, radii, prior, (START, horizon - 1), scratch)
            open_lane(batch, 0, False, False)
        else:
            if lane == n:
                forget_versions(batch.versions)
                lane, most = 0, min(LANES, block.last - k)
                n, upper, optimistic = guess_into(ahead, k, most, block, world, player, chains, playing)
                optimistic, truth = _plan_batch_into(player, ahead, judge, n, upper, optimistic)
            open_lane(batch, lane, False, upper)
        switch = 0
        if shielded:
            slot = begin_episode(chains, s, k)
            if slot >= 0:
                _begin_chain_into(chains, slot, player, lane, optimistic)
        elif player.agent == MIXTURE:
            switch = _switch(player, lane, s, u_agent[0])
        steps, columns.deficit[k], columns.returns[k], columns.blocked[k] = play_episode(
            k, s, switch, u_world, u_agent, world, player, chains, playing
        )
        columns.length[k] = steps
        since = first_deviation_kernel(columns, k, plan.baseline, playing, steps, everywhere)
        if truth and judge.column[lane] >= 0:
            columns.baseline_value[k] = judge.worth[judge.column[lane]]
            for t in range(since, steps):
                true_values_into(judge, plan.baseline, lane, t, playing.states[t], playing.pairs[t])
        else:
            baseline_from_into(plan, batch, START)
            if player.planner == FULL or everywhere:
                evaluate_truly_into(judge.v_true, judge.q_true, judge, plan.baseline, START, scratch)
            else:
                stages = (START, horizon - 1)
                additive_value_into(judge.v_true, plan.baseline, judge.rows, judge.radii, UPPER, stages)
            columns.baseline_value[k] = mean_at_start_kernel(judge, judge.v_true)
        if since < horizon:
            if everywhere:
                if batch.on:
                    all_values_into(plan, batch)
                upper_from_into(plan, batch, rows, radii, charge, START, scratch)
            elif batch.on and shielded:
                for t in range(since, steps):
                    values_behind_into(plan, batch, rows, t, playing.states[t], playing.pairs[t])
        judge_kernel(columns, judge, k, charge, rows, radii, plan, playing, steps, shielded, scratch)
        if check.every > 0 and k % check.every == 0:
            check_plan_into(check, k, player, batch.on and optimistic, shielded or everywhere)
            check_truth_into(check, k, judge, columns, plan.baseline, since, playing.states, steps, scratch)
            if check.found[0] >= 0:
                return k
        keep_steps_kernel(record.steps, k, playing, steps)
        learn_kernel(rows, radii, playing.states, playing.pairs, playing.states[1:], playing.rewards, steps)
        if batch.on:
            lane += 1
            if lane < n and not as_guessed(ahead, lane - 1, playing, steps):
                lane = n
    return block.last


@bare
def _plan_batch_into(
    player: Player, ahead: Ahead, judge: Judge, n: int, upper: bool, optimistic: bool
) -> tuple[bool, bool]:
    """Make the plans of n episodes guessed ahead; `upper` and `optimistic` are what they are likely to need.

    Returns whether there are explorers, and whether the baselines' true values were computed as well.
    """
    rows, radii, batch, mixture = player.rows, player.radii, player.batch, player.mixture
    mixes, starts = player.agent == MIXTURE and len(mixture.worth) > 0, ahead.states[:, 0]
    optimistic = optimistic and len(player.meta_rows.total) == 0
    pack_into(batch.packed, rows)
    plan_lanes_into(batch, rows, radii, batch.lower, LOWER, player.prior, upper)
    if mixes:
        worth_lanes_into(mixture, batch, rows, radii)
        optimistic = may_explore(mixture, batch, starts, n)
    if optimistic:
        plan_lanes_into(batch, rows, radii, batch.optimistic, UPPER, ahead.nobody, NO)
    if mixes:
        candidates_lanes_into(mixture, batch, rows, radii, starts, n, optimistic)
    truth = judge.coverage != EVERYWHERE
    if truth:
        value_lanes_truly_into(judge, batch.lower, n)
    batch.now[Now.BATCHES] += 1
    return optimistic, truth


@bare
def _begin_chain_into(chains: Chains, slot: int, player: Player, lane: int, optimistic: bool) -> None:
    """Freeze the explorer of a chain that begins, from the lane or else from a new plan."""
    kept, batch, explorer = chains.explorer[slot], player.batch, player.explorer
    if batch.on and optimistic:
        explorer_into(kept, batch, lane)
        return
    if len(player.meta_rows.total) > 0:
        explore_kernel(explorer, player.meta_rows, player.meta_radii, player.scratch)
    else:
        explore_kernel(explorer, player.rows, player.radii, player.scratch)
    for t in range(len(kept)):
        for x in range(kept.shape[1]):
            kept[t, x] = explorer.policy[t, x]
            if batch.on:
                batch.optimistic.policy[t, x] = explorer.policy[t, x]


@bare
def _switch(player: Player, lane: int, s: int, u: float) -> int:
    """Return the step from which an agent without a shield plays its explorer in an episode from s."""
    mixture, explorer, rows, radii = player.mixture, player.explorer, player.rows, player.radii
    if len(mixture.worth) > 0:
        return switch_lane(mixture, lane, s, u, radii.horizon)
    if mixture.kind != FROZEN and not player.batch.on:
        explore_kernel(explorer, rows, radii, player.scratch)
    return switch_kernel(mixture, rows, radii, explorer.policy, s, u, player.scratch)


@jit
def warm_block(block: Block, world: World, rows: Rows, radii: Radii, playing: Playing) -> int:
    """Count a block of uniformly random episodes and return the next one, as `play_block` does."""
    for k in range(block.first, block.last):
        if not has_room(rows, radii.horizon):
            return k
        i = k - block.offset
        steps = play_randomly(block.world[i], block.agent[i], world, rows, radii.horizon, playing)
        learn_kernel(rows, radii, playing.states, playing.pairs, playing.states[1:], playing.rewards, steps)
    return block.last


@jit
def has_room(rows: Rows, steps: int) -> bool:
    """Return whether any `steps` transitions can be counted without running out of entries."""
    # A row of capacity c that takes in m more moves to 2c, 4c, ...: at most 2c + 4m entries for all its
    # moves.
    return rows.used[0] + steps * (4 + 2 * rows.used[1]) <= len(rows.successor)


@jit
def most_chain_steps(horizon: int) -> int:
    """Return how many steps the chains that finish in one episode have at most.

    A finished chain is only followed by another after a step that was refused.
    """
    return (horizon + 1) // 2 * horizon
