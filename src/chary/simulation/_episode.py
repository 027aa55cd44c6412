"""One compiled episode: the simulated world, and an agent in it that plays by the plan in use."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from chary._compile import bare, folded
from chary.agents._mixtures import Mixture, uniform_pair
from chary.arrays import Bools, Floats, Ints
from chary.mdp import FiniteMDP
from chary.model.counts import learn_kernel
from chary.model.radii import Radii
from chary.model.rows import Rows
from chary.planner._backup import LOWER, UPPER, Scratch
from chary.planner._batch import Lanes, Now
from chary.planner._current import guess_action, lane_action
from chary.planner._full import Explorer, PlanArrays
from chary.shield.ledger import Ledger
from chary.shield.rule import Rule
from chary.simulation._chains import Chains, Proposal, end_episode, shield_observe, shield_step

__all__ = [
    "BASELINE",
    "MIXTURE",
    "RANDOM",
    "SHIELD",
    "Playing",
    "World",
    "draw",
    "first_state",
    "new_playing",
    "new_world",
    "play_episode",
]


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

    A guessed episode feeds copies of the chains, nothing learns from it, and it plays what plans would say
    after the episodes guessed before it, as far as that can be told without making them.
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
                learn_kernel(
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
