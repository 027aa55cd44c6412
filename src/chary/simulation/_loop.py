"""The compiled episode loop: play, book, count, replan, judge. `rollout` is its step-by-step twin."""

from __future__ import annotations

import numpy as np

from chary._compile import jit
from chary.agents._mixtures import (
    FROZEN,
    Mixture,
    candidates_lanes_into,
    may_explore,
    switch_kernel,
    switch_lane,
    uniform_pair,
    worth_lanes_into,
)
from chary.arrays import Floats, Ints
from chary.model.counts import learn_kernel
from chary.model.radii import Radii
from chary.model.rows import Rows
from chary.planner._backup import LOWER, UPPER, Scratch
from chary.planner._batch import Lanes, Now, pack_into, plan_lanes_into
from chary.planner._batch_versions import forget_versions
from chary.planner._current import (
    all_values_into,
    baseline_from_into,
    evaluate_into,
    explorer_into,
    open_lane,
    open_whole,
    upper_from_into,
    values_behind_into,
)
from chary.planner._full import (
    OPTIMISE,
    START,
    Explorer,
    PlanArrays,
    backward_into,
    explore_kernel,
    plan_into,
)
from chary.planner._vectors import LANES
from chary.shield.rule import Rule
from chary.simulation._chains import Chains, begin_episode
from chary.simulation._episode import MIXTURE, SHIELD, Playing, World, draw, first_state, play_episode
from chary.simulation._guess import Ahead, as_guessed, deviations_into, guess_into
from chary.simulation._judge import (
    EVERYWHERE,
    Judge,
    evaluate_truly_into,
    true_values_into,
    value_lanes_truly_into,
)
from chary.simulation._plan_check import Check, check_plan_into, check_truth_into
from chary.simulation._record import Log, first_deviation_kernel, judge_kernel, keep_steps_kernel

__all__ = ["FULL", "INCREMENTAL", "PLANNERS", "has_room", "most_chain_steps", "play_block", "warm_block"]


# A NumPy scalar, since numba compiles a kernel anew for each literal.
NO: bool = np.bool_(False)  # type: ignore[assignment]

PLANNERS = ("full", "incremental")
FULL, INCREMENTAL = range(2)


