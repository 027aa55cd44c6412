"""One compiled episode: the simulated world, and an agent in it that plays by the plan in use."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from chary._compile import bare, folded
from chary.agents._mixtures import uniform_pair
from chary.arrays import Bools, Floats, Ints
from chary.mdp import FiniteMDP
from chary.model.knowledge import learn_kernel
from chary.model.rows import Rows
from chary.planner._backup import LOWER, UPPER
from chary.planner._batch_arrays import Now, Side
from chary.planner._current import guess_action, lane_action
from chary.shield.ledger import Ledger
from chary.simulation._chains import Chains, Proposal, end_episode, shield_observe, shield_step
from chary.simulation._player import MIXTURE, RANDOM, SHIELD, Player


class World(NamedTuple):
    """The simulated environment; only its states and rewards reach an agent."""

    start: Floats
    row_start: Ints
    successor: Ints
    cumulative: Floats
    reward: Floats
    terminal: Bools


class Block(NamedTuple):
    """The episodes first..last-1 with their uniforms, (K, H + 1): row k - offset belongs to episode k."""

    first: int
    last: int
    offset: int
    world: Floats
    agent: Floats


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
    """Return what the loop needs to simulate the MDP; copies, since kernels take one type of array."""
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
def _draw(cumulative: Floats, begin: int, end: int, u: float) -> int:
    """Return the first place in begin..end-1 whose cumulative probability exceeds u, else the last.

    A uniform equal to a step belongs to the next place, as in `searchsorted(side="right")`.
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
def move(world: World, p: int, u: float) -> tuple[int, float]:
    """Return the next state and the reward of pair p."""
    entry = _draw(world.cumulative, world.row_start[p], world.row_start[p + 1], u)
    return world.successor[entry], world.reward[entry]


@folded
def first_state(world: World, u: float) -> int:
    """Return the state in which an episode starts."""
    last = len(world.start)
    while last > 1 and world.start[last - 2] == world.start[last - 1]:
        last -= 1
    return _draw(world.start, 0, last, u)


@bare
def play_episode(
    k: int,
    s: int,
    switch: int,
    u_world: Floats,
    u_agent: Floats,
    world: World,
    player: Player,
    chains: Chains,
    playing: Playing,
) -> tuple[int, float, float, bool]:
    """Play episode k from s by the plan in use; return its steps, deficit, return and whether it was blocked.

    A guessed episode feeds copies of the chains, and nothing learns from it. It plays what the plans after
    the episodes guessed before it would play, as far as that follows without making them.
    """
    rows, radii, plan, batch = player.rows, player.radii, player.plan, player.batch
    horizon = radii.horizon
    shielded = player.agent == SHIELD
    guessing = batch.now[Now.GUESSING] == 1
    learning = len(player.meta_rows.total) > 0 and not guessing
    ledger = Ledger(False, 0.0)
    steps, total, weight = 0, 0.0, 1.0
    playing.states[0] = s
    for t in range(horizon):
        if batch.on:
            plan.baseline[t, s] = _lane_action(player, batch.lower, LOWER, player.prior[s], t, s)
        decision = Proposal(plan.baseline[t, s], False, 0.0, 0.0, -1)
        if shielded:
            decision, ledger = shield_step(chains, ledger, player, k, t, s)
        elif player.agent == MIXTURE:
            a = player.mixture.frozen[t, s]
            if t >= switch:
                a = player.explorer.policy[t, s]
                if batch.on:
                    a = _lane_action(player, batch.optimistic, UPPER, -1, t, s)
            decision = Proposal(a, t >= switch, 0.0, 0.0, -1)
        elif player.agent == RANDOM:
            p = uniform_pair(rows, s, u_agent[t + 1])
            decision = Proposal(rows.pair_action[p], True, 0.0, 0.0, -1)
        p = rows.pair_index[s, decision.action]
        s_next, r = move(world, p, u_world[t + 1])
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
                    player.meta_rows,
                    player.meta_radii,
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


@folded
def _lane_action(player: Player, side: Side, sign: int, favourite: int, t: int, s: int) -> int:
    """Return what the policy of the lane in use plays, or in a guessed episode may play."""
    batch = player.batch
    if batch.now[Now.GUESSING] == 1:
        return guess_action(batch, side, player.rows, player.radii, sign, favourite, t, s)
    return lane_action(side, t, s, batch.now[Now.LANE])


@bare
def play_randomly(
    u_world: Floats, u_agent: Floats, world: World, rows: Rows, horizon: int, playing: Playing
) -> int:
    """Play an episode uniformly at random and return its steps."""
    playing.states[0] = first_state(world, u_world[0])
    for t in range(horizon):
        p = uniform_pair(rows, playing.states[t], u_agent[t + 1])
        playing.pairs[t] = p
        playing.states[t + 1], playing.rewards[t] = move(world, p, u_world[t + 1])
        if world.terminal[playing.states[t + 1]]:
            return t + 1
    return horizon


@bare
def play_table(
    u_world: Floats, world: World, rows: Rows, actions: Ints, discount: float, playing: Playing
) -> tuple[int, float]:
    """Play an episode by a table of actions (H, S) and return its steps and its return."""
    total, weight = 0.0, 1.0
    playing.states[0] = first_state(world, u_world[0])
    for t in range(len(actions)):
        s = playing.states[t]
        playing.actions[t] = actions[t, s]
        playing.pairs[t] = rows.pair_index[s, actions[t, s]]
        playing.states[t + 1], playing.rewards[t] = move(world, playing.pairs[t], u_world[t + 1])
        total += weight * playing.rewards[t]
        weight *= discount
        if world.terminal[playing.states[t + 1]]:
            return t + 1, total
    return len(actions), total
