"""The compiled episode loop of agents that plan by posterior worlds: play, judge, note what was seen."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from chary._compile import bare, calling, folded, jit, kernel_of
from chary.arrays import Floats, Ints
from chary.model._world_draws import WorldRows
from chary.model.rows import Rows
from chary.planner._worlds import Shape, WorldPlan, gaps_into, upper_kernel
from chary.shield.ledger import Ledger, authorise
from chary.shield.rule import Rule
from chary.shield.worlds import Panel, vote_into
from chary.simulation._chains import (
    FED,
    Chains,
    Live,
    Proposal,
    begin_episode,
    end_episode,
    free_into,
    leave_into,
    note_refusal,
    shield_observe,
    wait_into,
)
from chary.simulation._episode import Block, Playing, World, first_state, move, play_randomly
from chary.simulation._judge import Judge, charge_fails, judge_deficit, judge_regret
from chary.simulation._record import EpisodeColumns, Record, first_deviation_kernel, keep_steps_kernel

# The shield's functions take any sequences; compiled, they are given arrays.
authorise_kernel: Any = bare(authorise)
vote_kernel: Any = bare(calling(vote_into, authorise=authorise_kernel, upper=upper_kernel))


class WorldPlayer(NamedTuple):
    """An agent with its worlds and the plan in use.

    `deficits` and `charges` have one number per judging world, or only one where a single ledger is kept;
    `gaps` (K,) is room for one step. Where steps are not `priced` there is no budget.
    """

    rows: WorldRows
    shape: Shape
    plan: WorldPlan
    rule: Rule
    panel: Panel
    priced: bool
    deficits: Floats
    charges: Floats
    gaps: Floats


class Seen(NamedTuple):
    """The transitions since the last plan: `used[0]` of them, and the number at which to plan again."""

    pairs: Ints
    nexts: Ints
    rewards: Floats
    used: Ints


@jit
def judge_worlds_into(
    columns: EpisodeColumns,
    judge: Judge,
    k: int,
    baseline: Ints,
    playing: Playing,
    steps: int,
    priced: bool,
) -> None:
    """Write what episode k really cost; `judge.v_true` is the value of the baseline in use."""
    columns.regret[k] = judge_regret(judge, playing, steps)
    if columns.deviating_steps[k] > 0:
        columns.true_deficit[k], columns.signed_deficit[k], columns.largest_gap[k] = judge_deficit(
            judge, judge.v_true, baseline, playing, steps
        )
        columns.charge_failed[k] = priced and charge_fails(judge, baseline, playing, steps)
    columns.incumbent_deficit[k], _, _ = judge_deficit(
        judge, judge.v_incumbent, judge.incumbent, playing, steps
    )


judge_worlds_kernel = kernel_of(judge_worlds_into)


@jit
def play_worlds_block(
    block: Block,
    world: World,
    player: WorldPlayer,
    chains: Chains,
    judge: Judge,
    playing: Playing,
    seen: Seen,
    record: Record,
    due: int,
    worth: float,
) -> int:
    """Play a block of episodes and return the next one to play.

    Stops early, before an episode, where `due` transitions have been seen: the caller plans again. `worth` is
    the true value of the baseline in use.
    """
    plan, columns = player.plan, record.episodes
    horizon = len(plan.baseline)
    for k in range(block.first, block.last):
        if seen.used[0] >= due:
            return k
        i = k - block.offset
        s = first_state(world, block.world[i, 0])
        slot = begin_episode(chains, s, k)
        if slot >= 0:
            kept, lane = chains.explorer[slot], chains.number[slot] % plan.explorer.shape[2]
            for t in range(horizon):
                for x in range(kept.shape[1]):
                    kept[t, x] = plan.explorer[t, x, lane]
        steps, columns.deficit[k], columns.returns[k], columns.blocked[k] = _play(
            k, s, block.world[i], world, player, chains, playing
        )
        columns.length[k] = steps
        first_deviation_kernel(columns, k, plan.baseline, playing, steps, False)
        columns.baseline_value[k] = worth
        judge_worlds_kernel(columns, judge, k, plan.baseline, playing, steps, player.priced)
        keep_steps_kernel(record.steps, k, playing, steps)
        note_into(seen, playing, steps)
    return block.last


@jit
def warm_worlds_block(
    block: Block, world: World, rows: Rows, horizon: int, playing: Playing, seen: Seen
) -> int:
    """Note a block of uniformly random episodes and return the next one; `rows` need no counts."""
    for k in range(block.first, block.last):
        i = k - block.offset
        note_into(seen, playing, play_randomly(block.world[i], block.agent[i], world, rows, horizon, playing))
    return block.last


@bare
def note_into(seen: Seen, playing: Playing, steps: int) -> None:
    """Append the transitions of an episode; there must be room."""
    for t in range(steps):
        place = seen.used[0] + t
        seen.pairs[place] = playing.pairs[t]
        seen.nexts[place] = playing.states[t + 1]
        seen.rewards[place] = playing.rewards[t]
    seen.used[0] += steps


@bare
def _play(
    k: int, s: int, u_world: Floats, world: World, player: WorldPlayer, chains: Chains, playing: Playing
) -> tuple[int, float, float, bool]:
    """Play episode k from s; return its steps, deficit, return and whether it was blocked."""
    horizon, shape = len(player.plan.baseline), player.shape
    ledger = Ledger(False, 0.0)
    for j in range(len(player.deficits)):
        player.deficits[j] = 0.0
    steps, total, weight = 0, 0.0, 1.0
    playing.states[0] = s
    for t in range(horizon):
        decision, ledger = _step(chains, ledger, player, k, t, s)
        p = shape.pair_index[s, decision.action]
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
        if decision.explored:
            shield_observe(chains, k, s, p, s_next, r, ended, horizon)
        total += weight * r
        weight *= shape.discount
        s = s_next
        steps = t + 1
        if ended:
            break
    blocked = end_episode(chains, k, s, horizon)
    return steps, ledger.deficit, total, blocked


@folded
def _step(
    chains: Chains, ledger: Ledger, player: WorldPlayer, k: int, t: int, s: int
) -> tuple[Proposal, Ledger]:
    """Decide one step of episode k at (t, s), section 2, by the vote of the worlds."""
    fed = chains.live[Live.FED] >= 0
    slot = chains.live[Live.FED]
    if not fed and (chains.stitched or t == 0):
        slot = chains.head[s]
        # Many chains may wait here, but they propose few actions: each is put to the vote once.
        for i in range(len(chains.prices)):
            chains.prices[i] = -1.0
    while slot >= 0 and not ledger.closed:
        following = chains.following[slot]
        extra = fed and chains.live[Live.EXTRA] == 1
        clock = chains.length[slot] if chains.clock_is_meta and not extra else t
        # Explorers are kept in 16 bits; a decision has one type wherever it comes from.
        a: int = np.int64(chains.explorer[slot, clock, s])  # type: ignore[assignment]
        if fed or chains.prices[a] < 0.0:
            charge, before = _price_into(player, t, s, a), ledger.deficit
            if len(player.deficits) > 1:
                vote, ledger = vote_kernel(player.deficits, player.charges, ledger, player.rule, player.panel)
                afforded, booked = vote.afforded, ledger.deficit - before
            else:
                afforded, ledger = authorise_kernel(ledger, True, charge, player.rule)
                booked = min(charge, player.rule.step_bound)
            if afforded:
                if not fed:
                    leave_into(chains, slot)
                    chains.status[slot] = FED
                    chains.live[Live.FED] = slot
                    chains.live[Live.EXTRA] = 0
                return Proposal(a, True, charge, booked, chains.number[slot]), ledger
            chains.prices[a] = charge
        if extra:
            chains.live[Live.REFUSED] = 1
        else:
            note_refusal(chains, slot, k)
        if fed:
            chains.live[Live.FED] = -1
            if extra or not chains.stitched:
                free_into(chains, slot)
            else:
                wait_into(chains, slot, s)
            break
        if not chains.stitched:
            leave_into(chains, slot)
            free_into(chains, slot)
        slot = following
    return Proposal(player.plan.baseline[t, s], False, 0.0, 0.0, -1), ledger


@folded
def _price_into(player: WorldPlayer, t: int, s: int, a: int) -> float:
    """Fill `player.charges` with the charge of a step in every world, or the joint one; return that."""
    charges, gaps = player.charges, player.gaps
    if not player.priced:
        for j in range(len(charges)):
            charges[j] = 0.0
        return 0.0
    gaps_into(gaps, player.plan, player.rows, player.shape, t, s, a)
    charge: float = upper_kernel(gaps, player.panel)
    if len(charges) > 1:
        for j in range(len(charges)):
            charges[j] = gaps[j]
    return charge