@jit
def play_block(
    first: int,
    last: int,
    offset: int,
    world_uniforms: Floats,
    agent_uniforms: Floats,
    agent: int,
    world: World,
    judge: Judge,
    rows: Rows,
    radii: Radii,
    meta_rows: Rows,
    meta_radii: Radii,
    plan: PlanArrays,
    planner: int,
    lanes: Lanes,
    explorer: Explorer,
    chains: Chains,
    guess: Chains,
    rule: Rule,
    kind: int,
    mixture: Mixture,
    prior: Ints,
    ahead: Ahead,
    playing: Playing,
    log: Log,
    check: Check | None,
    scratch: Scratch,
) -> int:
    """Play the episodes first..last-1 and return the next one to play.

    Uniforms are (K, H + 1), row k - offset for episode k. Stops early, before an episode, where counting
    it might run out of room: the caller repacks the rows and calls again. Stops for good where `check` has
    found a difference.
    """
    horizon = radii.horizon
    separate = len(meta_rows.total) > 0
    shielded = agent == SHIELD
    # Whether what a neighbour compares is computed in lanes, too.
    mixes = agent == MIXTURE and len(mixture.worth) > 0
    everywhere = judge.coverage == EVERYWHERE
    nobody = np.full(len(rows.visits), -1)
    none = np.zeros((0, 0))
    whole = (START, horizon - 1)
    # The lanes planned together, the lane of the next episode, and what was planned for them.
    n, lane, upper, optimistic, truth = 0, 0, False, False, False
    for k in range(first, last):
        if not has_room(rows, horizon) or (separate and not has_room(meta_rows, most_chain_steps(horizon))):
            return k
        u_world, u_agent = world_uniforms[k - offset], agent_uniforms[k - offset]
        s = first_state(world, u_world[0])
        if planner == FULL:
            plan_into(plan, rows, radii, prior, kind, shielded or everywhere, scratch)
            open_whole(lanes)
        elif not lanes.on:
            backward_into(
                plan.v_lower, none, plan.baseline, rows, radii, LOWER, OPTIMISE, prior, none, whole, scratch
            )
            open_lane(lanes, 0, False, False)
        else:
            if lane == n:
                forget_versions(lanes.versions)
                most = min(LANES, last - k)
                n, upper, optimistic = guess_into(
                    ahead,
                    k,
                    most,
                    world_uniforms[k - offset : k - offset + most],
                    agent_uniforms[k - offset : k - offset + most],
                    agent,
                    world,
                    rows,
                    radii,
                    meta_rows,
                    meta_radii,
                    plan,
                    lanes,
                    explorer,
                    chains,
                    guess,
                    rule,
                    kind,
                    mixture,
                    prior,
                    playing,
                    scratch,
                )
                lane = 0
                optimistic = optimistic and not separate
                pack_into(lanes.packed, rows)
                plan_lanes_into(lanes, rows, radii, lanes.lower, LOWER, prior, upper)
                starts = ahead.states[:, 0]
                if mixes:
                    worth_lanes_into(mixture, lanes, rows, radii)
                    optimistic = may_explore(mixture, lanes, starts, n)
                if optimistic:
                    plan_lanes_into(lanes, rows, radii, lanes.optimistic, UPPER, nobody, NO)
                if mixes:
                    candidates_lanes_into(mixture, lanes, rows, radii, starts, n, optimistic)
                truth = deviations_into(ahead, lanes.lower, rows, n) > 1 and not everywhere
                if truth:
                    value_lanes_truly_into(judge, lanes.lower, ahead.since)
                lanes.now[Now.BATCHES] += 1
            open_lane(lanes, lane, False, upper)
        switch = 0
        if shielded:
            slot = begin_episode(chains, s, k)
            if slot >= 0:
                kept = chains.explorer[slot]
                if lanes.on and optimistic:
                    explorer_into(kept, lanes, lane)
                else:
                    if separate:
                        explore_kernel(explorer, meta_rows, meta_radii, scratch)
                    else:
                        explore_kernel(explorer, rows, radii, scratch)
                    for t in range(horizon):
                        for x in range(len(rows.visits)):
                            kept[t, x] = explorer.policy[t, x]
                            if lanes.on:
                                lanes.optimistic.policy[t, x] = explorer.policy[t, x]
        elif agent == MIXTURE:
            if mixes:
                switch = switch_lane(mixture, lane, s, u_agent[0], horizon)
            else:
                if mixture.kind != FROZEN and not lanes.on:
                    explore_kernel(explorer, rows, radii, scratch)
                switch = switch_kernel(mixture, rows, radii, explorer.policy, s, u_agent[0], scratch)
        steps, log.deficit[k], log.returns[k], log.blocked[k] = play_episode(
            k,
            s,
            switch,
            u_world,
            u_agent,
            agent,
            world,
            rows,
            radii,
            meta_rows,
            meta_radii,
            plan,
            lanes,
            explorer,
            chains,
            rule,
            kind,
            mixture,
            prior,
            playing,
            scratch,
        )
        log.length[k] = steps
        since = first_deviation_kernel(log, k, plan.baseline, playing, steps, everywhere)
        if since < horizon:
            if truth and since >= judge.known_from[lane]:
                for t in range(since, steps):
                    true_values_into(judge, plan.baseline, lane, t, playing.states[t], playing.pairs[t])
            else:
                if planner == FULL or everywhere:
                    baseline_from_into(plan, lanes, START)
                    evaluate_truly_into(judge.v_true, judge.q_true, judge, plan.baseline, START, scratch)
                else:
                    baseline_from_into(plan, lanes, since)
                    stages = (since, horizon - 1)
                    evaluate_into(judge.v_true, plan.baseline, judge.rows, judge.radii, UPPER, stages)
            if everywhere:
                if lanes.on:
                    all_values_into(plan, lanes)
                upper_from_into(plan, lanes, rows, radii, kind, START, scratch)
            elif lanes.on and shielded:
                for t in range(since, steps):
                    values_behind_into(plan, lanes, rows, t, playing.states[t], playing.pairs[t])
        judge_kernel(
            log, judge, k, kind, rows, radii, plan, mixture.frozen, playing, steps, shielded, scratch
        )
        # None is a type of its own: without a check its code is not even compiled.
        if check is not None and k % check.every == 0:
            explores = lanes.on and optimistic
            priced = shielded or everywhere
            check_plan_into(check, k, plan, lanes, explores, rows, radii, prior, kind, priced, scratch)
            check_truth_into(check, k, judge, plan.baseline, since, playing.states, steps, scratch)
            if check.found[0] >= 0:
                return k
        keep_steps_kernel(log, k, playing, steps)
        learn_kernel(rows, radii, playing.states, playing.pairs, playing.states[1:], playing.rewards, steps)
        if lanes.on:
            lane += 1
            if lane < n and not as_guessed(ahead, lane - 1, playing, steps):
                lane = n
    return last


@jit
def warm_block(
    first: int,
    last: int,
    offset: int,
    world_uniforms: Floats,
    agent_uniforms: Floats,
    world: World,
    rows: Rows,
    radii: Radii,
    playing: Playing,
) -> int:
    """Count the uniformly random episodes first..last-1 and return the next one, as `play_block` does."""
    horizon = radii.horizon
    for k in range(first, last):
        if not has_room(rows, horizon):
            return k
        playing.states[0] = first_state(world, world_uniforms[k - offset, 0])
        steps = 0
        for t in range(horizon):
            p = uniform_pair(rows, playing.states[t], agent_uniforms[k - offset, t + 1])
            u = world_uniforms[k - offset, t + 1]
            entry = draw(world.cumulative, world.row_start[p], world.row_start[p + 1], u)
            playing.pairs[t] = p
            playing.rewards[t] = world.reward[entry]
            playing.states[t + 1] = world.successor[entry]
            steps = t + 1
            if world.terminal[playing.states[t + 1]]:
                break
        learn_kernel(rows, radii, playing.states, playing.pairs, playing.states[1:], playing.rewards, steps)
    return last


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
