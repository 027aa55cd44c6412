"""Kernels of posterior worlds: the prior's part of every row, drawn, and the sums over rows."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from chary._compile import bare, jit
from chary.arrays import Bools, Floats, Ints
from chary.mdp import Setting
from chary.model.rows import find_place

# Single precision keeps shares of this total; next to a transition counted it is nothing.
LEAST_TOTAL = 1e-30


class WorldRows(NamedTuple):
    """The rows of all worlds as kernels read them; L worlds are the last axis.

    Pair p has entries `start[p]:start[p + 1]`, successors ascending, with the data's `weight` (E, L). Its
    prior in world l has the atoms `atom_start[l * P + p]` to the next, each a state with a weight. Where
    `pools[p, l]` is not 0, the row pools and has besides `rest[p] * pools[p, l]` times a measure
    proportional to p0: `pooled` on the entries of the other pairs of the state, plus `back_off`. `total`
    (P, L) is the sum of all weights and `reward` (P, L) the mean reward.
    """

    start: Ints
    successor: Ints
    weight: Floats
    atom_start: Ints
    atom_state: NDArray[np.int32]
    atom_weight: NDArray[np.float32]
    pooled: Floats
    rest: Floats
    back_off: Floats
    pools: Floats
    total: Floats
    reward: Floats


class Rewards(NamedTuple):
    """Declared rewards by pair: those listed, and elsewhere the middle of what is possible.

    Without a declaration every list is empty, `declared` is False, and `arrival` (S,) is the mean reward
    observed on arrival in a state.
    """

    declared: bool
    start: Ints
    successor: Ints
    reward: Floats
    other: Floats
    arrival: Floats


def rewards_of(setting: Setting) -> Rewards:
    """Return the declared rewards of a problem."""
    known, P = setting.known, setting.n_pairs
    if known is None:
        nothing = np.zeros(0, dtype=np.int64)
        arrival = np.full(setting.n_states, 0.5)
        return Rewards(False, np.zeros(P + 1, dtype=np.int64), nothing, np.zeros(0), np.zeros(P), arrival)
    middle = (known.other_low + known.other_high) / 2.0
    start, successor, reward = np.array(known.start), np.array(known.successor), np.array(known.reward)
    return Rewards(True, start, successor, reward, middle, np.zeros(setting.n_states))


@bare
def _reward_at(rewards: Rewards, p: int, x: int) -> float:
    if not rewards.declared:
        return rewards.arrival[x]
    end = rewards.start[p + 1]
    place = find_place(rewards.successor, rewards.start[p], end, x)
    if place < end and rewards.successor[place] == x:
        return rewards.reward[place]
    return rewards.other[p]


@jit
def add_transitions_into(
    weight: Floats, sums: Floats, drawn: Floats, entries: Ints, pairs: Ints, rewards: Floats
) -> None:
    """Add to every world the weight of each transition, `drawn` (n, L), and to `sums` its weighted reward."""
    for i in range(len(entries)):
        e, p, r = entries[i], pairs[i], rewards[i]
        for k in range(weight.shape[1]):
            weight[e, k] += drawn[i, k]
            sums[p, k] += r * drawn[i, k]


@bare
def _first_above(ascending: Floats, first: int, last: int, u: float) -> int:
    """Return the first place in first..last whose value exceeds u, else `last`."""
    while first < last:
        middle = (first + last) // 2
        if ascending[middle] <= u:
            first = middle + 1
        else:
            last = middle
    return first


@jit
def draw_kinds_into(
    kinds: NDArray[np.int8],
    likelihood: Floats,
    weights: Floats,
    tried: Bools,
    sweeps: int,
    generator: np.random.Generator,
) -> None:
    """Draw the kind of every row in every world, (P, L), by Gibbs sampling.

    In turn the kinds of the pairs that were tried are drawn given the shares of all kinds, and the shares
    given the kinds. A pair that was not tried has each kind with its share.
    """
    P, L = kinds.shape
    C = len(weights)
    shares, number, up_to = np.zeros(C), np.zeros(C), np.zeros(C)
    for k in range(L):
        shares[:] = weights
        for sweep in range(sweeps + 1):
            number[:] = weights
            for p in range(P):
                if tried[p] or sweep == sweeps:
                    total = 0.0
                    for c in range(C):
                        total += shares[c] * likelihood[p, c]
                        up_to[c] = total
                    kind = _first_above(up_to, 0, C - 1, generator.random() * total)
                    kinds[p, k] = kind
                    number[kind] += 1.0
            if sweep < sweeps:
                for c in range(C):
                    shares[c] = generator.standard_gamma(number[c]) if number[c] > 0.0 else 0.0
                shares /= shares.sum()


@jit
def draw_shrunk_into(
    atom_state: NDArray[np.int32],
    atom_weight: NDArray[np.float32],
    atom_start: Ints,
    start: Ints,
    successor: Ints,
    pooled: Floats,
    back_off: Floats,
    pair_start: Ints,
    kinds: NDArray[np.int8],
    smallest: Floats,
    generator: np.random.Generator,
) -> None:
    """Draw, where a row pools, the jumps of a gamma process with base alpha0 * p0 above `smallest` (FLAT,).

    How many there are is given. A jump has the density exp(-x) / x, and its place is drawn from p0.
    """
    up_to = np.concatenate((np.zeros(1), np.cumsum(pooled)))
    everywhere = np.cumsum(back_off)
    P = len(start) - 1
    for k in range(kinds.shape[1]):
        place = k * P
        for s in range(len(pair_start) - 1):
            first, last = start[pair_start[s]], start[pair_start[s + 1]]
            before, of_state = up_to[first], up_to[last] - up_to[first]
            for p in range(pair_start[s], pair_start[s + 1]):
                below, own = up_to[start[p]] - before, up_to[start[p + 1]] - up_to[start[p]]
                first_atom, end = atom_start[place + p], atom_start[place + p + 1]
                kind = kinds[p, k]
                for i in range(first_atom, end if kind < len(smallest) else first_atom):
                    atom_weight[i] = _jump(smallest[kind], generator)
                    u = generator.random() * (of_state - own + everywhere[-1])
                    if u < of_state - own:
                        # The entries of the pair itself are left out.
                        u += before + (own if u >= below else 0.0)
                        atom_state[i] = successor[_first_above(up_to, first + 1, last, u) - 1]
                    else:
                        u -= of_state - own
                        atom_state[i] = _first_above(everywhere, 0, len(everywhere) - 1, u)


@bare
def _jump(smallest: float, generator: np.random.Generator) -> float:
    """Draw from the density proportional to exp(-x) / x above `smallest`, by rejection."""
    if smallest >= 1.0:
        while True:
            x = smallest + generator.standard_exponential()
            if generator.random() * x < smallest:
                return x
    # Below 1 the density is under exp(-smallest) / x, above 1 under exp(-x).
    below = math.exp(-smallest) * -math.log(smallest)
    while True:
        if generator.random() * (below + math.exp(-1.0)) < below:
            x = smallest ** generator.random()
            if generator.random() < math.exp(smallest - x):
                return x
        else:
            x = 1.0 + generator.standard_exponential()
            if generator.random() * x < 1.0:
                return x


@jit
def draw_flat_into(
    atom_state: NDArray[np.int32],
    atom_weight: NDArray[np.float32],
    atom_start: Ints,
    start: Ints,
    successor: Ints,
    n_states: int,
    kinds: NDArray[np.int8],
    flat: int,
    flat_weights: Floats,
    generator: np.random.Generator,
) -> None:
    """Draw, where a row of a world is flat, a gamma variable for each possible successor, those seen first.

    Its shape is that of the row's kind, `flat_weights` from kind `flat` on. Which states the others are is
    not known: in every world they are drawn among those not seen.
    """
    P = len(start) - 1
    unseen, drawn = np.zeros(n_states, dtype=np.int32), np.zeros(n_states)
    for p in range(P):
        seen = start[p + 1] - start[p]
        n, e = 0, start[p]
        for x in range(n_states):
            if e < start[p + 1] and successor[e] == x:
                e += 1
            else:
                unseen[n] = x
                n += 1
        for k in range(kinds.shape[1]):
            if kinds[p, k] < flat:
                continue
            first, end = atom_start[k * P + p], atom_start[k * P + p + 1]
            weight, total = flat_weights[kinds[p, k] - flat], 0.0
            for i in range(first, end):
                j = i - first
                drawn[j] = generator.standard_gamma(weight)
                total += drawn[j]
                if j < seen:
                    atom_state[i] = successor[start[p] + j]
                else:
                    # A step of a random shuffle; the next world shuffles on.
                    j -= seen
                    other = j + min(int(generator.random() * (n - j)), n - j - 1)
                    unseen[j], unseen[other] = unseen[other], unseen[j]
                    atom_state[i] = unseen[j]
            if total == 0.0:
                # Less than any number: so few possible successors that one of them has it all.
                drawn[min(int(generator.random() * (end - first)), end - first - 1)] = LEAST_TOTAL
                total = LEAST_TOTAL
            # The shares of gamma variables do not depend on their sum: a small one is stored as a larger one.
            scale = max(LEAST_TOTAL / total, 1.0)
            for i in range(first, end):
                atom_weight[i] = drawn[i - first] * scale


@jit
def relabel_into(
    atom_state: NDArray[np.int32], atom_start: Ints, start: Ints, pools: Floats, pairs: Ints, states: Ints
) -> None:
    """Label, where a row is flat, an unseen successor of each pair by a state seen for the first time.

    Labels are independent of weights, so the one that has this label already may be taken, else the first.
    Pairs are ascending, and `start` is as it was before.
    """
    P = len(start) - 1
    for i in range(len(pairs)):
        p, x = pairs[i], states[i]
        earlier = 0
        while i - earlier > 0 and pairs[i - earlier - 1] == p:
            earlier += 1
        seen = start[p + 1] - start[p] + earlier
        for k in range(pools.shape[1]):
            first, end = atom_start[k * P + p] + seen, atom_start[k * P + p + 1]
            if first >= end or pools[p, k] > 0.0:
                # With more successors than were declared, this one has no prior weight.
                continue
            for j in range(first + 1, end):
                if atom_state[j] == x:
                    atom_state[j] = atom_state[first]
            atom_state[first] = x


@jit
def sum_prior_into(
    of_prior: Floats, rows: WorldRows, rewards: Rewards, pair_start: Ints, back_off_total: float
) -> None:
    """Fill the prior's part of the total weight, and of the sum of its rewards, (2, P, L)."""
    P, L = rows.total.shape
    arrived = 0.0
    for x in range(len(rewards.arrival)):
        arrived += rows.back_off[x] * rewards.arrival[x]
    for s in range(len(pair_start) - 1):
        first, last = rows.start[pair_start[s]], rows.start[pair_start[s + 1]]
        for p in range(pair_start[s], pair_start[s + 1]):
            mass, worth = back_off_total, back_off_total * rewards.other[p] + arrived
            for i in range(rewards.start[p], rewards.start[p + 1]):
                worth += rows.back_off[rewards.successor[i]] * (rewards.reward[i] - rewards.other[p])
            for e in range(first, last):
                if e < rows.start[p] or e >= rows.start[p + 1]:
                    mass += rows.pooled[e]
                    worth += rows.pooled[e] * _reward_at(rewards, p, rows.successor[e])
            for k in range(L):
                rest = rows.rest[p] * rows.pools[p, k]
                total, earned = rest * mass, rest * worth
                for i in range(rows.atom_start[k * P + p], rows.atom_start[k * P + p + 1]):
                    total += rows.atom_weight[i]
                    earned += rows.atom_weight[i] * _reward_at(rewards, p, rows.atom_state[i])
                of_prior[0, p, k] = total
                of_prior[1, p, k] = earned


