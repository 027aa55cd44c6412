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
)
from chary._chains import Chains, Proposal, begin_episode, end_episode, shield_observe, shield_step
from chary._compile import inner, jit
from chary.agents._mixtures import FROZEN, Mixture, switch_step, uniform_pair
from chary.mdp import FiniteMDP
from chary.model.counts import learn_into
from chary.model.radii import Radii
from chary.model.rows import Rows
from chary.planner._backup import Scratch
from chary.planner._kernels import Explorer, PlanArrays, explore_into, plan_into
from chary.shield.ledger import Ledger
from chary.shield.rule import Rule

__all__ = [
    "BASELINE",
    "MIXTURE",
    "RANDOM",
    "SHIELD",
    "Log",
    "Playing",
    "World",
    "has_room",
    "most_chain_steps",
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


@inner
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


@inner
def first_state(world: World, u: float) -> int:
    """Return the state in which an episode starts."""
    last = len(world.start)
    while last > 1 and world.start[last - 2] == world.start[last - 1]:
        last -= 1
    return draw(world.start, 0, last, u)


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
    explorer: Explorer,
    chains: Chains,
    rule: Rule,
    kind: int,
    mixture: Mixture,
    prior: Ints,
    playing: Playing,
    log: Log,
    scratch: Scratch,
) -> int:
    """Play the episodes first..last-1 and return the next one to play.

    Uniforms are (K, H + 1), row k - offset for episode k. Stops early, before an episode, where counting
    it might run out of room: the caller repacks the rows and calls again.
    """
    horizon = radii.horizon
    separate = len(meta_rows.total) > 0
    shielded = agent == SHIELD
    everywhere = judge.coverage == EVERYWHERE
    for k in range(first, last):
        if not has_room(rows, horizon) or (separate and not has_room(meta_rows, most_chain_steps(horizon))):
            return k
        u_world, u_agent = world_uniforms[k - offset], agent_uniforms[k - offset]
        s = first_state(world, u_world[0])
        plan_into(plan, rows, radii, prior, kind, shielded or everywhere, scratch)
        switch = 0
        if shielded:
            slot = begin_episode(chains, s, k)
            if slot >= 0:
                if separate:
                    explore_into(explorer, meta_rows, meta_radii, scratch)
                else:
                    explore_into(explorer, rows, radii, scratch)
                for t in range(horizon):
                    for x in range(len(rows.visits)):
                        chains.explorer[slot, t, x] = explorer.policy[t, x]
        elif agent == MIXTURE:
            if mixture.kind != FROZEN:
                explore_into(explorer, rows, radii, scratch)
            switch = switch_step(mixture, rows, radii, explorer.policy, s, u_agent[0], scratch)
        ledger = Ledger(False, 0.0)
        steps, total, weight = 0, 0.0, 1.0
        playing.states[0] = s
        for t in range(horizon):
            decision = Proposal(0, False, 0.0, 0.0, -1)
            if shielded:
                decision, ledger = shield_step(
                    chains, ledger, rule, kind, rows, radii, plan, k, t, s, scratch
                )
            elif agent == MIXTURE:
                a = explorer.policy[t, s] if t >= switch else mixture.frozen[t, s]
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
                if done >= 0 and separate:
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
        if shielded:
            log.blocked[k] = end_episode(chains, k, s, horizon)
        log.deficit[k] = ledger.deficit
        log.returns[k] = total
        log.length[k] = steps
        judge_into(log, judge, k, kind, rows, radii, plan, mixture.frozen, playing, steps, shielded, scratch)
        keep_steps_into(log, k, playing, steps)
        learn_into(rows, radii, playing.states, playing.pairs, playing.states[1:], playing.rewards, steps)
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
    longest = 0
    for p in range(len(rows.capacity)):
        longest = max(longest, rows.capacity[p])
    # A row of capacity c that takes in m more moves to 2c, 4c, ...: at most 2c + 4m entries for all its
    # moves.
    return rows.used[0] + steps * (4 + 2 * longest) <= len(rows.successor)


@jit
def most_chain_steps(horizon: int) -> int:
    """Return how many steps the chains that finish in one episode have at most.

    A finished chain is only followed by another after a step that was refused.
    """
    return (horizon + 1) // 2 * horizon


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
    exploring, deviating = 0, 0
    for t in range(steps):
        exploring += playing.explored[t]
        deviating += playing.actions[t] != plan.baseline[t, playing.states[t]]
    log.exploring_steps[k] = exploring
    log.deviating_steps[k] = deviating
    if deviating > 0 or everywhere or (priced and exploring > 0):
        evaluate_truly_into(judge.v_true, judge.q_true, judge, plan.baseline, everywhere, scratch)
        log.true_deficit[k], log.signed_deficit[k], log.largest_gap[k] = judge_deficit(
            judge, judge.v_true, plan.baseline, playing.states, playing.actions, playing.pairs, steps, scratch
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
        judge, judge.v_frozen, frozen, playing.states, playing.actions, playing.pairs, steps, scratch
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
