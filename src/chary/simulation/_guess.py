"""Episodes guessed ahead, so that their plans can be made together: see `planner._batch`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from chary._compile import bare
from chary.agents._mixtures import FROZEN, guess_switch
from chary.arrays import Ints
from chary.planner._batch_arrays import Now
from chary.planner._batch_versions import version_into
from chary.planner._current import open_lane
from chary.planner._vectors import LANES
from chary.simulation._chains import Chains, begin_episode, guess_from_into
from chary.simulation._episode import Block, Playing, World, first_state, play_episode
from chary.simulation._player import MIXTURE, SHIELD, Player


class Ahead(NamedTuple):
    """Episodes guessed ahead, one per lane: states (LANES, H + 1), pairs (LANES, H), steps (LANES,).

    `chains` is the pool that they feed: a copy of the agent's, except for the explorers, which are shared.
    `nobody` (S,) is -1, the prior of explorers: no action wins their ties.
    """

    chains: Chains
    nobody: Ints
    states: Ints
    pairs: Ints
    steps: Ints


def new_ahead(chains: Chains, horizon: int) -> Ahead:
    """Return room for the episodes guessed ahead."""

    def ints(*shape: int) -> Ints:
        return np.zeros(shape, dtype=np.int64)

    nobody = np.full(len(chains.head), -1, dtype=np.int64)
    return Ahead(chains, nobody, ints(LANES, horizon + 1), ints(LANES, horizon), ints(LANES))


@bare
def guess_into(
    ahead: Ahead,
    k: int,
    most: int,
    block: Block,
    world: World,
    player: Player,
    chains: Chains,
    playing: Playing,
) -> tuple[int, bool, bool]:
    """Play up to `most` episodes from k on by the current plan, and count them in the lanes behind them.

    Returns how many episodes may be planned together, whether several of them are likely to need upper
    values, and whether any of them needs an explorer.
    """
    batch, mixture = player.batch, player.mixture
    shielded = player.agent == SHIELD
    if shielded:
        guess_from_into(ahead.chains, chains)
    asking, exploring, n = 0, player.agent == MIXTURE and mixture.kind != FROZEN, 1
    for j in range(most):
        u_world, u_agent = block.world[k + j - block.offset], block.agent[k + j - block.offset]
        s = first_state(world, u_world[0])
        ahead.states[j, 0] = s
        # The current plan is that of the episode played last.
        open_lane(batch, batch.now[Now.VALID], True, False)
        batch.now[Now.VERSION] = j
        if shielded:
            exploring |= begin_episode(ahead.chains, s, k + j) >= 0
        switch = guess_switch(mixture, u_agent[0], player.radii.horizon)
        steps, _, _, _ = play_episode(
            k + j, s, switch, u_world, u_agent, world, player, ahead.chains, playing
        )
        asking += batch.now[Now.ASKED] > 0
        ahead.steps[j] = steps
        for t in range(steps):
            ahead.states[j, t + 1] = playing.states[t + 1]
            ahead.pairs[j, t] = playing.pairs[t]
        pairs, nexts, rewards = playing.pairs, playing.states[1:], playing.rewards
        if j + 1 == most or not version_into(
            batch.versions, player.rows, player.radii, j + 1, pairs, nexts, rewards, steps
        ):
            break
        n += 1
    return n, asking > 2, exploring


@bare
def as_guessed(ahead: Ahead, j: int, playing: Playing, steps: int) -> bool:
    """Return whether the episode just played is the one guessed for lane j."""
    same = bool(steps == ahead.steps[j])
    for t in range(steps):
        same &= playing.pairs[t] == ahead.pairs[j, t] and playing.states[t + 1] == ahead.states[j, t + 1]
    return same
