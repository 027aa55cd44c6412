"""The shield's chains as arrays: the compiled twin of `shield.chains` and `shield.shield`.

The budget decision itself is not repeated here: `shield.ledger.authorise` is compiled as it stands.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from chary._compile import bare, folded
from chary.arrays import Floats, Ints
from chary.model.radii import HOEFFDING
from chary.planner._backup import UPPER
from chary.planner._batch_arrays import Actions, Now
from chary.planner._charges import charge_kernel, count_charge
from chary.planner._current import guess_action, lane_action, upper_from_into
from chary.planner._full import DIFFERENCE, PAPER
from chary.planner._vectors import LANES
from chary.shield.ledger import Ledger, authorise
from chary.simulation._player import Player

authorise_kernel = bare(authorise)

FREE, PENDING, FED = range(3)

# A chain number that no run reaches.
NEVER = 2**62


class Counter(IntEnum):
    """Places in `Chains.counters`."""

    STARTED = 0
    FINISHED = 1
    ABANDONED = 2
    BLOCKED = 3
    OPEN = 4


class Live(IntEnum):
    """Places in `Chains.live`, the state of the episode being played."""

    FED = 0
    EXTRA = 1
    REFUSED = 2
    EXPLORED = 3
    GUESSED = 4


class Chains(NamedTuple):
    """A pool of chains, one slot each, and lists of those pending by target, the oldest first.

    `explorer` has shape (pool, H, S); the `step_*` arrays (pool, H) are the meta-rollout so far; `head` (S,)
    and `following` (pool,) are linked lists of slots, -1 at the end. The `log_*` arrays are by chain
    number, room for one chain per episode; `prices` (A,) are the charges of one step. Chains from number
    `live[GUESSED]` on began in a guessed episode: they have no frozen explorer yet. `own_data` is
    whether explorers learn from finished chains alone.
    """

    clock_is_meta: bool
    stitched: bool
    patience: int
    own_data: bool
    explorer: Actions
    status: Ints
    number: Ints
    length: Ints
    target: Ints
    born: Ints
    last_advanced: Ints
    last_refused: Ints
    advanced: Ints
    fed: Ints
    exhausted: Ints
    long: Ints
    step_state: Ints
    step_pair: Ints
    step_next: Ints
    step_reward: Floats
    head: Ints
    following: Ints
    prices: Floats
    counters: Ints
    live: Ints
    log_born: Ints
    log_finished: Ints
    log_fed: Ints
    log_exhausted: Ints
    log_long: Ints


class Proposal(NamedTuple):
    """The outcome of one step: the action, whether it explored, its charge, what was booked, the chain."""

    action: int
    explored: bool
    charge: float
    booked: float
    chain: int


def new_chains(
    n_states: int,
    n_actions: int,
    horizon: int,
    *,
    pool: int,
    clock_is_meta: bool,
    stitched: bool,
    patience: int | None,
    episodes: int,
    own_data: bool = False,
) -> Chains:
    """Return an empty pool."""
    slots = pool if stitched else 1

    def ints(*shape: int, value: int = 0) -> Ints:
        return np.full(shape, value, dtype=np.int64)

    return Chains(
        clock_is_meta=clock_is_meta,
        stitched=stitched,
        patience=-1 if patience is None else patience,
        own_data=own_data,
        explorer=np.zeros((slots, horizon, n_states), dtype=np.int16),
        status=ints(slots),
        number=ints(slots, value=-1),
        length=ints(slots),
        target=ints(slots),
        born=ints(slots),
        last_advanced=ints(slots),
        last_refused=ints(slots, value=-1),
        advanced=ints(slots),
        fed=ints(slots),
        exhausted=ints(slots),
        long=ints(slots),
        step_state=ints(slots, horizon),
        step_pair=ints(slots, horizon),
        step_next=ints(slots, horizon),
        step_reward=np.zeros((slots, horizon)),
        head=ints(n_states, value=-1),
        following=ints(slots, value=-1),
        prices=np.zeros(n_actions),
        counters=ints(len(Counter)),
        live=ints(len(Live), value=NEVER),
        log_born=ints(episodes, value=-1),
        log_finished=ints(episodes, value=-1),
        log_fed=ints(episodes),
        log_exhausted=ints(episodes),
        log_long=ints(episodes),
    )


@bare
def guess_from_into(guess: Chains, chains: Chains) -> None:
    """Make `guess` a pool in the same state, as far as decisions go: what is only logged stays behind."""
    for i in range(len(chains.status)):
        guess.status[i] = chains.status[i]
        guess.number[i] = chains.number[i]
        guess.length[i] = chains.length[i]
        guess.target[i] = chains.target[i]
        guess.last_advanced[i] = chains.last_advanced[i]
        guess.following[i] = chains.following[i]
    for s in range(len(chains.head)):
        guess.head[s] = chains.head[s]
    for i in range(len(chains.counters)):
        guess.counters[i] = chains.counters[i]
    guess.live[Live.GUESSED] = chains.counters[Counter.STARTED]


@bare
def begin_episode(chains: Chains, s: int, k: int) -> int:
    """Prepare episode k, which starts in s; return the slot of a chain that begins there, -1 if none does."""
    chains.live[Live.FED] = -1
    chains.live[Live.EXTRA] = 0
    chains.live[Live.REFUSED] = 0
    chains.live[Live.EXPLORED] = 0
    if chains.stitched and (chains.head[s] >= 0 or chains.counters[Counter.OPEN] >= len(chains.status)):
        return -1
    slot = 0
    while chains.status[slot] != FREE:
        slot += 1
    number = chains.counters[Counter.STARTED]
    chains.counters[Counter.STARTED] += 1
    chains.counters[Counter.OPEN] += 1
    chains.number[slot] = number
    chains.length[slot] = 0
    chains.born[slot] = k
    chains.last_advanced[slot] = k
    chains.last_refused[slot] = -1
    chains.advanced[slot] = 0
    chains.fed[slot] = 0
    chains.exhausted[slot] = 0
    chains.long[slot] = 0
    chains.log_born[number] = k
    wait_into(chains, slot, s)
    return slot


@folded
def wait_into(chains: Chains, slot: int, s: int) -> None:
    """Let the chain in `slot` wait at s, behind the older ones there."""
    chains.status[slot] = PENDING
    chains.target[slot] = s
    before, after = -1, chains.head[s]
    while after >= 0 and chains.number[after] < chains.number[slot]:
        before, after = after, chains.following[after]
    chains.following[slot] = after
    if before < 0:
        chains.head[s] = slot
    else:
        chains.following[before] = slot


@folded
def leave_into(chains: Chains, slot: int) -> None:
    """Take the chain in `slot` out of the list of its target."""
    s = chains.target[slot]
    before, here = -1, chains.head[s]
    while here != slot:
        before, here = here, chains.following[here]
    if before < 0:
        chains.head[s] = chains.following[slot]
    else:
        chains.following[before] = chains.following[slot]
    chains.following[slot] = -1


@folded
def free_into(chains: Chains, slot: int) -> None:
    chains.status[slot] = FREE
    chains.number[slot] = -1
    chains.counters[Counter.OPEN] -= 1


@folded
def note_refusal(chains: Chains, slot: int, k: int) -> None:
    """Count an episode as exhausted for this chain, once."""
    chains.live[Live.REFUSED] = 1
    if chains.last_refused[slot] != k:
        chains.last_refused[slot] = k
        chains.exhausted[slot] += 1


@folded
def _explorer_action(chains: Chains, player: Player, slot: int, clock: int, s: int) -> int:
    batch = player.batch
    if chains.number[slot] >= chains.live[Live.GUESSED]:
        if not batch.on or chains.own_data:
            return lane_action(batch.optimistic, clock, s, batch.now[Now.LANE])
        return guess_action(batch, batch.optimistic, player.rows, player.radii, UPPER, -1, clock, s)
    # Explorers are kept in 16 bits; a decision has one type wherever it comes from.
    return np.int64(chains.explorer[slot, clock, s])  # type: ignore[return-value]


@folded
def _price(player: Player, ledger: Ledger, t: int, s: int, a: int) -> float:
    """Return the charge of playing `a` at (t, s), or a smaller lower bound on it that is refused already.

    With the lower value in place of the upper one a charge can only fall, every operation on the way being
    monotone: if the budget refuses even that, the upper value is not needed.
    """
    rows, radii, plan, batch, kind = player.rows, player.radii, player.plan, player.batch, player.charge
    a1, now = plan.baseline[t, s], batch.now
    if a == a1 and kind != PAPER:
        return 0.0
    if radii.family != HOEFFDING or kind == DIFFERENCE:
        now[Now.ASKED] += 1
        if now[Now.GUESSING] == 0:
            upper_from_into(plan, batch, rows, radii, kind, t, player.scratch)
        return charge_kernel(kind, rows, radii, plan, t, s, a, player.scratch)
    p, p1, column = rows.pair_index[s, a], rows.pair_index[s, a1], (plan.v_lower.shape[1], 1)
    lower, lane = plan.v_lower[t + 1].reshape(column), 0
    upper, upper_lane, worth = plan.v_upper[t + 1].reshape(column), 0, plan.v_upper[t, s]
    known = t >= now[Now.UPPER_FROM]
    if batch.on:
        lower, lane = batch.lower.v[t + 1], now[Now.LANE]
        if now[Now.UPPER_LANES] == 1:
            upper, upper_lane, worth = batch.upper[t + 1], lane, batch.upper[t, s, lane]
            known = True
    if not known:
        least = batch.lower.v[t, s, lane] if batch.on else plan.v_lower[t, s]
        charge = count_charge(kind, rows, radii, t, p, p1, least, lower, lane, lower, lane)
        afforded, _ = authorise_kernel(ledger, True, charge, player.rule)
        if not afforded:
            return charge
        if now[Now.GUESSING] == 1:
            # The upper values that the lanes had last are guess enough.
            upper, upper_lane, worth = batch.upper[t + 1], LANES - 1, batch.upper[t, s, LANES - 1]
        else:
            upper_from_into(plan, batch, rows, radii, kind, t, player.scratch)
            worth = plan.v_upper[t, s]
    now[Now.ASKED] += 1
    return count_charge(kind, rows, radii, t, p, p1, worth, lower, lane, upper, upper_lane)


@folded
def shield_step(
    chains: Chains, ledger: Ledger, player: Player, k: int, t: int, s: int
) -> tuple[Proposal, Ledger]:
    """Decide one step of episode k at (t, s), section 2."""
    rule = player.rule
    if not ledger.closed:
        slot = chains.live[Live.FED]
        if slot >= 0:
            extra = chains.live[Live.EXTRA] == 1
            clock = chains.length[slot] if chains.clock_is_meta and not extra else t
            a = _explorer_action(chains, player, slot, clock, s)
            charge = _price(player, ledger, t, s, a)
            afforded, ledger = authorise_kernel(ledger, True, charge, rule)
            if afforded:
                return Proposal(a, True, charge, min(charge, rule.step_bound), chains.number[slot]), ledger
            chains.live[Live.FED] = -1
            if extra:
                chains.live[Live.REFUSED] = 1
                free_into(chains, slot)
            else:
                note_refusal(chains, slot, k)
                if chains.stitched:
                    wait_into(chains, slot, s)
                else:
                    free_into(chains, slot)
        elif chains.stitched or t == 0:
            slot = chains.head[s]
            # Many chains may wait here, but they propose few actions: each is priced once.
            for a in range(len(chains.prices)):
                chains.prices[a] = -1.0
            while slot >= 0:
                following = chains.following[slot]
                clock = chains.length[slot] if chains.clock_is_meta else t
                a = _explorer_action(chains, player, slot, clock, s)
                if chains.prices[a] < 0.0:
                    chains.prices[a] = _price(player, ledger, t, s, a)
                charge = chains.prices[a]
                afforded, ledger = authorise_kernel(ledger, True, charge, rule)
                if afforded:
                    leave_into(chains, slot)
                    chains.status[slot] = FED
                    chains.live[Live.FED] = slot
                    chains.live[Live.EXTRA] = 0
                    return Proposal(
                        a, True, charge, min(charge, rule.step_bound), chains.number[slot]
                    ), ledger
                note_refusal(chains, slot, k)
                if not chains.stitched:
                    leave_into(chains, slot)
                    free_into(chains, slot)
                if ledger.closed:
                    break
                slot = following
    return Proposal(player.plan.baseline[t, s], False, 0.0, 0.0, -1), ledger


@folded
def shield_observe(
    chains: Chains, k: int, s: int, p: int, s_next: int, r: float, ended: bool, horizon: int
) -> int:
    """Lengthen the chain being fed by an explored step; return its slot if that completes it, else -1."""
    chains.live[Live.EXPLORED] += 1
    if chains.live[Live.EXTRA] == 1:
        return -1
    slot = chains.live[Live.FED]
    i = chains.length[slot]
    chains.step_state[slot, i] = s
    chains.step_pair[slot, i] = p
    chains.step_next[slot, i] = s_next
    chains.step_reward[slot, i] = r
    chains.length[slot] = i + 1
    if chains.fed[slot] == 0 or chains.last_advanced[slot] != k:
        chains.fed[slot] += 1
        chains.advanced[slot] = 0
    chains.last_advanced[slot] = k
    chains.advanced[slot] += 1
    if chains.length[slot] < horizon and not ended:
        return -1
    _classify(chains, slot, k, horizon)
    number = chains.number[slot]
    chains.counters[Counter.FINISHED] += 1
    chains.live[Live.EXTRA] = 1
    chains.log_finished[number] = k
    chains.log_fed[number] = chains.fed[slot]
    chains.log_exhausted[number] = chains.exhausted[slot]
    chains.log_long[number] = chains.long[slot]
    return slot


@folded
def _classify(chains: Chains, slot: int, k: int, horizon: int) -> None:
    """Count the episode as a long one for this chain, if it did not end in a refusal."""
    if chains.last_refused[slot] != k and 4 * chains.advanced[slot] >= horizon:
        chains.long[slot] += 1


@bare
def end_episode(chains: Chains, k: int, s: int, horizon: int) -> bool:
    """Close episode k, which ended in s; return whether it was blocked."""
    slot = chains.live[Live.FED]
    if slot >= 0:
        chains.live[Live.FED] = -1
        if chains.live[Live.EXTRA] == 1 or not chains.stitched:
            free_into(chains, slot)
        else:
            _classify(chains, slot, k, horizon)
            wait_into(chains, slot, s)
    if chains.patience >= 0:
        for i in range(len(chains.status)):
            if chains.status[i] == PENDING and k - chains.last_advanced[i] >= chains.patience:
                leave_into(chains, i)
                free_into(chains, i)
                chains.counters[Counter.ABANDONED] += 1
    blocked = chains.live[Live.REFUSED] == 1 and chains.live[Live.EXPLORED] == 0
    if blocked:
        chains.counters[Counter.BLOCKED] += 1
    return blocked
