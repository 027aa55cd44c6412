"""The compiled episode loop: play, book, count, replan, judge. `rollout` is its step-by-step twin."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from chary._audit_kernels import (
    EVERYWHERE,
    Judge,
    evaluate_truly_into,
    judge_coverage,
    judge_deficit,
    judge_regret,
    true_values_into,
    value_lanes_truly_into,
)
from chary._chains import (
    Chains,
    Proposal,
    begin_episode,
    end_episode,
    guess_from_into,
    shield_observe,
    shield_step,
)
from chary._compile import bare, folded, jit
from chary._plan_check import Check, check_plan_into, check_truth_into
from chary.agents._mixtures import FROZEN, UCBVI, Mixture, guess_switch, switch_step, uniform_pair
from chary.mdp import FiniteMDP
from chary.model.counts import learn_into
from chary.model.radii import Radii
from chary.model.rows import Rows
from chary.planner._backup import LOWER, UPPER, Scratch
from chary.planner._kernels import OPTIMISE, Explorer, PlanArrays, backward_into, explore_into, plan_into
from chary.planner.incremental import (
    LANES,
    Lanes,
    Now,
    all_values_into,
    baseline_from_into,
    evaluate_into,
    explorer_into,
    forget_versions,
    guess_action,
    lane_action,
    open_lane,
    open_whole,
    plan_lanes_into,
    upper_from_into,
    values_behind_into,
    version_into,
)
from chary.shield.ledger import Ledger
from chary.shield.rule import Rule

__all__ = [
    "BASELINE",
    "FULL",
    "INCREMENTAL",
    "MIXTURE",
    "PLANNERS",
    "RANDOM",
    "SHIELD",
    "Ahead",
    "Log",
    "Playing",
    "World",
    "first_deviation_into",
    "has_room",
    "most_chain_steps",
    "new_ahead",
    "new_log",
    "new_playing",
    "new_world",
    "play_block",
    "warm_block",
]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

SHIELD, MIXTURE, BASELINE, RANDOM = range(4)

PLANNERS = ("full", "incremental")
FULL, INCREMENTAL = range(2)


class World(NamedTuple):
    """The simulated environment; nothing of it reaches an agent but states and rewards."""

    start: Floats
    row_start: Ints
    successor: Ints
    cumulative: Floats
    reward: Floats
    terminal: Bools


class Playing(NamedTuple):
    """The episode under way; shapes (H + 1,) for states and (H,) for the rest."""

    states: Ints
    actions: Ints
    pairs: Ints
    rewards: Floats
    explored: Bools
    charges: Floats
    booked: Floats
    chains: Ints


class Ahead(NamedTuple):
    """Episodes guessed ahead, one a lane: states (LANES, H + 1), pairs (LANES, H), steps (LANES,)."""

    states: Ints
    pairs: Ints
    steps: Ints


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


def new_world(mdp: FiniteMDP) -> World:
    """Return what the loop needs to simulate the MDP; copies, since kernels want one type of array."""
    low, span = mdp.scale.low, mdp.scale.span
    return World(
        np.cumsum(mdp.start),
        np.array(mdp.row_start),
        np.array(mdp.successor),
        np.array(mdp.cumulative),
        # There and back, as a reward in the user's units reaches an agent step by step: rounding included.
        np.clip(((low + span * mdp.reward) - low) / span, 0.0, 1.0),
        np.array(mdp.setting.terminal),
    )


def new_playing(horizon: int) -> Playing:
    """Return room for one episode."""

    def ints(n: int) -> Ints:
        return np.zeros(n, dtype=np.int64)

    H = horizon
    return Playing(
        ints(H + 1), ints(H), ints(H), np.zeros(H), np.zeros(H, dtype=bool), np.zeros(H), np.zeros(H), ints(H)
    )


def new_ahead(horizon: int) -> Ahead:
    """Return room for the episodes guessed ahead."""

    def ints(*shape: int) -> Ints:
        return np.zeros(shape, dtype=np.int64)

    return Ahead(ints(LANES, horizon + 1), ints(LANES, horizon), ints(LANES))


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


@folded
def draw(cumulative: Floats, begin: int, end: int, u: float) -> int:
    """Return the first place in begin..end-1 whose cumulative probability exceeds u, else the last.

    A uniform equal to a step belongs to the next place, as `searchsorted(side="right")` has it.
    """
    low, high = begin, end
    while low < high:
        middle = (low + high) // 2
        if cumulative[middle] <= u:
            low = middle + 1
        else:
            high = middle
    return min(low, end - 1)


@folded
def first_state(world: World, u: float) -> int:
    """Return the state in which an episode starts."""
    last = len(world.start)
    while last > 1 and world.start[last - 2] == world.start[last - 1]:
        last -= 1
    return draw(world.start, 0, last, u)


@bare
def play_episode(
    k: int,
    s: int,
    switch: int,
    u_world: Floats,
    u_agent: Floats,
    agent: int,
    world: World,
    rows: Rows,
    radii: Radii,
    meta_rows: Rows,
    meta_radii: Radii,
    plan: PlanArrays,
    lanes: Lanes,
    explorer: Explorer,
    chains: Chains,
    rule: Rule,
    kind: int,
    mixture: Mixture,
    prior: Ints,
    playing: Playing,
    scratch: Scratch,
) -> tuple[int, float, float, bool]:
    """Play episode k from s by the plan in use; return its steps, deficit, return and whether it was blocked.

    A guessed episode differs in two things only: it feeds copies of the chains, and nothing learns from it.
    """
    horizon = radii.horizon
    shielded = agent == SHIELD
    guessing = lanes.now[Now.GUESSING] == 1
    learning = len(meta_rows.total) > 0 and not guessing
    lane = lanes.now[Now.LANE]
    ledger = Ledger(False, 0.0)
    steps, total, weight = 0, 0.0, 1.0
    playing.states[0] = s
    for t in range(horizon):
        decision = Proposal(0, False, 0.0, 0.0, -1)
        if lanes.on:
            if guessing:
                plan.baseline[t, s] = guess_action(lanes, lanes.lower, rows, radii, LOWER, prior[s], t, s)
            else:
                plan.baseline[t, s] = lane_action(lanes.lower, t, s, lane)
        if shielded:
            decision, ledger = shield_step(
                chains, ledger, rule, kind, rows, radii, plan, lanes, k, t, s, scratch
            )
        elif agent == MIXTURE:
            a = mixture.frozen[t, s]
            if t >= switch:
                if not lanes.on:
                    a = explorer.policy[t, s]
                elif guessing:
                    a = guess_action(lanes, lanes.optimistic, rows, radii, UPPER, -1, t, s)
                else:
                    a = lane_action(lanes.optimistic, t, s, lane)
            decision = Proposal(a, t >= switch, 0.0, 0.0, -1)
        elif agent == BASELINE:
            decision = Proposal(plan.baseline[t, s], False, 0.0, 0.0, -1)
        else:
            p = uniform_pair(rows, s, u_agent[t + 1])
            decision = Proposal(rows.pair_action[p], True, 0.0, 0.0, -1)
        p = rows.pair_index[s, decision.action]
        entry = draw(world.cumulative, world.row_start[p], world.row_start[p + 1], u_world[t + 1])
        s_next, r = world.successor[entry], world.reward[entry]
        ended = world.terminal[s_next]
        playing.actions[t] = decision.action
        playing.pairs[t] = p
        playing.rewards[t] = r
        playing.explored[t] = decision.explored
        playing.charges[t] = decision.charge
        playing.booked[t] = decision.booked
        playing.chains[t] = decision.chain
        playing.states[t + 1] = s_next
        if shielded and decision.explored:
            done = shield_observe(chains, k, s, p, s_next, r, ended, horizon)
            if done >= 0 and learning:
                learn_into(
                    meta_rows,
                    meta_radii,
                    chains.step_state[done],
                    chains.step_pair[done],
                    chains.step_next[done],
                    chains.step_reward[done],
                    chains.length[done],
                )
        total += weight * r
        weight *= radii.discount
        s = s_next
        steps = t + 1
        if ended:
            break
    blocked = shielded and end_episode(chains, k, s, horizon)
    return steps, ledger.deficit, total, blocked


@bare
def guess_into(
    ahead: Ahead,
    k: int,
    most: int,
    u_world: Floats,
    u_agent: Floats,
    agent: int,
    world: World,
    rows: Rows,
    radii: Radii,
    meta_rows: Rows,
    meta_radii: Radii,
    plan: PlanArrays,
    lanes: Lanes,
    explorer: Explorer,
    chains: Chains,
    guess: Chains,
    rule: Rule,
    kind: int,
    mixture: Mixture,
    prior: Ints,
    playing: Playing,
    scratch: Scratch,
) -> tuple[int, bool, bool, int]:
    """Play the next episodes by the plan at hand, and count them in the lanes behind them.

    Returns how many episodes may be planned together, whether several of them are likely to ask for upper
    values, whether any of them needs an explorer, and the stage from which several of them deviate, else H.
    """
    shielded = agent == SHIELD
    if shielded:
        guess_from_into(guess, chains)
    asking, exploring, n = 0, agent == MIXTURE and mixture.kind != FROZEN, 1
    deviating, since = 0, radii.horizon
    for j in range(most):
        s = first_state(world, u_world[j, 0])
        # The plan at hand is that of the episode played last.
        open_lane(lanes, lanes.now[Now.VALID], True, False)
        lanes.now[Now.VERSION] = j
        if shielded:
            exploring |= begin_episode(guess, s, k + j) >= 0
        steps, _, _, _ = play_episode(
            k + j,
            s,
            guess_switch(mixture, u_agent[j, 0], radii.horizon),
            u_world[j],
            u_agent[j],
            agent,
            world,
            rows,
            radii,
            meta_rows,
            meta_radii,
            plan,
            lanes,
            explorer,
            guess,
            rule,
            kind,
            mixture,
            prior,
            playing,
            scratch,
        )
        asking += lanes.now[Now.ASKED] > 0
        deviates = False
        for t in range(steps):
            if playing.actions[t] != plan.baseline[t, playing.states[t]]:
                deviates = True
                since = min(since, t)
        deviating += deviates
        ahead.steps[j] = steps
        for t in range(steps):
            ahead.states[j, t + 1] = playing.states[t + 1]
            ahead.pairs[j, t] = playing.pairs[t]
        if j + 1 == most:
            break
        if not version_into(
            lanes.versions,
            rows,
            radii,
            j + 1,
            playing.pairs,
            playing.states[1:],
            playing.rewards,
            steps,
        ):
            break
        n += 1
    return n, asking > 2, exploring, since if deviating > 2 else radii.horizon


@bare
def as_guessed(ahead: Ahead, j: int, playing: Playing, steps: int) -> bool:
    """Return whether the episode just played is the one guessed for lane j."""
    same = steps == ahead.steps[j]
    for t in range(steps):
        same &= playing.pairs[t] == ahead.pairs[j, t] and playing.states[t + 1] == ahead.states[j, t + 1]
    return same


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
    check: Check,
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
    everywhere = judge.coverage == EVERYWHERE
    nobody = np.full(len(rows.visits), -1)
    none = np.zeros((0, 0))
    whole = (0, horizon - 1)
    # The lanes planned together, the lane of the next episode, and what was planned for them.
    n, lane, upper, optimistic, truth = 0, 0, False, False, horizon
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
                n, upper, optimistic, truth = guess_into(
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
                plan_lanes_into(lanes, rows, radii, lanes.lower, LOWER, prior, upper)
                if optimistic:
                    plan_lanes_into(lanes, rows, radii, lanes.optimistic, UPPER, nobody, False)
                if truth < horizon:
                    value_lanes_truly_into(judge, lanes.lower, truth)
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
                        explore_into(explorer, meta_rows, meta_radii, scratch)
                    else:
                        explore_into(explorer, rows, radii, scratch)
                    for t in range(horizon):
                        for x in range(len(rows.visits)):
                            kept[t, x] = explorer.policy[t, x]
                    if lanes.on:
                        lanes.optimistic.policy[:] = kept
        elif agent == MIXTURE:
            if mixture.kind != FROZEN:
                if not lanes.on:
                    explore_into(explorer, rows, radii, scratch)
                elif mixture.kind != UCBVI:
                    for t in range(horizon):
                        for x in range(len(rows.visits)):
                            explorer.policy[t, x] = lane_action(lanes.optimistic, t, x, lane)
            switch = switch_step(mixture, rows, radii, explorer.policy, s, u_agent[0], scratch)
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
        since = first_deviation_into(log, k, plan.baseline, playing, steps, everywhere)
        if since < horizon:
            if lanes.on and since >= truth and not everywhere:
                for t in range(since, steps):
                    true_values_into(judge, plan.baseline, lane, t, playing.states[t], playing.pairs[t])
            else:
                if planner == FULL or everywhere:
                    baseline_from_into(plan, lanes, 0)
                    evaluate_truly_into(judge.v_true, judge.q_true, judge, plan.baseline, 0, scratch)
                else:
                    baseline_from_into(plan, lanes, since)
                    stages = (since, horizon - 1)
                    evaluate_into(judge.v_true, plan.baseline, judge.rows, judge.radii, UPPER, stages)
            if everywhere:
                if lanes.on:
                    all_values_into(plan, lanes)
                upper_from_into(plan, lanes, rows, radii, kind, 0, scratch)
            elif lanes.on and shielded:
                for t in range(since, steps):
                    values_behind_into(plan, lanes, rows, t, playing.states[t], playing.pairs[t])
        judge_into(log, judge, k, kind, rows, radii, plan, mixture.frozen, playing, steps, shielded, scratch)
        if check.every > 0 and k % check.every == 0:
            explores = lanes.on and optimistic
            priced = shielded or everywhere
            check_plan_into(check, k, plan, lanes, explores, rows, radii, prior, kind, priced, scratch)
            check_truth_into(check, k, judge, plan.baseline, since, playing.states, steps, scratch)
            if check.found[0] >= 0:
                return k
        keep_steps_into(log, k, playing, steps)
        learn_into(rows, radii, playing.states, playing.pairs, playing.states[1:], playing.rewards, steps)
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
        learn_into(rows, radii, playing.states, playing.pairs, playing.states[1:], playing.rewards, steps)
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