@jit
def sum_rows_into(
    rows: WorldRows, rewards: Rewards, of_prior: Floats, sums: Floats, ends: Floats, lost: Floats
) -> None:
    """Fill `rows.total` and `rows.reward`, declared rewards weighted by world or observed ones.

    Observed rewards have the weights of their transitions, `sums` (P, L), and two atoms `ends` (2, P, L) at 0
    and 1. `lost` (P, L), or (0, 0) for none, are the weights of lost outcomes, without reward or value.
    """
    L = rows.total.shape[1]
    data, earned = np.zeros(L), np.zeros(L)
    for p in range(len(rows.start) - 1):
        data[:] = 0.0
        earned[:] = 0.0
        for e in range(rows.start[p], rows.start[p + 1]):
            r = _reward_at(rewards, p, rows.successor[e]) if rewards.declared else 0.0
            for k in range(L):
                data[k] += rows.weight[e, k]
                earned[k] += r * rows.weight[e, k]
        if len(lost):
            for k in range(L):
                data[k] += lost[p, k]
        for k in range(L):
            rows.total[p, k] = data[k] + of_prior[0, p, k]
            if rewards.declared:
                rows.reward[p, k] = (earned[k] + of_prior[1, p, k]) / rows.total[p, k]
            else:
                rows.reward[p, k] = (sums[p, k] + ends[1, p, k]) / (data[k] + ends[0, p, k] + ends[1, p, k])
